/*
 * Lays out what a release consists of. `--out DIR` says where to, `--arch ARCHITECTURE` for which machines: for this
 * one unless others are named. `--notes` adds the text for its page.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import packageJson from '../../package.json' with { type: 'json' };
import { COMMANDS } from '../../src/app/subcommands.ts';
import { bundle, writeExecutable } from '../build.ts';
import { debianChangelog, sectionOf } from './changelog.ts';
import { type Component, componentsOf, thirdPartyNotices } from './components.ts';
import { type PackagedFile, writeDebianPackage } from './debian.ts';
import { manual } from './manual.ts';
import { releaseNotes } from './notes.ts';
import { OWN_PLATFORM, type Platform, platformOf } from './platforms.ts';
import { sbom } from './sbom.ts';
import type { StagedFile } from './stage.ts';
import { writeTarball } from './tarball.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const MAINTAINER = 'The authors of kube-userspace-proxy <maintainers@kube-userspace-proxy.example>';

const { name, version } = packageJson;
/** `0.2.0-rc.1` comes before `0.2.0`, to Debian, too. */
const debianVersion = version.replace('-', '~');

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
      notes: { type: 'boolean', default: false },
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
  const files: string[] = [];
  const { packages } = await bundle();
  for (const platform of platforms) {
    const build = await built(platform, packages);
    files.push(...(await Promise.all([debianPackage(build, release), tarball(build, release)])));
    files.push(write(`${name}_${version}_${platform.architecture}.cdx.json`, billOfMaterials(build, release)));
  }
  files.push(write('Dockerfile', source('Dockerfile').replaceAll('@VERSION@', version)));
  files.push(write('SHA256SUMS', files.map((file) => `${sha256(readFileSync(join(out, file)))}  ${file}\n`).join('')));
  if (values.notes) files.push(write('release-notes.md', releaseNotes({ name, version, changes })));
  process.stdout.write(files.map((file) => `${join(out, file)}\n`).join(''));
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
  const { architecture } = build.platform;
  const file = `${name}_${version}_${architecture}.deb`;
  const doc = `usr/share/doc/${name}`;
  const files: PackagedFile[] = [
    ...installed(build, epoch).map((each) => ({ ...each, path: `usr/${each.path}` })),
    { path: `usr/lib/systemd/system/${name}.service`, content: source(`deploy/${name}.service`), mode: 0o644 },
    { path: `usr/share/zsh/vendor-completions/_${name}`, content: completion('zsh'), mode: 0o644 },
    { path: `etc/default/${name}`, content: defaults(), mode: 0o644, isConfiguration: true },
    { path: `${doc}/copyright`, content: source('packaging/debian/copyright'), mode: 0o644 },
    { path: `${doc}/THIRD-PARTY-NOTICES.gz`, content: gzip(thirdPartyNotices(build.components)), mode: 0o644 },
    {
      path: `${doc}/changelog.gz`,
      content: gzip(debianChangelog(changes, { name, version: debianVersion, maintainer: MAINTAINER, epoch })),
      mode: 0o644,
    },
  ];
  const description = {
    version: debianVersion,
    architecture,
    maintainer: MAINTAINER,
    control: source('packaging/debian/control'),
    scripts: Object.fromEntries(
      ['postinst', 'prerm', 'postrm'].map((script) => [script, source(`packaging/debian/${script}`)]),
    ),
    files,
  };
  await writeDebianPackage(join(out, file), description, epoch);
  return file;
}

/** To be unpacked in /usr/local, by an administrator or by the Dockerfile. */
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
  return source(`packaging/debian/${name}.default`);
}

function billOfMaterials({ executable, components }: Build, { epoch }: Release): string {
  return sbom(ROOT, { name, sha256: sha256(executable), epoch }, components);
}

/**
 * When what is packaged was made, in seconds since 1970: the last commit, so that its time says nothing of this build.
 */
function sourceDateEpoch(): number {
  const text = process.env['SOURCE_DATE_EPOCH'] ?? lastCommit();
  const seconds = Number(text);
  if (text.trim() === '' || !Number.isInteger(seconds) || seconds < 0) {
    throw new Error(`SOURCE_DATE_EPOCH is ${JSON.stringify(text)}; give it as seconds since 1970`);
  }
  return seconds;
}

function lastCommit(): string {
  const { status, stdout, stderr } = spawnSync('git', ['log', '-1', '--format=%ct'], { cwd: ROOT, encoding: 'utf8' });
  if (status === 0) return stdout;
  throw new Error(`git does not tell when the last commit was made; give SOURCE_DATE_EPOCH (${stderr?.trim()})`);
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
