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
  const packageVersion = version.replace('-', '~');
  return `${changes.replaceAll(RELATIVE_LINK, '$1 (`$2`)')}

## Files

| file | for |
| --- | --- |
| \`${name}_${version}_ARCHITECTURE.deb\` | Debian and Ubuntu: \`apt install ./${name}_${version}_amd64.deb\` |
| \`${name}-${packageVersion}-1.MACHINE.rpm\` | RHEL, SUSE and their kin: \`dnf install ./${name}-${packageVersion}-1.x86_64.rpm\` |
| \`${name}_${version}_linux_ARCHITECTURE.tar.gz\` | other systems with glibc 2.28 or later: \`tar -C /usr/local --no-same-owner -xzf ${name}_${version}_linux_amd64.tar.gz\` |
| \`${name}_${version}_oci.tar\` | an image for both architectures: \`skopeo copy --all oci-archive:${name}_${version}_oci.tar docker://REGISTRY/${name}:${version}\` |
| \`${name}-chart-${version}.tgz\` | the Helm chart: \`helm install ${name} ./${name}-chart-${version}.tgz --namespace kube-system\` |
| \`${name}_${version}_ARCHITECTURE.cdx.json\` | what is in the executable, as CycloneDX; the image holds a list of its own |
| \`${name}_${version}_provenance.json\` | which sources and packages all of this was made of, as SLSA has it |
| \`SHA256SUMS\`, \`SHA256SUMS.sig\` | checksums of the files above, signed; \`docs/verify-a-release.md\` has the commands |

ARCHITECTURE is \`amd64\` or \`arm64\`, MACHINE \`x86_64\` or \`aarch64\`.
`;
}
