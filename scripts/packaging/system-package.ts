import type { StagedFile } from './stage.ts';

/** A file of a package; `path` from the root of the machine that it is installed on. */
export interface PackagedFile extends StagedFile {
  /** Changes of an administrator survive upgrades. */
  readonly isConfiguration?: true;
}

/** What a package for a system's own package manager consists of. */
export interface SystemPackage {
  readonly name: string;
  /** `1.0.0~rc.1`, which comes before 1.0.0 to dpkg and to rpm. */
  readonly version: string;
  /** As Debian calls it: `amd64`. */
  readonly architecture: string;
  readonly maintainer: string;
  /** The section of CHANGELOG.md. */
  readonly changes: string;
  /** Of the shell. Both package managers run the same, and tell them by arguments what happens. */
  readonly scripts: {
    readonly afterInstall: string;
    readonly beforeRemove: string;
    readonly afterRemove: string;
  };
  readonly files: readonly PackagedFile[];
}
