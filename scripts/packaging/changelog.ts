/** What CHANGELOG.md says of a version, without its heading. Throws an Error when it does not. */
export function sectionOf(changelog: string, version: string): string {
  const sections = changelog.split(/^## /m).slice(1);
  const section = sections.find((each) => each.split(/\s/, 1)[0] === version);
  const text = section?.slice(section.indexOf('\n')).trim();
  if (text) return text;
  throw new Error(`CHANGELOG.md does not say what ${version} brings; begin a section with "## ${version}"`);
}

export interface DebianEntry {
  readonly name: string;
  readonly version: string;
  readonly maintainer: string;
  /** In seconds since 1970, UTC. */
  readonly epoch: number;
}

/** The section as the entry of a Debian changelog. */
export function debianChangelog(section: string, { name, version, maintainer, epoch }: DebianEntry): string {
  const date = new Date(epoch * 1000).toUTCString().replace('GMT', '+0000');
  // What is not indented begins another entry there.
  const text = section.replaceAll(/^(?=.)/gm, '  ');
  return `${name} (${version}) unstable; urgency=medium\n\n${text}\n\n -- ${maintainer}  ${date}\n`;
}
