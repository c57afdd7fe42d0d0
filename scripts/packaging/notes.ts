export interface Release {
  readonly name: string;
  readonly version: string;
  /** Its section of CHANGELOG.md. */
  readonly changes: string;
}

/** Leads nowhere from that page: `[text](docs/x.md)`. */
const RELATIVE_LINK = /\[([^\]]+)\]\((?!\w+:)([^)]+)\)/g;

/** The text for the page of a release: what it brings, and which of its files is for whom. */
export function releaseNotes({ name, version, changes }: Release): string {
  return `${changes.replaceAll(RELATIVE_LINK, '$1 (`$2`)')}

## Files

| file | for |
| --- | --- |
| \`${name}_${version}_ARCHITECTURE.deb\` | Debian and Ubuntu: \`apt install ./${name}_${version}_amd64.deb\` |
| \`${name}_${version}_linux_ARCHITECTURE.tar.gz\` | other systems with glibc 2.28 or later and iptables: \`tar -C /usr/local --no-same-owner -xzf ${name}_${version}_linux_amd64.tar.gz\` |
| \`Dockerfile\` | an image; download both tarballs beside it: \`docker build --tag ${name}:${version} .\` |
| \`${name}_${version}_ARCHITECTURE.cdx.json\` | what is in the executable, as CycloneDX |
| \`SHA256SUMS\` | \`sha256sum --check --ignore-missing SHA256SUMS\` |

ARCHITECTURE is \`amd64\` or \`arm64\`.
`;
}
