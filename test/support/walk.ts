import { readFileSync } from 'node:fs';

const ROOT = new URL('../../', import.meta.url);

/** Commands of a document that a reader pastes. */
export interface Commands {
  /** That of the section. */
  readonly heading: string;
  /** What stands behind `sh` where the block begins: on which machine, or in which case. */
  readonly where: string;
  readonly script: string;
}

/** The blocks of shell commands of a document (`sh`), in order. */
export function commandsOf(document: string): Commands[] {
  const commands: Commands[] = [];
  let heading = '';
  let block: { where: string | undefined; lines: string[] } | undefined;
  for (const line of readFileSync(new URL(document, ROOT), 'utf8').split('\n')) {
    const fence = /^```(?:sh ?)?(.*)$/.exec(line);
    if (block === undefined && fence !== null) {
      block = { where: line.startsWith('```sh') ? fence[1]! : undefined, lines: [] };
    } else if (block !== undefined && line === '```') {
      const { where, lines } = block;
      if (where !== undefined) commands.push({ heading, where, script: lines.join('\n') });
      block = undefined;
    } else if (block !== undefined) block.lines.push(line);
    else heading = /^#+ (.*)$/.exec(line)?.[1] ?? heading;
  }
  return commands;
}
