/*
 * Lays out what a release consists of. `--out DIR` says where to, `--arch ARCHITECTURE` for which machines: for this
 * one unless others are named. `--release` adds where all of it comes from, and the text for its page.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { globSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import packageJson from '../../package.json' with { type: 'json' };
import { COMMANDS } from '../../src/app/subcommands.ts';
import { bundle, writeExecutable } from '../build.ts';
import { chartOfVersion } from '../references/chart.ts';
import { type ArchivedPackage, readPackages } from './archive.ts';
import { debianChangelog, sectionOf } from './changelog.ts';
import { type Component, componentsOf, thirdPartyNotices } from './components.ts';
import { debianFileName, writeDebianPackage } from './debian.ts';
import { writeImage } from './image.ts';
import { manual } from './manual.ts';
import { releaseNotes } from './notes.ts';
import { OWN_PLATFORM, type Platform, platformOf } from './platforms.ts';
import { provenance } from './provenance.ts';
import { rpmFileName, writeRpm } from './rpm.ts';
import { imageSbom, sbom } from './sbom.ts';
import type { StagedFile } from './stage.ts';
import type { PackagedFile, SystemPackage } from './system-package.ts';
import { writeTarball } from './tarball.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const MAINTAINER = 'The authors of kube-userspace-proxy <maintainers@kube-userspace-proxy.example>';

const { name, version } = packageJson;
/** `0.2.0-rc.1` comes before `0.2.0`, to package managers, too. */
const packageVersion = version.replace('-', '~');

/** The executable for a platform, and what is in it. */
interface Build {
  readonly platform: Platform;
  readonly executable: Buffer;
  readonly addon: Buffer;
  readonly components: readonly Component[];
}

interface Release {
  readonly out: string;
  readonly changes: string;
  readonly epoch: number;
}

try {
  await layOut();
} catch (error) {
  process.stderr.write(`package: ${(error as Error).message}\n`);
  process.exitCode = 1;
}

async function layOut(): Promise<void> {
  const { values } = parseArgs({
    options: {
      out: { type: 'string', default: join(ROOT, 'dist') },
      arch: { type: 'string', multiple: true, default: [OWN_PLATFORM.architecture] },
      release: { type: 'boolean', default: false },
    },
  });
  const out = resolve(values.out);
  const changes = sectionOf(source('CHANGELOG.md'), version);
  const release = { out, changes, epoch: sourceDateEpoch() };
  const platforms = values.arch.map(platformOf);
  execFileSync(join(ROOT, 'scripts/build'), { stdio: 'inherit' });
  mkdirSync(out, { recursive: true });
  const write = (file: string, text: string) => {
    writeFileSync(join(out, file), text);
    return file;
  };
  const { packages } = await bundle();
  const builds: Build[] = [];
  for (const platform of platforms) builds.push(await built(platform, packages));
  const files: string[] = [];
  for (const build of builds) {
    files.push(...(await Promise.all([debianPackage(build, release), rpm(build, release), tarball(build, release)])));
    files.push(write(`${name}_${version}_${build.platform.architecture}.cdx.json`, billOfMaterials(build, release)));
  }
  files.push(await image(builds, release), await chart(release));
  const sums = new Map(files.map((file) => [file, sha256(readFileSync(join(out, file)))]));
  if (values.release) {
    const file = write(`${name}_${version}_provenance.json`, whereFrom(sums, values.arch));
    sums.set(file, sha256(readFileSync(join(out, file))));
  }
  const written = [...sums.keys(), write('SHA256SUMS', [...sums].map(([file, sum]) => `${sum}  ${file}\n`).join(''))];
  if (values.release) written.push(write('release-notes.md', releaseNotes({ name, version, changes })));
  process.stdout.write(written.map((file) => `${join(out, file)}\n`).join(''));
}

async function built(platform: Platform, bundled: Iterable<string>): Promise<Build> {
  const folder = join(ROOT, 'dist', platform === OWN_PLATFORM ? '' : platform.architecture);
  const program = join(folder, name);
  if (platform !== OWN_PLATFORM) await writeExecutable(program, platform);
  return {
    platform,
    executable: readFileSync(program),
    addon: readFileSync(join(folder, 'koffi.node')),
    components: componentsOf(ROOT, bundled, platform),
  };
}

