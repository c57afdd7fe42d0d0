import { readFileSync } from 'node:fs';

const ROOT = new URL('../../', import.meta.url);

/** Commands of a document that a reader pastes, or a file. */
export interface Commands {
  /** That of the section. */
  readonly heading: string;
  /** What stands behind the language where the block begins: on which machine, or in which case. */
  readonly where: string;
  readonly script: string;
}

/** The blocks of a document in one language, by default of shell commands, in order. */
export function commandsOf(document: string, language = 'sh'): Commands[] {
  const commands: Commands[] = [];
  let heading = '';
  let block: { where: string | undefined; lines: string[] } | undefined;
  for (const line of readFileSync(new URL(document, ROOT), 'utf8').split('\n')) {
    const fence = /^```(\w*) ?(.*)$/.exec(line);
    if (block === undefined && fence !== null) {
      block = { where: fence[1] === language ? fence[2]! : undefined, lines: [] };
    } else if (block !== undefined && line === '```') {
      const { where, lines } = block;
      if (where !== undefined) commands.push({ heading, where, script: lines.join('\n') });
      block = undefined;
    } else if (block !== undefined) block.lines.push(line);
    else heading = /^#+ (.*)$/.exec(line)?.[1] ?? heading;
  }
  return commands;
}
