import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/*
 * Stand-ins of the images that the tests name, for there is no registry: Debian's programs and what Go has built, under
 * the names and tags of the originals. A new version of the tests may name others; its failures say which.
 */

export const PAUSE = 'registry.k8s.io/pause:3.10.2';
export const COREDNS = 'registry.k8s.io/coredns/coredns:local';
const TESTS = 'registry.k8s.io/e2e-test-images';
const REGRESSION = 'regression-issue-74839';

const DEBIAN_PACKAGES = [
  'busybox',
  'conntrack',
  'curl',
  'dnsutils',
  'iperf',
  'iproute2',
  'iptables',
  'iputils-ping',
  'netcat-openbsd',
  'nginx-light',
  'procps',
  'socat',
];

/** Tries once, as BusyBox' does in the originals; GNU's goes on for minutes. */
const WGET = `#!/bin/sh
while getopts qO:T: option; do
  if [ "$option" = T ]; then seconds=$OPTARG; fi
done
shift $((OPTIND - 1))
exec curl -sSf --max-time "\${seconds:-30}" "$1"
`;

interface Image {
  readonly names: readonly string[];
  /** A folder with its files. */
  readonly layer: string;
  readonly config: { readonly Entrypoint?: readonly string[]; readonly Cmd?: readonly string[] };
}

/** Writes the archive that `ctr images import` takes, unless it is there. `bin`: where Go's programs are. */
export function makeImages(directory: string, bin: string): string {
  const recipe = createHash('sha256')
    .update(readFileSync(import.meta.filename))
    .update(bin)
    .digest('hex');
  const archive = join(directory, `images-${recipe.slice(0, 12)}.tar`);
  if (existsSync(archive)) return archive;
  const work = join(directory, 'images');
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });

  const debian = debianLayer(directory, bin);
  const images: Image[] = [
    {
      names: [`${TESTS}/agnhost:2.66.1`, `${TESTS}/agnhost:2.55`],
      layer: debian,
      config: { Entrypoint: ['/agnhost'], Cmd: ['pause'] },
    },
    {
      names: [`${TESTS}/nginx:1.27.0-2`, `${TESTS}/nginx:1.28.0-2`],
      layer: debian,
      config: { Cmd: ['nginx', '-g', 'daemon off;'] },
    },
    { names: [`${TESTS}/glibc-dns-testing:2.1.1`], layer: debian, config: { Cmd: ['sleep', 'infinity'] } },
    { names: ['registry.k8s.io/build-image/distroless-iptables:v0.9.7'], layer: debian, config: {} },
    { names: [`${TESTS}/busybox:1.37.0-2`], layer: busyboxLayer(work), config: { Cmd: ['sh'] } },
    programImage(work, `${TESTS}/${REGRESSION}:1.5`, join(bin, REGRESSION)),
    programImage(work, PAUSE, join(bin, 'agnhost'), ['pause']),
    programImage(work, COREDNS, join(bin, 'coredns')),
  ];
  const layers = new Map<string, string>();
  const manifest = images.map(({ names, layer, config }) => {
    const digest = layers.get(layer) ?? packLayer(work, layer);
    layers.set(layer, digest);
    const text = JSON.stringify({
      architecture: process.arch === 'arm64' ? 'arm64' : 'amd64',
      os: 'linux',
      config: {
        Env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
        WorkingDir: '/',
        ...config,
      },
      rootfs: { type: 'layers', diff_ids: [`sha256:${digest}`] },
      history: [{ created_by: 'a stand-in' }],
    });
    const file = `${createHash('sha256').update(text).digest('hex')}.json`;
    writeFileSync(join(work, file), text);
    return { Config: file, RepoTags: names, Layers: [`${digest}/layer.tar`] };
  });
  writeFileSync(join(work, 'manifest.json'), JSON.stringify(manifest));
  const parts = ['manifest.json', ...manifest.flatMap(({ Config, Layers }) => [Config, ...Layers])];
  run('tar', '-C', work, '-cf', `${archive}.part`, ...new Set(parts));
  run('mv', `${archive}.part`, archive);
  rmSync(work, { recursive: true });
  return archive;
}

function debianLayer(directory: string, bin: string): string {
  const root = join(directory, 'debian');
  if (!existsSync(join(root, 'complete'))) {
    rmSync(root, { recursive: true, force: true });
    run('debootstrap', '--variant=minbase', `--include=${DEBIAN_PACKAGES}`, 'bookworm', root);
    for (const waste of ['var/cache/apt', 'var/lib/apt/lists', 'usr/share/doc', 'usr/share/man', 'usr/share/locale']) {
      rmSync(join(root, waste), { recursive: true, force: true });
    }
    mkdirSync(join(root, 'uploads'), { recursive: true });
    writeFileSync(join(root, 'complete'), '');
  }
  for (const file of ['agnhost', 'coredns', 'localhost.crt', 'localhost.key']) {
    copyFileSync(join(bin, file), join(root, file));
  }
  writeFileSync(join(root, 'usr/bin/wget'), WGET, { mode: 0o755 });
  rmSync(join(root, 'agnhost-2'), { force: true });
  symlinkSync('agnhost', join(root, 'agnhost-2'));
  return root;
}

function busyboxLayer(work: string): string {
  const root = join(work, 'busybox');
  for (const folder of ['bin', 'etc', 'tmp']) mkdirSync(join(root, folder), { recursive: true });
  copyFileSync('/bin/busybox', join(root, 'bin/busybox'));
  const applets = execFileSync('/bin/busybox', ['--list'], { encoding: 'utf8' }).split('\n');
  for (const name of applets.filter((name) => name !== '' && name !== 'busybox')) {
    symlinkSync('busybox', join(root, 'bin', name));
  }
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n');
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\n');
  return root;
}

/** An image of one static program. */
function programImage(work: string, name: string, program: string, args: readonly string[] = []): Image {
  const file = name.split('/').at(-1)!.split(':')[0]!;
  const layer = join(work, file);
  mkdirSync(layer);
  copyFileSync(program, join(layer, file));
  return { names: [name], layer, config: { Entrypoint: [`/${file}`, ...args] } };
}

/** Gives its SHA-256. */
function packLayer(work: string, folder: string): string {
  const tar = join(work, 'layer.tar');
  const without = ['proc', 'sys', 'dev'].map((name) => `--exclude=./${name}/*`);
  run('tar', '--numeric-owner', ...without, '-C', folder, '-cf', tar, '.');
  const digest = createHash('sha256').update(readFileSync(tar)).digest('hex');
  mkdirSync(join(work, digest), { recursive: true });
  run('mv', tar, join(work, digest, 'layer.tar'));
  return digest;
}

function run(file: string, ...args: readonly string[]): void {
  execFileSync(file, args, { stdio: ['ignore', 'ignore', 'inherit'] });
}
