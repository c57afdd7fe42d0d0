import assert from 'node:assert/strict';
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const PARTS = [
  '.gitignore',
  'Dockerfile',
  'LICENSE',
  'deploy',
  'package-lock.json',
  'packaging',
  'scripts',
  'src',
  'tsconfig.json',
];
/** Any moment will do, as long as it is always the same. */
const COMMITTED_AT = '1700000000 +0000';

/** A copy of the sources, or of another copy of them, under another version, as the one commit of a repository. */
export function copySources(folder: string, version: string, from = ROOT): void {
  for (const part of PARTS) cpSync(join(from, part), join(folder, part), { recursive: true, preserveTimestamps: true });
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const packageJson = JSON.parse(readFileSync(join(from, 'package.json'), 'utf8'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...packageJson, version }));
  writeFileSync(
    join(folder, 'CHANGELOG.md'),
    `# Changelog\n\n## ${version}\n\n- News of ${version}, [more](docs/more.md).\n\n## 0.0.1\n\n- Old.\n`,
  );
  const author = { GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a', GIT_AUTHOR_DATE: COMMITTED_AT };
  const committer = { GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a', GIT_COMMITTER_DATE: COMMITTED_AT };
  const git = 'git init --quiet && git add --all && git commit --quiet --message sources';
  const { status, stderr } = spawnSync('sh', ['-c', git], {
    cwd: folder,
    encoding: 'utf8',
    env: { ...process.env, ...author, ...committer },
  });
  assert.equal(status, 0, stderr);
}

/** Packages a copy for this machine in `out`. Gives the path of the .deb. */
export function layOut(folder: string, out: string): string {
  succeed(inCopy(folder, `scripts/package --out '${out}'`));
  return join(out, readdirSync(out).find((file) => file.endsWith('.deb'))!);
}

export function inCopy(folder: string, script: string): SpawnSyncReturns<string> {
  return spawnSync('sh', ['-c', script], { cwd: folder, encoding: 'utf8', timeout: 900_000 });
}

export function succeed({ status, stderr, stdout }: SpawnSyncReturns<string>): void {
  assert.equal(status, 0, `${stderr}${stdout}`);
}

export function unpack(tarball: string, folder: string): void {
  mkdirSync(folder, { recursive: true });
  succeed(spawnSync('tar', ['-xzf', tarball, '-C', folder], { encoding: 'utf8' }));
}
