import assert from 'node:assert/strict';
import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { OWN_PLATFORM } from '../../scripts/packaging/platforms.ts';

const ROOT = join(import.meta.dirname, '../..');
const PARTS = ['.gitignore', 'LICENSE', 'deploy', 'package-lock.json', 'packaging', 'scripts', 'src', 'tsconfig.json'];
/** Any moment will do, as long as it is always the same. */
const COMMITTED_AT = '1700000000 +0000';

/** Of what is installed first, and of what takes its place. */
export const VERSIONS = { old: '1.0.0-rc.1', new: '1.0.0' } as const;

export interface Packaged {
  /** The copy that it is made from, with nothing else in it. */
  readonly sources: string;
  /** The old version is a whole release. The new one has what is for this machine. */
  readonly out: string;
  /** For this machine. */
  readonly debianPackage: string;
  readonly rpm: string;
}

/**
 * Of a suite that uses {@link packaged}, and of its hook that does: on a machine that does much else, it may wait for
 * that first. A hook does not take the time of its suite.
 */
export const WITHIN = { timeout: 1_800_000 };

let state: string | undefined;

/**
 * What the scripts make of these sources as such a version. Made once for all test files, because each takes half a
 * minute of processor time; kept until the sources change.
 */
export function packaged(which: keyof typeof VERSIONS): Packaged {
  const cache = join(ROOT, 'dist/packaged');
  // Somebody may be at work on the sources.
  state ??= stateOfSources();
  mkdirSync(cache, { recursive: true });
  const argv = [join(cache, 'lock'), process.execPath, import.meta.filename, cache, state, which];
  succeed(spawnSync('flock', argv, { encoding: 'utf8', timeout: 900_000 }));
  const [sources, out] = [join(cache, state, which, 'sources'), join(cache, state, which, 'out')];
  const made = (end: string) => join(out, readdirSync(out).find((file) => file.endsWith(end))!);
  const machine = OWN_PLATFORM.architecture === 'amd64' ? 'x86_64' : 'aarch64';
  return { sources, out, debianPackage: made(`_${OWN_PLATFORM.architecture}.deb`), rpm: made(`.${machine}.rpm`) };
}

function stateOfSources(): string {
  const hash = createHash('sha256');
  for (const part of [...PARTS, 'package.json']) {
    const files = globSync([part, `${part}/**`], { cwd: ROOT, withFileTypes: true }).filter((each) => each.isFile());
    for (const path of files.map(({ parentPath, name }) => join(parentPath, name)).sort()) {
      hash.update(`${path}\0`).update(readFileSync(path)).update('\0');
    }
  }
  return hash.digest('hex').slice(0, 16);
}

if (import.meta.main) makePackages(...(process.argv.slice(2) as [string, string, keyof typeof VERSIONS]));

function makePackages(cache: string, state: string, which: keyof typeof VERSIONS): void {
  const folder = join(cache, state, which);
  if (existsSync(folder)) return;
  for (const earlier of readdirSync(cache)) {
    if (earlier !== state && earlier !== 'lock') rmSync(join(cache, earlier), { recursive: true });
  }
  const work = `${folder}.unfinished`;
  rmSync(work, { recursive: true, force: true });
  const sources = join(work, 'sources');
  copySources(sources, VERSIONS[which]);
  succeed(inCopy(sources, which === 'old' ? 'exec scripts/release ../out' : 'exec scripts/package --out ../out'));
  rmSync(join(sources, 'dist'), { recursive: true });
  renameSync(work, folder);
}

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
