import { UsageError } from '../../../config/usage-error.ts';
import type { Control } from '../../control/protocol.ts';
import { parseArguments, type SubcommandArguments } from '../arguments.ts';
import { warnOfCaveats } from '../caveats.ts';
import { controlSocketOf } from '../control-options.ts';
import { nodeOf } from '../node-of.ts';
import type { RunSubcommand } from '../subcommand.ts';
import { pace } from './pace.ts';
import { jsonPrinter, type Printer, tablePrinter } from './printer.ts';
import { isNarrowed, isSelected, NO_MATCH, type Selection, selectionOf } from './selection.ts';
import { LIST } from './subcommand.ts';
import type { TableOptions } from './table.ts';
import { ORDER_NAMES, type Order, watchServices } from './watch.ts';

/** Prints each piece as it comes: however many Services there are, only some are in memory while somebody reads. */
export const list: RunSubcommand = async (argv, terminal, tools) => {
  const { clock, connect } = tools;
  const given = parseArguments(LIST, argv);
  const selection = selectionOf(given);
  const layout = layoutOf(given);
  const listed = layout === 'connection' ? 'connections' : 'services';
  const output = given.values.get('output');
  const control = connect(controlSocketOf(given));
  const order = orderOf(given);
  const isExact = given.switches.has('exact');
  const isWide = output === 'wide';
  if (order !== undefined) return await watchServices({ control, selection, order, isExact, isWide }, terminal, tools);
  const node = await nodeOf(control);
  const options: TableOptions = {
    layout: layout === 'connection' ? undefined : layout,
    isExact,
    isWide,
    now: node.now,
  };
  const printer = output === 'json' ? jsonPrinter(node, listed) : tablePrinter(node, listed, options);
  terminal.out(printer.head);
  const paced = pace(terminal, clock);
  let rows = 0;
  const isSummary = layout === 'rate' && output !== 'json';
  const pieces =
    listed === 'connections'
      ? connectionPieces(control, selection, printer)
      : servicePieces(control, selection, printer, isSummary);
  for await (const piece of pieces) {
    terminal.out(piece.text);
    // Of thousands of idle Services in turn there is nothing to say.
    if (piece.text !== '') await paced();
    rows += piece.rows;
  }
  terminal.out(printer.foot);
  warnOfCaveats(node, terminal);
  if (rows > 0 || listed === 'connections' || !isNarrowed(selection)) return 0;
  terminal.err(`${NO_MATCH}\n`);
  return 1;
};

function layoutOf({ switches }: SubcommandArguments): 'stats' | 'rate' | 'connection' | undefined {
  const [layout, other] = (['stats', 'rate', 'connection'] as const).filter((name) => switches.has(name));
  if (other !== undefined) throw new UsageError(`--${layout} and --${other} are different tables: give one of them`);
  return layout;
}

/** `undefined` when nothing is to be watched. */
function orderOf({ switches, values }: SubcommandArguments): Order | undefined {
  const order = values.get('sort');
  if (!switches.has('watch')) {
    if (order !== undefined) throw new UsageError('--sort is for --watch: the lists are sorted by name');
    return undefined;
  }
  for (const other of ['stats', 'connection']) {
    if (switches.has(other)) throw new UsageError(`--watch and --${other} are different tables: give one of them`);
  }
  if (values.get('output') === 'json') throw new UsageError('--watch is for readers: for machines give -o json alone');
  return ORDER_NAMES.find((name) => name === order) ?? 'rate';
}

interface Piece {
  readonly text: string;
  readonly rows: number;
}

async function* servicePieces(
  control: Control,
  selection: Selection,
  printer: Printer,
  summary: boolean,
): AsyncIterable<Piece> {
  for await (const piece of control.ask('services', { ...selection.filter, ...(summary && { summary }) })) {
    const chosen = piece.filter((service) => isSelected(selection, service));
    yield { text: printer.services(chosen), rows: chosen.length };
  }
}

async function* connectionPieces(control: Control, selection: Selection, printer: Printer): AsyncIterable<Piece> {
  for await (const piece of control.ask('connections', selection.filter)) {
    const chosen = piece.filter(({ name, virtual }) => isSelected(selection, { name, port: virtual.port }));
    yield { text: printer.connections(chosen), rows: chosen.length };
  }
}
