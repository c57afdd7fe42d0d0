import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { type ArchivedPackage, fetchPackage, fieldsOf, unpackPackage } from './archive.ts';
import { type StagedFile, withStage } from './stage.ts';

const run = promisify(execFile);

/*
 * An image as the Image Format Specification of the Open Container Initiative has it (image-spec 1.1), in an archive
 * that skopeo, containerd, podman and Docker read. Nothing is run to make it, so it can be of another architecture.
 */

export interface Image {
  readonly version: string;
  /** In seconds since 1970. */
  readonly epoch: number;
  /** The absolute path of the program in it. */
  readonly entrypoint: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly platforms: readonly ImagePlatform[];
}

export interface ImagePlatform {
  /** `amd64` */
  readonly architecture: string;
  /** Of Debian, the lowest layer. */
  readonly packages: readonly ArchivedPackage[];
  /** The second layer; paths from the root. */
  readonly files: readonly StagedFile[];
}

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

const TYPE = 'application/vnd.oci.image';

/** Debian's own PATH, and fewer pools of memory: the unit says what for. */
const ENVIRONMENT = [
  'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  'MALLOC_ARENA_MAX=2',
  'MALLOC_MMAP_THRESHOLD_=65536',
];

/** The same input gives the same bytes. */
export async function writeImage(file: string, image: Image): Promise<void> {
  await withStage([], async (layout) => {
    const blobs = join(layout, 'blobs/sha256');
    mkdirSync(blobs, { recursive: true });
    const put = (mediaType: string, content: string | Buffer): Descriptor => {
      const digest = sha256(content);
      writeFileSync(join(blobs, digest), content);
      return { mediaType: `${TYPE}.${mediaType}`, digest: `sha256:${digest}`, size: Buffer.byteLength(content) };
    };
    const manifests = [];
    for (const platform of image.platforms) {
      const { architecture } = platform;
      manifests.push({ ...(await putManifest(put, image, platform)), platform: { architecture, os: 'linux' } });
    }
    const index = put('index.v1+json', json({ schemaVersion: 2, mediaType: `${TYPE}.index.v1+json`, manifests }));
    // By this name, tools that read an archive call what they find.
    const annotations = { 'org.opencontainers.image.ref.name': image.version };
    writeFileSync(join(layout, 'index.json'), json({ schemaVersion: 2, manifests: [{ ...index, annotations }] }));
    writeFileSync(join(layout, 'oci-layout'), json({ imageLayoutVersion: '1.0.0' }));
    writeFileSync(file, await tarOf(layout, image.epoch));
  });
}

async function putManifest(
  put: (mediaType: string, content: string | Buffer) => Descriptor,
  { epoch, entrypoint, labels }: Image,
  { architecture, packages, files }: ImagePlatform,
): Promise<Descriptor> {
  const tars = [await systemLayer(packages, epoch), await filesLayer(files, epoch)];
  const layers = tars.map((tar) => put('layer.v1.tar+gzip', gzipSync(tar, { level: 6 })));
  const created = new Date(epoch * 1000).toISOString();
  const configuration = put(
    'config.v1+json',
    json({
      created,
      architecture,
      os: 'linux',
      config: { Env: ENVIRONMENT, Entrypoint: [entrypoint], Labels: labels },
      rootfs: { type: 'layers', diff_ids: tars.map((tar) => `sha256:${sha256(tar)}`) },
      history: ['packages of Debian', 'the program'].map((comment) => ({ created, comment })),
    }),
  );
  return put(
    'manifest.v1+json',
    json({ schemaVersion: 2, mediaType: `${TYPE}.manifest.v1+json`, config: configuration, layers }),
  );
}

/** As scanners look for it where there is no dpkg: a file for each package. */
const STATUS_FOLDER = 'var/lib/dpkg/status.d';

const OS_RELEASE = `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
VERSION_CODENAME=bookworm
ID=debian
`;

async function systemLayer(packages: readonly ArchivedPackage[], epoch: number): Promise<Buffer> {
  let tar: Buffer = Buffer.alloc(0);
  await withStage([{ path: 'etc/os-release', content: OS_RELEASE, mode: 0o644 }], async (stage) => {
    for (const folder of [STATUS_FOLDER, 'run', 'tmp']) mkdirSync(join(stage, folder), { recursive: true });
    for (const each of packages) {
      const file = await fetchPackage(each);
      const { name, control } = await fieldsOf(file);
      await unpackPackage(file, stage);
      writeFileSync(join(stage, STATUS_FOLDER, name), control);
    }
    tar = await tarOf(stage, epoch);
  });
  return tar;
}

async function filesLayer(files: readonly StagedFile[], epoch: number): Promise<Buffer> {
  let tar: Buffer = Buffer.alloc(0);
  await withStage(files, async (stage) => {
    tar = await tarOf(stage, epoch);
  });
  return tar;
}

/** What is in a folder. */
async function tarOf(folder: string, epoch: number): Promise<Buffer> {
  const own = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', `--mtime=@${epoch}`];
  const argv = [
    '--create',
    '--format=ustar',
    ...own,
    '--mode=u=rwX,go=rX',
    '-C',
    folder,
    ...readdirSync(folder).sort(),
  ];
  const { stdout } = await run('tar', argv, { encoding: 'buffer', maxBuffer: 2 ** 31 });
  return stdout;
}

function json(value: object): string {
  return JSON.stringify(value);
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
