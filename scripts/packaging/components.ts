import { globSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Platform } from './platforms.ts';

/** Something of others that is in the executable: a package of npm. */
export interface Component {
  readonly name: string;
  readonly version: string;
  /** An SPDX identifier or expression. */
  readonly license: string;
  /** What its authors want to be passed on; empty where nothing says so. */
  readonly notices: readonly string[];
}

/** Of an executable for the platform, from the folders of the bundled packages; sorted by name and version. */
export function componentsOf(root: string, bundled: Iterable<string>, platform: Platform): Component[] {
  const components = new Map<string, Component>();
  for (const folder of [...[...bundled].map((folder) => join(root, folder)), ...embedded(root, platform)]) {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    components.set(`${name}@${version}`, { name, version, license, notices: noticesOf(root, folder, license) });
  }
  return [...components].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, component]) => component);
}

/**
 * Node, and koffi's addon without the code around it. The license of the addon is in the package that it belongs to.
 */
function embedded(root: string, platform: Platform): string[] {
  const { cpu } = platform;
  return [
    join(platform.root, `node_modules/node-linux-${cpu}`),
    join(platform.root, `node_modules/@koromix/koffi-linux-${cpu}`),
    join(root, 'node_modules/koffi'),
  ];
}

/** As SPDX calls that of the file LICENSE. */
const OUR_LICENSE = 'Apache-2.0';

/** Some packages have no such file: then heads of their sources count, and the license that they name. */
function noticesOf(root: string, folder: string, license: string): string[] {
  const files = noticesIn(folder);
  if (files.length > 0 || !license.includes(OUR_LICENSE)) return files;
  return [...headsIn(folder), readFileSync(join(root, 'LICENSE'), 'utf8').trim()];
}

/** The comments with a copyright that the sources begin with, each once. */
function headsIn(folder: string): string[] {
  const heads = globSync('dist/esm/**/*.js', { cwd: folder }).flatMap((file) => {
    const [head = ''] = /^(\/\/.*\n)+/.exec(readFileSync(join(folder, file), 'utf8')) ?? [];
    return head.includes('Copyright') ? head.replaceAll(/^\/\/ ?/gm, '').trim() : [];
  });
  return [...new Set(heads)].sort();
}

function noticesIn(folder: string): string[] {
  return readdirSync(folder)
    .filter((file) => /^(un)?licen[cs]e|^notice|^copying/i.test(file))
    .sort()
    .map((file) => readFileSync(join(folder, file), 'utf8').replaceAll('\r\n', '\n').trim());
}

export function thirdPartyNotices(components: readonly Component[]): string {
  return components
    .map(({ name, version, license, notices }) =>
      [`${'='.repeat(80)}\n${name} ${version} (${license})\n`, ...notices, ''].join('\n'),
    )
    .join('\n');
}
