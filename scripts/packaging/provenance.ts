import type { ArchivedPackage } from './archive.ts';

export interface Provenance {
  readonly version: string;
  readonly architectures: readonly string[];
  /** By name, their SHA-256 in hexadecimal. */
  readonly subjects: ReadonlyMap<string, string>;
  /** Of Git, in hexadecimal. */
  readonly commit: string;
  /** The text of package-lock.json. */
  readonly lockfile: string;
  /** What the image has of Debian. */
  readonly packages: readonly ArchivedPackage[];
}

/** What of npm's lockfile is read here. */
interface Lockfile {
  readonly packages: Readonly<
    Record<string, { readonly version?: string; readonly integrity?: string; readonly dev?: boolean }>
  >;
}

/**
 * What the files were made of, and how: a statement of in-toto (v1) with the predicate "provenance" of SLSA (v1). It
 * has no time and no name of a machine, so whoever builds the commit gets the same bytes.
 */
export function provenance(made: Provenance): string {
  const { version, architectures, subjects, commit, packages } = made;
  const statement = {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [...subjects].map(([name, sha256]) => ({ name, digest: { sha256 } })),
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        // A name, not a place: it stands for what scripts/release of this commit does.
        buildType: 'https://kube-userspace-proxy.example/scripts/release/v1',
        externalParameters: { version, architectures },
        resolvedDependencies: [
          { name: 'sources', digest: { gitCommit: commit } },
          ...npmPackages(made.lockfile),
          ...packages.map(({ path, sha256 }) => ({ uri: `http://deb.debian.org/debian/${path}`, digest: { sha256 } })),
        ],
      },
      runDetails: { builder: { id: 'https://kube-userspace-proxy.example/maintainers' } },
    },
  };
  return `${JSON.stringify(statement, undefined, 2)}\n`;
}

/** Those that a build fetches, tools included; npm holds what it fetches against the same checksums. */
function npmPackages(lockfile: string) {
  const { packages } = JSON.parse(lockfile) as Lockfile;
  return Object.entries(packages).flatMap(([path, { version, integrity }]) => {
    const sha512 = /^sha512-(.+)$/.exec(integrity ?? '')?.[1];
    if (path === '' || sha512 === undefined) return [];
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
    const uri = `pkg:npm/${name.replace('@', '%40')}@${version}`;
    return [{ uri, digest: { sha512: Buffer.from(sha512, 'base64').toString('hex') } }];
  });
}
