import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A package of Debian that is known by its content. */
export interface ArchivedPackage {
  /** `amd64` */
  readonly architecture: string;
  /** In hexadecimal. */
  readonly sha256: string;
  /** `pool/main/g/glibc/libc6_2.36-9_amd64.deb` */
  readonly path: string;
}

/** The second keeps what the first has replaced. */
const MIRRORS = ['http://deb.debian.org/debian', 'https://snapshot.debian.org/archive/debian/20260801T000000Z'];

const CACHE = join(
  process.env['KUP_CACHE'] ?? join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'kube-userspace-proxy'),
  'debian',
);

/** The lines of packaging/image/packages. */
export function readPackages(text: string): ArchivedPackage[] {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return lines.map((line) => {
    const [architecture = '', sha256 = '', path = ''] = line.split(' ');
    if (!/^[0-9a-f]{64}$/.test(sha256) || !path.endsWith('.deb')) throw new Error(`not a package: ${line}`);
    return { architecture, sha256, path };
  });
}

/** The file of a package, fetched once and kept. apt's own helper refuses any other content. */
export async function fetchPackage({ sha256, path }: ArchivedPackage): Promise<string> {
  const file = join(CACHE, sha256, basename(path));
  if (existsSync(file) && createHash('sha256').update(readFileSync(file)).digest('hex') === sha256) return file;
  mkdirSync(join(CACHE, sha256), { recursive: true });
  const problems: string[] = [];
  for (const mirror of MIRRORS) {
    const partial = `${file}.${process.pid}`;
    const argv = ['download-file', `${mirror}/${path}`, partial, `SHA256:${sha256}`];
    try {
      await run('/usr/lib/apt/apt-helper', argv);
      renameSync(partial, file);
      return file;
    } catch (error) {
      problems.push((error as { stderr?: string }).stderr?.trim() || (error as Error).message);
    }
  }
  throw new Error(`${path} cannot be fetched; scripts/image-packages names newer ones (${problems.join('; ')})`);
}

export interface PackageFields {
  readonly name: string;
  readonly version: string;
  /** The whole control file. */
  readonly control: string;
}

export async function fieldsOf(file: string): Promise<PackageFields> {
  const { stdout: control } = await run('dpkg-deb', ['--field', file]);
  const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(control)?.[1] ?? '';
  return { name: field('Package'), version: field('Version'), control };
}

/** Unpacks the files of a package, without what only people read, except for the copyright. */
export async function unpackPackage(file: string, folder: string): Promise<void> {
  const leftOut = ['man', 'locale', 'info', 'lintian', 'bash-completion'].map((name) => `./usr/share/${name}`);
  const tar = ['tar', '-x', '-C', folder, '--no-same-owner', ...leftOut.map((path) => `--exclude=${path}`)];
  const docs = ['--wildcards', '--exclude=./usr/share/doc/*/[!c]*', '--exclude=./usr/share/doc/*/changelog*'];
  const pipe = 'dpkg-deb --fsys-tarfile "$1" | { shift; exec "$@"; }';
  await run('sh', ['-c', pipe, 'sh', file, ...tar, ...docs]);
}