async function debianPackage(build: Build, { out, changes, epoch }: Release): Promise<string> {
  const doc = `usr/share/doc/${name}`;
  const description = systemPackage(build, { changes, epoch }, [
    { path: `usr/share/zsh/vendor-completions/_${name}`, content: completion('zsh'), mode: 0o644 },
    { path: `${doc}/copyright`, content: source('packaging/debian/copyright'), mode: 0o644 },
    {
      path: `${doc}/changelog.gz`,
      content: gzip(debianChangelog(changes, { name, version: packageVersion, maintainer: MAINTAINER, epoch })),
      mode: 0o644,
    },
  ]);
  const file = debianFileName(description);
  await writeDebianPackage(join(out, file), description, source('packaging/debian/control'), epoch);
  return file;
}

async function rpm(build: Build, { out, changes, epoch }: Release): Promise<string> {
  const description = systemPackage(build, { changes, epoch }, [
    { path: `usr/share/zsh/site-functions/_${name}`, content: completion('zsh'), mode: 0o644 },
    { path: `usr/share/doc/${name}/LICENSE`, content: source('LICENSE'), mode: 0o644 },
  ]);
  const file = rpmFileName(description);
  await writeRpm(join(out, file), description, source(`packaging/rpm/${name}.spec`), epoch);
  return file;
}

/** With what is the same on every system; `files` are those that have other places. */
function systemPackage(
  build: Build,
  { changes, epoch }: Omit<Release, 'out'>,
  files: readonly PackagedFile[],
): SystemPackage {
  const notices = gzip(thirdPartyNotices(build.components));
  return {
    name,
    version: packageVersion,
    architecture: build.platform.architecture,
    maintainer: MAINTAINER,
    changes,
    scripts: {
      afterInstall: source('packaging/scripts/after-install'),
      beforeRemove: source('packaging/scripts/before-remove'),
      afterRemove: source('packaging/scripts/after-remove'),
    },
    files: [
      ...installed(build, epoch).map((each) => ({ ...each, path: `usr/${each.path}` })),
      { path: `usr/lib/systemd/system/${name}.service`, content: source(`deploy/${name}.service`), mode: 0o644 },
      { path: `etc/default/${name}`, content: defaults(), mode: 0o644, isConfiguration: true },
      { path: `usr/share/doc/${name}/THIRD-PARTY-NOTICES.gz`, content: notices, mode: 0o644 },
      ...files,
    ],
  };
}

/** One archive for all platforms: whoever pulls the image gets the right one. */
async function image(builds: readonly Build[], { out, epoch }: Release): Promise<string> {
  const file = `${name}_${version}_oci.tar`;
  const packages = debianPackages();
  await writeImage(join(out, file), {
    version,
    epoch,
    entrypoint: `/usr/local/sbin/${name}`,
    labels: {
      'org.opencontainers.image.title': name,
      'org.opencontainers.image.description': packageJson.description,
      'org.opencontainers.image.licenses': packageJson.license,
      'org.opencontainers.image.version': version,
    },
    platforms: builds.map((build) => {
      const { architecture } = build.platform;
      const own = packages.filter((each) => each.architecture === architecture);
      const doc = `usr/local/share/doc/${name}`;
      return {
        architecture,
        packages: own,
        files: [
          { path: `usr/local/sbin/${name}`, content: build.executable, mode: 0o755 },
          { path: `usr/local/lib/${name}/koffi.node`, content: build.addon, mode: 0o644 },
          { path: `${doc}/LICENSE`, content: source('LICENSE'), mode: 0o644 },
          { path: `${doc}/THIRD-PARTY-NOTICES`, content: thirdPartyNotices(build.components), mode: 0o644 },
          { path: `${doc}/sbom.cdx.json`, content: imageSbom(billOfMaterials(build, { epoch }), own), mode: 0o644 },
        ],
      };
    }),
  });
  return file;
}

