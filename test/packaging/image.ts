import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { succeed, unpack } from './release.ts';

/** What is read here of the configuration of an image (OCI). */
export interface ImageConfig {
  readonly Entrypoint: readonly [string];
  readonly Env: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
}

/** The root of a container, as a runtime makes it of the layers. There is nothing in it but the program. */
export class ImageRoot {
  readonly path: string;
  readonly config: ImageConfig;

  /** skopeo finds the image of this architecture, and holds all that it copies against the checksums. */
  constructor(archive: string, architecture: string) {
    const work = mkdtempSync(join(tmpdir(), 'kup-image-'));
    this.path = join(work, 'root');
    const copy = join(work, 'copy');
    succeed(skopeo(['--override-arch', architecture, 'copy', '--quiet', `oci-archive:${archive}`, `dir:${copy}`]));
    const read = (name: string) => JSON.parse(readFileSync(join(copy, name), 'utf8'));
    const { config, layers } = read('manifest.json');
    const file = ({ digest }: { digest: string }) => digest.split(':')[1] ?? '';
    this.config = read(file(config)).config;
    for (const layer of layers) unpack(join(copy, file(layer)), this.path);
    for (const folder of ['dev', 'proc']) mkdirSync(join(this.path, folder));
  }

  /** Becomes the program with these capabilities and no other, and sees these folders of outside. */
  command(capabilities: readonly string[], binds: readonly string[]): string[] {
    const { stdout } = spawnSync('capsh', ['--print'], { encoding: 'utf8' });
    const all = /^Bounding set =(.*)$/m.exec(stdout)?.[1]?.split(',') ?? [];
    const dropped = all.filter((each) => !capabilities.includes(each)).join();
    const own = ['unshare', '--mount', '--propagation', 'private'];
    return [...own, 'sh', '-euc', ENTER, 'sh', this.path, dropped, ...binds, '--'];
  }

  remove(): void {
    rmSync(join(this.path, '..'), { recursive: true, maxRetries: 20, retryDelay: 100 });
  }
}

/** `$1`: the root, `$2`: capabilities to drop; then folders of outside, `--`, the program and its arguments. */
const ENTER = `
root=$1 dropped=$2
shift 2
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
  mkdir -p "$root$1"
  mount --bind "$1" "$root$1"
  shift
done
program=$2
shift 2
exec capsh --chroot="$root" --drop="$dropped" --no-new-privs --shell="$program" -- "$@"
`;

/** Its policy is that of this machine, which may have none. */
export function skopeo(args: readonly string[]) {
  return spawnSync('skopeo', ['--insecure-policy', ...args], { encoding: 'utf8', timeout: 300_000 });
}
