import { execFileSync, spawnSync } from 'node:child_process';

/** Knows other platforms and bills of materials, since 10.2, which Debian's does not. */
const ABLE_NPM = 'npm@10.9.4';

/** Standard output of npm: of the machine's, where that is new enough. */
export function npm(args: readonly string[], cwd: string): string {
  const { stdout: commands } = spawnSync('npm', ['help'], { encoding: 'utf8' });
  const isAble = /\bsbom\b/.test(commands);
  const through = isAble ? [] : ['exec', '--yes', `--package=${ABLE_NPM}`, '--', 'npm'];
  return execFileSync('npm', [...through, ...args], { cwd, encoding: 'utf8', stdio: 'pipe', maxBuffer: 64 << 20 });
}
