import { copyFileSync, existsSync, mkdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { npm } from './npm.ts';

const ROOT = resolve(import.meta.dirname, '../..');

/** A kind of machine that there are packages for. */
export interface Platform {
  /** As Debian and images call it: `amd64`. */
  readonly architecture: string;
  /** As Node and npm call it: `x64`. */
  readonly cpu: string;
  /** Packages that are made for this kind of machine are below `node_modules` in here. */
  readonly root: string;
}

const CPUS: Readonly<Record<string, string>> = { amd64: 'x64', arm64: 'arm64' };

export const ARCHITECTURES: readonly string[] = Object.keys(CPUS);

/** The machine that this runs on. */
export const OWN_PLATFORM: Platform = {
  architecture: ARCHITECTURES.find((each) => CPUS[each] === process.arch) ?? process.arch,
  cpu: process.arch,
  root: ROOT,
};

/** Another platform's packages are fetched first, unless those of today's lockfile are there. */
export function platformOf(architecture: string): Platform {
  const cpu = CPUS[architecture];
  if (cpu === undefined)
    throw new Error(`no packages are made for ${architecture}, only for ${ARCHITECTURES.join(', ')}`);
  if (cpu === OWN_PLATFORM.cpu) return OWN_PLATFORM;
  const platform = { architecture, cpu, root: join(ROOT, 'node_modules/.cache', `linux-${architecture}`) };
  fetchPackages(platform);
  return platform;
}

/** Node for that platform, as npm brings it (docs/adr/0003). */
export function nodeOf({ cpu, root }: Platform): string {
  return join(root, `node_modules/node-linux-${cpu}/bin/node`);
}

/** The addon for glibc, for which Node is built, too. */
export function addonOf({ cpu, root }: Platform): string {
  return join(root, `node_modules/@koromix/koffi-linux-${cpu}/linux_${cpu}/koffi.node`);
}

/** From the lockfile, which npm holds what it fetches against; as scripts/setup does for this machine. */
function fetchPackages(platform: Platform): void {
  const { cpu, root } = platform;
  const lockfile = join(ROOT, 'package-lock.json');
  // npm writes this last.
  const installed = join(root, 'node_modules/.package-lock.json');
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lockfile).mtimeMs) return;
  mkdirSync(root, { recursive: true });
  for (const file of ['package.json', 'package-lock.json']) copyFileSync(join(ROOT, file), join(root, file));
  npm(['ci', '--ignore-scripts', '--omit=dev', '--os=linux', `--cpu=${cpu}`, '--libc=glibc'], root);
  for (const file of [nodeOf(platform), addonOf(platform)]) {
    if (!existsSync(file)) throw new Error(`npm did not bring ${file}; is it an optional dependency in package.json?`);
  }
}
