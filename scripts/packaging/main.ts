/*
 * Lays out what a release consists of, from the executable that scripts/build has written. `--out DIR` says where to.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import packageJson from '../../package.json' with { type: 'json' };
import { COMMANDS } from '../../src/app/subcommands.ts';
import { bundle } from '../build.ts';
import { componentsOf, thirdPartyNotices } from './components.ts';
import { type PackagedFile, writeDebianPackage } from './debian.ts';
import { manual } from './manual.ts';
import { sbom } from './sbom.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const MAINTAINER = 'The authors of kube-userspace-proxy <maintainers@kube-userspace-proxy.example>';
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };

const { name } = packageJson;
/** `0.2.0-rc.1` comes before `0.2.0`, to Debian, too. */
const version = packageJson.version.replace('-', '~');
const architecture = ARCHITECTURES[process.arch] ?? process.arch;
const epoch = sourceDateEpoch();

const { values } = parseArgs({ options: { out: { type: 'string', default: join(ROOT, 'dist') } } });
const out = resolve(values.out);
mkdirSync(out, { recursive: true });

const executable = readFileSync(join(ROOT, 'dist', name));
const addon = readFileSync(join(ROOT, 'dist/koffi.node'));
const components = componentsOf(ROOT, (await bundle()).packages);
const notices = thirdPartyNotices(components);

const files = [debianPackage(), billOfMaterials(), layOutImage()];
writeFileSync(
  join(out, 'SHA256SUMS'),
  files.map((file) => `${sha256(readFileSync(join(out, file)))}  ${file}\n`).join(''),
);
process.stdout.write([...files, 'SHA256SUMS'].map((file) => `${join(out, file)}\n`).join(''));

function debianPackage(): string {
  const doc = `usr/share/doc/${name}`;
  const files: PackagedFile[] = [
    { path: `usr/sbin/${name}`, content: executable, mode: 0o755 },
    { path: `usr/lib/${name}/koffi.node`, content: addon, mode: 0o644 },
    { path: `usr/lib/systemd/system/${name}.service`, content: source(`deploy/${name}.service`), mode: 0o644 },
    {
      path: `etc/default/${name}`,
      content: source(`packaging/debian/${name}.default`),
      mode: 0o644,
      isConfiguration: true,
    },
    { path: `usr/share/man/man8/${name}.8.gz`, content: gzip(manual(COMMANDS, { version, epoch })), mode: 0o644 },
    { path: `usr/share/bash-completion/completions/${name}`, content: completion('bash'), mode: 0o644 },
    { path: `usr/share/zsh/vendor-completions/_${name}`, content: completion('zsh'), mode: 0o644 },
    { path: `usr/share/fish/vendor_completions.d/${name}.fish`, content: completion('fish'), mode: 0o644 },
    { path: `${doc}/copyright`, content: source('packaging/debian/copyright'), mode: 0o644 },
    { path: `${doc}/THIRD-PARTY-NOTICES.gz`, content: gzip(notices), mode: 0o644 },
    { path: `${doc}/changelog.gz`, content: gzip(changelog()), mode: 0o644 },
  ];
  return writeDebianPackage(
    {
      name,
      version,
      architecture,
      maintainer: MAINTAINER,
      control: source('packaging/debian/control'),
      scripts: Object.fromEntries(
        ['postinst', 'prerm', 'postrm'].map((script) => [script, source(`packaging/debian/${script}`)]),
      ),
      files,
    },
    { folder: out, epoch },
  );
}

/** The script that the program prints for a shell. */
function completion(shell: string): Buffer {
  return execFileSync(join(ROOT, 'dist', name), ['completion'], { env: { SHELL: shell } });
}

function billOfMaterials(): string {
  const file = `${name}_${version}_${architecture}.cdx.json`;
  writeFileSync(join(out, file), sbom(ROOT, { name, sha256: sha256(executable), epoch }, components));
  return file;
}

/** What the Dockerfile is built from: itself, the executable, and what its licenses ask for. Gives the executable. */
function layOutImage(): string {
  const folder = join(out, 'image');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const write = (file: string, content: string | Buffer, mode = 0o644) => {
    writeFileSync(join(folder, file), content);
    chmodSync(join(folder, file), mode);
  };
  write('Dockerfile', source('Dockerfile').replaceAll('@VERSION@', packageJson.version));
  write('LICENSE', source('LICENSE'));
  write('THIRD-PARTY-NOTICES', notices);
  write(name, executable, 0o755);
  write('koffi.node', addon);
  return `image/${name}`;
}

function changelog(): string {
  const date = new Date(epoch * 1000).toUTCString().replace('GMT', '+0000');
  return `${name} (${version}) unstable; urgency=medium\n\n  * Built from the sources of this version.\n\n -- ${MAINTAINER}  ${date}\n`;
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
  process.stderr.write(`package: git does not tell when the last commit was made; give SOURCE_DATE_EPOCH\n${stderr}`);
  process.exit(1);
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
