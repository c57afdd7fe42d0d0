import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';

/** Also that of the image (scripts/image-packages). */
export const SUITE = 'bookworm';
const CACHE =
  process.env['KUP_CACHE'] ?? join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'kube-userspace-proxy');

/**
 * In a mount namespace of its own, so that no mount outlives it. `$1`: the root; then paths that are to be noexec, `-`,
 * and folders of outside.
 */
const ENTER = `
set -eu
root=$1
shift
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
while [ "$1" != - ]; do
  mount -t tmpfs -o noexec,mode=1777 tmpfs "$root$1"
  shift
done
shift
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount --bind "$1" "$root$1"
  shift
done
shift
exec chroot "$root" "$@"
`;

export interface RunOptions {
  /** Directories that are to be empty and mounted noexec, such as `/tmp`. Each run has its own. */
  readonly noexec?: readonly string[];
  /** Directories of outside, to be seen at the same path. */
  readonly binds?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

/** The smallest Debian with some packages, in a directory. Needs root, and Debian's `debootstrap`. */
export class Chroot {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** The command that runs `argv` in here, in any network namespace; it becomes `argv`, with the same process id. */
  command(argv: readonly string[], { noexec = [], binds = [] }: RunOptions = {}): string[] {
    const own = ['unshare', '--mount', '--propagation', 'private'];
    return [...own, 'sh', '-c', ENTER, 'sh', this.path, ...noexec, '-', ...binds, '--', ...argv];
  }

  /** Throws when it does not end with 0. */
  run(argv: readonly string[], options: RunOptions = {}): SpawnSyncReturns<string> {
    const result = this.try(argv, options);
    if (result.status !== 0) {
      throw new Error(`in the chroot, ${argv.join(' ')} ended with ${result.status}: ${result.stderr}${result.stdout}`);
    }
    return result;
  }

  try(argv: readonly string[], options: RunOptions = {}): SpawnSyncReturns<string> {
    const [file, ...args] = this.command(argv, options);
    const { env, timeoutMs = 300_000 } = options;
    const result = spawnSync(file as string, args, {
      encoding: 'utf8',
      timeout: timeoutMs,
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8', DEBIAN_FRONTEND: 'noninteractive', ...env },
    });
    if (result.error !== undefined) throw result.error;
    return result;
  }

  remove(): void {
    // What has just ended there may still write for a moment.
    rmSync(this.path, { recursive: true, maxRetries: 20, retryDelay: 100 });
  }
}

/** A fresh one. The first takes a minute, the first with these packages half of one; later ones come from the cache. */
export function makeChroot(packages: readonly string[]): Chroot {
  const path = mkdtempSync(join(tmpdir(), 'kup-chroot-'));
  try {
    unpack(archiveOf(packages), path);
  } catch (error) {
    rmSync(path, { recursive: true });
    throw error;
  }
  return new Chroot(path);
}

/** Made once for all test files, which begin together: each waits for the one that makes it. */
function archiveOf(packages: readonly string[]): string {
  const include = [...packages].sort().join(',');
  const key = createHash('sha256').update(`${SUITE} ${include}`).digest('hex').slice(0, 16);
  const archive = join(CACHE, `chroot-${SUITE}-${process.arch}-${key}.tar`);
  if (existsSync(archive)) return archive;
  mkdirSync(CACHE, { recursive: true });
  must('flock', [`${archive}.lock`, process.execPath, import.meta.filename, archive, ...packages]);
  return archive;
}

if (import.meta.main) {
  const [archive = '', ...packages] = process.argv.slice(2);
  // Another may have made it while this one waited.
  if (!existsSync(archive)) makeArchive(archive, packages);
}

function makeArchive(archive: string, packages: readonly string[]): void {
  const work = mkdtempSync(join(tmpdir(), 'kup-debootstrap-'));
  try {
    if (packages.length === 0) must('debootstrap', ['--variant=minbase', SUITE, work]);
    else addPackages(work, packages);
    rmSync(join(work, 'var/cache/apt'), { recursive: true });
    rmSync(join(work, 'var/lib/apt/lists'), { recursive: true });
    // Renamed into place, so that nobody ever extracts half of one.
    must('tar', ['--create', '--file', `${archive}.${process.pid}`, '--directory', work, '--one-file-system', '.']);
    renameSync(`${archive}.${process.pid}`, archive);
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** All have the same base. */
function addPackages(path: string, packages: readonly string[]): void {
  unpack(archiveOf([]), path);
  cpSync('/etc/resolv.conf', join(path, 'etc/resolv.conf'));
  const chroot = new Chroot(path);
  chroot.run(['apt-get', 'update']);
  chroot.run(['apt-get', 'install', '--yes', '--no-install-recommends', ...packages]);
}

function unpack(archive: string, path: string): void {
  must('tar', ['--extract', '--file', archive, '--directory', path]);
}

function must(file: string, args: readonly string[]): void {
  const { status, error, stdout, stderr } = spawnSync(file, args, { encoding: 'utf8', timeout: 1_200_000 });
  if (error !== undefined) throw new Error(`cannot run ${file}: ${error.message}`);
  if (status !== 0) throw new Error(`${file} ended with ${status}: ${stderr}${stdout.slice(-2000)}`);
}