/** The Helm chart, as `helm package` would have it. */
async function chart({ out, epoch }: Release): Promise<string> {
  const folder = `deploy/helm/${name}`;
  const files = globSync(`${folder}/**/{*,.helmignore}`, { cwd: ROOT })
    .filter((path) => statSync(join(ROOT, path)).isFile())
    .map((path): StagedFile => {
      const content = path.endsWith('/Chart.yaml') ? chartOfVersion(source(path), version) : source(path);
      return { path: path.slice('deploy/helm/'.length), content, mode: 0o644 };
    });
  const file = `${name}-chart-${version}.tgz`;
  await writeTarball(join(out, file), files, epoch);
  return file;
}

function debianPackages(): ArchivedPackage[] {
  return readPackages(source('packaging/image/packages'));
}

function whereFrom(subjects: ReadonlyMap<string, string>, architectures: readonly string[]): string {
  const lockfile = source('package-lock.json');
  const commit = git('rev-parse', 'HEAD').trim();
  const packages = debianPackages().filter(({ architecture }) => architectures.includes(architecture));
  return provenance({ version, architectures, subjects, commit, lockfile, packages });
}

/** To be unpacked in /usr/local by an administrator. */
async function tarball(build: Build, { out, epoch }: Release): Promise<string> {
  const file = `${name}_${version}_linux_${build.platform.architecture}.tar.gz`;
  const doc = `share/doc/${name}`;
  const unit = source(`deploy/${name}.service`).replaceAll('/usr/sbin/', '/usr/local/sbin/');
  const files: StagedFile[] = [
    ...installed(build, epoch),
    { path: `lib/systemd/system/${name}.service`, content: unit, mode: 0o644 },
    { path: `share/zsh/site-functions/_${name}`, content: completion('zsh'), mode: 0o644 },
    { path: `${doc}/${name}.default`, content: defaults(), mode: 0o644 },
    { path: `${doc}/LICENSE`, content: source('LICENSE'), mode: 0o644 },
    { path: `${doc}/THIRD-PARTY-NOTICES`, content: thirdPartyNotices(build.components), mode: 0o644 },
    { path: `${doc}/CHANGELOG.md`, content: source('CHANGELOG.md'), mode: 0o644 },
  ];
  await writeTarball(join(out, file), files, epoch);
  return file;
}

/** What lies in the same places below /usr as below /usr/local. */
function installed({ executable, addon }: Build, epoch: number): StagedFile[] {
  return [
    { path: `sbin/${name}`, content: executable, mode: 0o755 },
    { path: `lib/${name}/koffi.node`, content: addon, mode: 0o644 },
    { path: `share/man/man8/${name}.8.gz`, content: gzip(manual(COMMANDS, { version, epoch })), mode: 0o644 },
    { path: `share/bash-completion/completions/${name}`, content: completion('bash'), mode: 0o644 },
    { path: `share/fish/vendor_completions.d/${name}.fish`, content: completion('fish'), mode: 0o644 },
  ];
}

/** The script that the program prints for a shell, whatever machine the program is for. */
function completion(shell: string): Buffer {
  return execFileSync(join(ROOT, 'dist', name), ['completion', shell]);
}

function defaults(): string {
  return source(`packaging/${name}.default`);
}

function billOfMaterials({ executable, components }: Build, { epoch }: Pick<Release, 'epoch'>): string {
  return sbom(ROOT, { name, sha256: sha256(executable), epoch }, components);
}

/**
 * When what is packaged was made, in seconds since 1970: the last commit, so that its time says nothing of this build.
 */
function sourceDateEpoch(): number {
  const text = process.env['SOURCE_DATE_EPOCH'] ?? git('log', '-1', '--format=%ct');
  const seconds = Number(text);
  if (text.trim() === '' || !Number.isInteger(seconds) || seconds < 0) {
    throw new Error(`SOURCE_DATE_EPOCH is ${JSON.stringify(text)}; give it as seconds since 1970`);
  }
  return seconds;
}

function git(...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  if (status === 0) return stdout;
  throw new Error(
    `git does not tell which commit this is; outside of a checkout, give SOURCE_DATE_EPOCH (${stderr?.trim()})`,
  );
}

function source(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** Neither a name nor a time in its header, as by `gzip -n`. */
function gzip(text: string): Buffer {
  return gzipSync(text, { level: 9 });
}

function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
