import { COMMANDS } from '../../src/app/subcommands.ts';
import { parse } from '../../src/cli/parser.ts';
import { ACCEPTED_FLAGS, FIELDS_WITHOUT_FLAG } from '../../src/config/accepted.ts';
import { isFlagFirst } from '../../src/config/configure.ts';
import { FLAGS } from '../../src/config/flags.ts';
import type { AcceptedSetting, Flag, Setting } from '../../src/config/setting.ts';
import type { Blocks } from './blocks.ts';
import { code, table, words } from './table.ts';

/** What `--help` prints, and tables of all settings. Both come from the table that the program works with. */
export function flagTables(): Blocks {
  const flags = Object.entries<Flag<unknown>>(FLAGS);
  const accepted = Object.entries<AcceptedSetting<unknown>>(ACCEPTED_FLAGS);
  const fields = Object.entries<AcceptedSetting<unknown>>(FIELDS_WITHOUT_FLAG);
  return {
    help: `\`\`\`\n${parse(['--help'], COMMANDS).output?.trimEnd()}\n\`\`\``,
    flags: table(
      ['flag', 'default', 'field', 'meaning'],
      flags.map(([name, flag]) => [
        nameOf(name),
        flag.fallbackText ?? fallbackOf(flag),
        fieldOf(flag),
        words(flag.describe),
      ]),
    ),
    'accepted-flags': table(
      ['flag', 'default', 'field', 'belongs to'],
      [
        ...accepted.map(([name, setting]) => [nameOf(name), fallbackOf(setting), fieldOf(setting), setting.of]),
        ...fields.map(([, setting]) => ['', fallbackOf(setting), fieldOf(setting), setting.of]),
      ],
    ),
  };
}

function nameOf(name: string): string {
  return code(name === 'v' ? '-v' : `--${name}`);
}

function fallbackOf({ fallback: [text = ''] }: Setting<unknown>): string {
  return code(text);
}

function fieldOf({ field }: Setting<unknown>): string {
  return field === undefined ? '' : `${code(field)}${isFlagFirst(field) ? ' (the flag wins)' : ''}`;
}
