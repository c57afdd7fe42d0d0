import { PROGRAM } from '../../config/version.ts';
import { wrapped } from './format/wrap.ts';
import type { Subcommand, SubcommandOption } from './subcommand.ts';

/** As that of the program. */
const WIDTH = 100;
const GAP = 2;

/** What `kube-userspace-proxy NAME --help` shows. */
export function subcommandHelp({ name, summary, positional, options, examples = [] }: Subcommand): string {
  const usage = ['Usage:', PROGRAM, name, '[options]', ...(positional === undefined ? [] : [positional])].join(' ');
  const rows = [
    ...options.map((option): Row => [left(option), right(option)]),
    ['  -h, --help', 'show this help'] as const,
  ];
  const shown = examples.map(([command, what]): Row => [`  ${PROGRAM} ${command}`, what]);
  return [
    usage,
    wrapped(`${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`, WIDTH).join('\n'),
    `Options:\n${columns(rows)}`,
    ...(shown.length === 0
      ? []
      : [`Examples:\n${shown.map(([command, what]) => `${command}\n      ${what}`).join('\n')}`]),
  ].join('\n\n');
}

type Row = readonly [left: string, right: string];

function left({ name, alias, value }: SubcommandOption): string {
  return `  ${alias === undefined ? '   ' : `-${alias},`} --${name}${value === undefined ? '' : ` ${value.placeholder}`}`;
}

function right({ describe, value }: SubcommandOption): string {
  return value?.choices === undefined ? describe : `${describe} (${value.choices.join(', ')})`;
}

/** Rows of two columns, the second one wrapped so that no line is longer than {@link WIDTH}. */
function columns(rows: readonly Row[]): string {
  const indent = Math.max(...rows.map(([left]) => left.length)) + GAP;
  return rows
    .map(([left, right]) => left.padEnd(indent) + wrapped(right, WIDTH - indent).join(`\n${' '.repeat(indent)}`))
    .join('\n');
}
