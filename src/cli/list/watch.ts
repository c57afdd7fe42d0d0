import { failuresOf } from '../../model/data-plane.ts';
import { type NodeView, SEVERITY, type ServiceView } from '../../model/view.ts';
import type { Control } from '../../operate/control/protocol.ts';
import type { Clock } from '../../util/clock.ts';
import { counted, messageOf } from '../../util/text.ts';
import { sleep } from '../../util/wait.ts';
import type { Terminal, Tools } from '../command.ts';
import { largeNumber, oneColumnEach, timeOfDay } from '../format.ts';
import { askOne, caveatsOf, problemsOf, servicesOf, untilInterrupted } from '../shared.ts';
import { isNarrowed, NO_MATCH, type Selection } from './selection.ts';

/** Rates are over five seconds, but open connections are counted each time. */
const INTERVAL_MS = 2_000;

const severity = ({ state }: ServiceView): number => SEVERITY[state];

/** The first value that differs decides. The proxy sends Services in the order of their names. */
const ORDERS = {
  rate: [
    severity,
    ({ rates }) => rates?.connections ?? 0,
    ({ rates }) => (rates ? rates.receivedBytes + rates.sentBytes : 0),
  ],
  connections: [severity, ({ counters }) => counters.active],
  failures: [severity, ({ rates }) => rates?.failures ?? 0, ({ counters }) => failuresOf(counters)],
  name: [],
} as const satisfies Record<string, readonly ((service: ServiceView) => number)[]>;

export type Order = keyof typeof ORDERS;

interface WatchOptions {
  readonly control: Control;
  readonly selection: Selection;
  readonly isWanted: (service: ServiceView) => boolean;
  readonly order: Order;
  /** Numbers in full. */
  readonly isExact: boolean;
  /** With states, and what is wrong. */
  readonly isWide: boolean;
  /** With what is wrong beside Services. */
  readonly hasProblems?: boolean | undefined;
}

/*
 * A line for each Service port, as in `list --rate`, without the columns of packets, which are not counted. The name
 * comes last, so that 80 columns have room for most of it.
 */

const COLUMNS = ['Active', 'CPS', 'InBPS', 'OutBPS', 'FailPS'];

interface Look {
  readonly node: NodeView;
  readonly services: readonly ServiceView[];
}

/**
 * Shows the rates of Services again and again until Ctrl-C, and resolves with 0 then. Rejects when the first look
 * fails; later ones are tried again, since the proxy may be restarting.
 */
export async function watchServices(
  options: WatchOptions,
  terminal: Terminal,
  tools: Pick<Tools, 'clock' | 'onInterrupt'>,
): Promise<number> {
  return await untilInterrupted(tools, (signal) => showUntil(signal, options, terminal, tools.clock));
}

async function showUntil(
  signal: AbortSignal,
  options: WatchOptions,
  terminal: Terminal,
  clock: Clock,
): Promise<number> {
  const show = terminal.isTTY ? redrawn(terminal) : printedAnew(terminal);
  let look = await lookAt(options);
  let problem: string | undefined;
  for (;;) {
    const table = { lines: tableOf(look, options), count: HEADER_LINES + look.services.length };
    show(table, notesOn(look, options, problem));
    await terminal.flush();
    await sleep(INTERVAL_MS, clock, signal);
    if (signal.aborted) return 0;
    try {
      look = await lookAt(options);
      problem = undefined;
    } catch (error) {
      problem = `${messageOf(error)}; retrying`;
    }
  }
}

async function lookAt({ control, selection, isWanted, order }: WatchOptions): Promise<Look> {
  const node = await askOne(control, 'node', {});
  const services: ServiceView[] = [];
  for await (const service of servicesOf(control, { ...selection.filter, summary: true })) {
    if (isWanted(service)) services.push(service);
  }
  return { node, services: services.sort((a, b) => compare(a, b, ORDERS[order])) };
}

function compare(a: ServiceView, b: ServiceView, [first, ...others]: readonly ((of: ServiceView) => number)[]): number {
  if (first === undefined) return 0;
  return first(b) - first(a) || compare(a, b, others);
}

/** Above the Services. */
const HEADER_LINES = 2;

/** Makes only the lines that are taken: a screen shows few of ten thousand Services. */
function* tableOf({ node, services }: Look, { isExact, isWide, order }: WatchOptions): Generator<string> {
  const { version, nodeName } = node;
  const what = `${counted(services.length, 'Service')} by ${order} at ${timeOfDay(node.now)}`;
  yield oneColumnEach(`Kube userspace proxy version ${version} (node=${nodeName}), ${what}`);
  const header = COLUMNS.map((title) => ` ${title.padStart(8)}`).join('');
  yield `Prot ${header} ${isWide ? wide('Service', 'State', 'Reason') : 'Service'}`;
  for (const { protocol, family, name, counters, rates, state, reason = '' } of services) {
    const numbers = [counters.active, rates?.connections, rates?.receivedBytes, rates?.sentBytes, rates?.failures];
    const head = `${protocol}${family === 'IPv6' ? '6' : ' '} `;
    const cells = numbers.map((value) => largeNumber(value, isExact)).join('');
    yield oneColumnEach(
      `${head}${cells} ${isWide ? wide(name, state, reason) : state === 'ok' ? name : `${name} (${state})`}`,
    );
  }
}

function wide(name: string, state: string, reason: string): string {
  return `${name.padEnd(40)} ${state.padEnd(8)} ${reason}`.trimEnd();
}

function notesOn(
  { node, services }: Look,
  { selection, hasProblems = false }: WatchOptions,
  problem: string | undefined,
): string[] {
  const caveats = caveatsOf(node).map((caveat) => `Warning: ${caveat}.`);
  const isEmpty = services.length === 0 && isNarrowed(selection);
  const notes = [...caveats, ...(isEmpty ? [NO_MATCH] : []), ...(problem === undefined ? [] : [problem])];
  return [...notes.map(oneColumnEach), ...(hasProblems ? problemsOf(node) : [])];
}

interface Table {
  readonly lines: Iterable<string>;
  /** How many there are. */
  readonly count: number;
}

type Show = (table: Table, notes: readonly string[]) => void;

/** Each table below the one before; notes go to stderr. */
function printedAnew({ out, err }: Terminal): Show {
  return (table, notes) => {
    out(`${[...table.lines, ''].join('\n')}\n`);
    for (const note of notes) err(`${note}\n`);
  };
}

/** One table in its place, as much of it as the screen has room for. */
function redrawn({ out, size }: Terminal): Show {
  let before = { columns: 0, rows: 0, lines: 0 };
  return (table, notes) => {
    const { columns, rows } = size();
    // The cursor is in the last line.
    const all = Math.max(2, rows - 1);
    const noted = firstOf({ lines: notes, count: notes.length }, Math.floor(all / 2), '');
    const lines = [...firstOf(table, all - noted.length, '; Ctrl-C ends'), ...noted];
    const isSameSize = before.columns === columns && before.rows === rows;
    // After a change of size, the place of the old table is unknown, so the screen is cleared.
    const place = before.lines === 0 ? '' : isSameSize ? `\u001b[${before.lines}A\r\u001b[J` : '\u001b[H\u001b[2J';
    out(place + lines.map((line) => `${line.slice(0, columns)}\n`).join(''));
    before = { columns, rows, lines: lines.length };
  };
}

function firstOf({ lines, count }: Table, room: number, advice: string): string[] {
  const first: string[] = [];
  for (const line of lines) if (first.push(line) === room) break;
  if (count > room) first[room - 1] = `… ${count - room + 1} more${advice}`;
  return first;
}
