import { basename } from 'node:path';
import type { ArchivedPackage } from './archive.ts';
import type { Component } from './components.ts';
import { npm } from './npm.ts';

export interface Executable {
  readonly name: string;
  /** In hexadecimal. */
  readonly sha256: string;
  /** When it was made, in seconds since 1970, UTC. */
  readonly epoch: number;
}

/** What of npm's document is read here. */
interface Description {
  readonly metadata: { readonly component: Item };
  readonly components: readonly Item[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

interface Item {
  /** `koffi@3.3.4` */
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version: string;
}

/**
 * What differs from run to run, or between releases of npm; so that the same build gives the same bytes. And the scope,
 * which is that of an installation: there, what is for one platform is optional.
 */
const LEFT_OUT = ['serialNumber', 'timestamp', 'tools', 'lifecycles', 'properties', 'externalReferences', 'scope'];

/** What is in the executable, as CycloneDX in JSON: npm's document about the sources in `root`, cut down to that. */
export function sbom(
  root: string,
  { name, sha256, epoch }: Executable,
  inExecutable: readonly Pick<Component, 'name' | 'version'>[],
): string {
  const { metadata, components, dependencies, ...head } = describeSources(root);
  const { component: sources } = metadata;
  const references = new Set([sources['bom-ref'], ...inExecutable.map(({ name, version }) => `${name}@${version}`)]);
  // npm calls it by its folder, and thinks that it is in the registry.
  const executable = {
    ...sources,
    type: 'application',
    name,
    purl: undefined,
    hashes: [{ alg: 'SHA-256', content: sha256 }],
  };
  const document = {
    ...head,
    metadata: { timestamp: new Date(epoch * 1000).toISOString(), component: executable },
    components: components
      .filter((component) => references.has(component['bom-ref']))
      .map((component) => (isNode(component) ? node(component) : component)),
    dependencies: dependencies
      .filter(({ ref }) => references.has(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((needed) => references.has(needed)) })),
  };
  return `${JSON.stringify(document, undefined, 2)}\n`;
}

/** Whatever npm it is, the bytes are the same. */
function describeSources(root: string): Description {
  const flags = ['--package-lock-only', '--omit=dev', '--sbom-format=cyclonedx', '--sbom-type=library', '--offline'];
  return JSON.parse(npm(['sbom', ...flags], root), (key, value) => (LEFT_OUT.includes(key) ? undefined : value));
}

/** The package by which npm brings Node, which becomes the better part of the executable. */
export function isNode({ name }: Pick<Component, 'name'>): boolean {
  return name.startsWith('node-linux-');
}

/** As what scanners know it, not as the package that brings it. */
function node(component: Item) {
  const { version } = component;
  return {
    ...component,
    type: 'platform',
    name: 'node',
    purl: `pkg:generic/node@${version}`,
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
  };
}

/** What is in an image: what is in its executable, and these packages. */
export function imageSbom(ofExecutable: string, packages: readonly ArchivedPackage[]): string {
  const document = JSON.parse(ofExecutable) as Description;
  const system = packages.map(({ architecture, sha256, path }) => {
    const [name = '', encoded = ''] = basename(path, '.deb').split('_');
    const version = decodeURIComponent(encoded);
    return {
      type: 'library',
      'bom-ref': `${name}@${version}`,
      name,
      version,
      purl: `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${architecture}&distro=debian-12`,
      hashes: [{ alg: 'SHA-256', content: sha256 }],
    };
  });
  const components = [...document.components, ...system];
  return `${JSON.stringify({ ...document, components }, undefined, 2)}\n`;
}
