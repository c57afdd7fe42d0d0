/** Texts in Markdown by the name of their block. */
export type Blocks = Readonly<Record<string, string>>;

const BLOCK = /^<!-- begin (?<name>[\w-]+), written by scripts\/docs -->\n(?:.*\n)*?<!-- end \k<name> -->$/gm;

/**
 * The document with these texts in its blocks, each between two comments that no reader sees; what is written by hand
 * around them stays. Throws when the document does not have each of these blocks once, and no other.
 */
export function withBlocks(document: string, blocks: Blocks): string {
  const names = [...document.matchAll(BLOCK)].map(({ groups }) => groups?.['name'] ?? '');
  const wanted = Object.keys(blocks);
  if (names.toSorted().join() !== wanted.toSorted().join()) {
    throw new Error(
      `the blocks "${names.join('", "')}" are there, not "${wanted.join('", "')}"; each belongs between "${begin('NAME')}" and "${end('NAME')}"`,
    );
  }
  return document.replaceAll(BLOCK, (_, name: string) => [begin(name), blocks[name], end(name)].join('\n\n'));
}

function begin(name: string): string {
  return `<!-- begin ${name}, written by scripts/docs -->`;
}

function end(name: string): string {
  return `<!-- end ${name} -->`;
}
