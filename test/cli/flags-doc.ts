import { ACCEPTED_FLAGS, FIELDS_WITHOUT_FLAG } from '../../src/cli/accepted.ts';
import { FLAGS } from '../../src/cli/flags.ts';
import type { AcceptedSetting, Flag, Setting } from '../../src/cli/setting.ts';

/** The tables of docs/flags.md, from the table that the program works with. */
export function flagTables(): string {
  const flags = Object.entries<Flag<unknown>>(FLAGS);
  const accepted = Object.entries<AcceptedSetting<unknown>>({ ...ACCEPTED_FLAGS, ...FIELDS_WITHOUT_FLAG });
  return [
    '## With an effect\n',
    '| flag | default | field | meaning |',
    '| --- | --- | --- | --- |',
    ...flags.map(([name, flag]) => row(nameOf(name), flag.fallbackText ?? code(flag), fieldOf(flag), flag.describe)),
    '\n## Accepted without one\n',
    '| flag | default | field | belongs to |',
    '| --- | --- | --- | --- |',
    ...accepted.map(([name, setting]) =>
      row(name in FIELDS_WITHOUT_FLAG ? '' : nameOf(name), code(setting), fieldOf(setting), setting.of),
    ),
  ].join('\n');
}

function row(...cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

function nameOf(name: string): string {
  return name === 'v' ? '`-v`' : `\`--${name}\``;
}

function code({ fallback: [text = ''] }: Setting<unknown>): string {
  return text === '' ? '' : `\`${text}\``;
}

function fieldOf({ field }: Setting<unknown>): string {
  if (field === undefined) return '';
  return `\`${field.path}\`${field.flagWins ? ' (the flag wins)' : ''}`;
}
