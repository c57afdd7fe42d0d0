import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const PARTS = ['Dockerfile', 'LICENSE', 'deploy', 'package-lock.json', 'packaging', 'scripts', 'src', 'tsconfig.json'];
/** Any moment will do, as long as it is always the same. */
const SOURCE_DATE_EPOCH = '1700000000';

/** A copy of the sources, or of another copy of them, under another version. */
export function copySources(folder: string, version: string, from = ROOT): void {
  for (const part of PARTS) cpSync(join(from, part), join(folder, part), { recursive: true, preserveTimestamps: true });
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const packageJson = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...packageJson, version }));
}

/** Runs a script of a copy that lays out a release in `out`. Gives the path of the .deb. */
export function layOut(folder: string, out: string, script = 'scripts/package'): string {
  const { status, stderr, stdout } = spawnSync('sh', ['-c', `${script} --out "$1"`, 'sh', out], {
    cwd: folder,
    encoding: 'utf8',
    env: { ...process.env, SOURCE_DATE_EPOCH },
    timeout: 900_000,
  });
  assert.equal(status, 0, `${stderr}${stdout}`);
  return join(out, readdirSync(out).find((file) => file.endsWith('.deb'))!);
}
