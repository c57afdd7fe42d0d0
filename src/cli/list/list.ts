import { UsageError } from '../../config/usage-error.ts';
import { isProblem, type ServiceFilter, type ServiceView } from '../../model/view.ts';
import type { Control } from '../../operate/control/protocol.ts';
import { READ_TIMEOUT_MS } from '../../operate/control/protocol.ts';
import type { Clock } from '../../util/clock.ts';
import { sleep } from '../../util/wait.ts';
import { command, type Terminal } from '../command.ts';
import { capitalized } from '../format.ts';
import { noMatch } from '../near.ts';
import { askOne, CONTROL_SOCKET, problemsOf, warnOfCaveats } from '../shared.ts';
import { isNarrowed, isSelected, type Selection, selectionOf } from './selection.ts';
import { jsonPrinter, type Printer, tablePrinter } from './table.ts';
import { watchServices } from './watch.ts';

export const LIST = command({
  name: 'list',
  summary: 'list the Services that are served, with their endpoints and connections, in the layout of ipvsadm',
  argument: '[NAMESPACE[/SERVICE[:PORT]]]',
  completes: ['namespaces', 'services'],
  options: {
    stats: {
      type: 'boolean',
      conflicts: ['rate', 'connection'],
      describe:
        'show connections and bytes since each Service, or endpoint, came, and how long connecting took in the last ' +
        'minutes (median and 99th percentile)',
    },
    rate: {
      type: 'boolean',
      conflicts: 'connection',
      describe: 'show connections and bytes per second, over the last 5 seconds, of Services only',
    },
    connection: { alias: 'c', type: 'boolean', describe: 'list open connections and flows' },
    watch: {
      alias: 'w',
      type: 'boolean',
      conflicts: ['stats', 'connection'],
      describe: 'show open connections and rates of Services every 2 seconds, on a terminal in place, until Ctrl-C',
    },
    problems: {
      type: 'boolean',
      conflicts: 'connection',
      describe: 'only Services that are not ok, and what is wrong with files',
    },
    sort: {
      nargs: 1,
      choices: ['rate', 'connections', 'failures', 'name'],
      implies: 'watch',
      describe: 'what comes first with --watch, behind Services that are not ok unless it is the name; by default rate',
    },
    exact: { type: 'boolean', describe: 'show large numbers in full, not rounded down to K, M, G or T' },
    numeric: {
      alias: 'n',
      type: 'boolean',
      describe: 'has no effect: addresses and ports are always numbers; for those used to ipvsadm',
    },
    output: {
      alias: 'o',
      nargs: 1,
      choices: ['table', 'wide', 'json'],
      describe: 'wide adds states, local ports, workers, and what is wrong; json has everything',
    },
    namespace: { alias: 'N', type: 'string', nargs: 1, describe: 'only Services of this namespace' },
    service: { type: 'string', nargs: 1, describe: 'only Services of this name' },
    ...CONTROL_SOCKET,
  },
  examples: [
    ['list', 'all Services and their endpoints'],
    ['list kube-system/kube-dns:dns-tcp -o wide', 'one port, with states'],
    ['list --stats -N default', 'what the Services of a namespace have carried'],
    ['list --watch', 'the Services with the most new connections first, live'],
    ['list -c default/web', 'the open connections of a Service'],
    ['list --problems -o wide', 'the Services that are not ok, and why'],
  ],
  // Prints each piece as it comes, so that only a few of very many Services are in memory.
  run: async (given, terminal, tools) => {
    const selection = selectionOf(given);
    const { output } = given;
    const control = tools.connect(given['control-socket']);
    const [isExact, isWide] = [given.exact === true, output === 'wide'];
    const isWanted = wanted(selection, given.problems);
    if (given.watch) {
      if (output === 'json') throw new UsageError('--watch is for readers: for machines give -o json alone');
      return await watchServices(
        { control, isWanted, selection, order: given.sort ?? 'rate', isExact, isWide, hasProblems: given.problems },
        terminal,
        tools,
      );
    }
    const listed = given.connection ? 'connections' : 'services';
    const layout = given.stats ? 'stats' : given.rate ? 'rate' : undefined;
    const node = await askOne(control, 'node', {});
    const printer =
      output === 'json'
        ? jsonPrinter(node, listed)
        : tablePrinter(node, listed, { layout, isExact, isWide, now: node.now });
    const listing = new Listing(printer.head, terminal, tools.clock);
    const summary = layout === 'rate' && output !== 'json';
    const rows =
      listed === 'connections'
        ? connectionRows(control, selection, printer)
        : serviceRows(control, { ...selection.filter, ...(summary && { summary }) }, isWanted, printer);
    for await (const { text, count } of rows) await listing.print(text, count);
    const isMissing = listing.rows === 0 && isExpected(selection, given);
    // Nothing stands above the answer that nothing is there, but a document is whole.
    if (!isMissing || output === 'json') listing.end(printer.foot);
    warnOfCaveats(node, terminal);
    // On stderr, as they are no Services.
    if (given.problems) for (const problem of problemsOf(node)) terminal.err(`${problem}\n`);
    return isMissing ? await sayMissing(selection, control, terminal) : 0;
  },
});

interface Rows {
  readonly text: string;
  readonly count: number;
}

async function* connectionRows(control: Control, selection: Selection, printer: Printer): AsyncGenerator<Rows> {
  for await (const piece of control.ask('connections', selection.filter)) {
    const chosen = piece.filter(({ name, virtual }) => isSelected(selection, { name, port: virtual.port }));
    yield { text: printer.connections(chosen), count: chosen.length };
  }
}

async function* serviceRows(
  control: Control,
  filter: ServiceFilter,
  isWanted: (service: ServiceView) => boolean,
  printer: Printer,
): AsyncGenerator<Rows> {
  for await (const piece of control.ask('services', filter)) {
    const chosen = piece.filter(isWanted);
    yield { text: printer.services(chosen), count: chosen.length };
  }
}

function wanted(selection: Selection, problems = false): (service: ServiceView) => boolean {
  return (service) => isSelected(selection, service) && (!problems || isProblem(service));
}

/** That nothing is listed is an answer for connections and problems. */
function isExpected(
  selection: Selection,
  { connection, problems }: { readonly connection?: boolean | undefined; readonly problems?: boolean | undefined },
): boolean {
  return connection !== true && problems !== true && isNarrowed(selection);
}

async function sayMissing(selection: Selection, control: Control, { err }: Pick<Terminal, 'err'>): Promise<number> {
  err(`${capitalized(await noMatch(selection, control))}\n`);
  return 1;
}

/** What is printed piece by piece, under a head that comes with the first. */
class Listing {
  rows = 0;
  #head: string;
  readonly #terminal: Terminal;
  readonly #paced: () => Promise<void>;

  constructor(head: string, terminal: Terminal, clock: Clock) {
    this.#head = head;
    this.#terminal = terminal;
    this.#paced = pace(terminal, clock);
  }

  async print(text: string, count: number): Promise<void> {
    this.rows += count;
    // A piece of idle Services may be empty.
    if (text === '') return;
    this.#terminal.out(this.#head + text);
    this.#head = '';
    await this.#paced();
  }

  end(foot: string): void {
    this.#terminal.out(this.#head + foot);
  }
}

/** For the whole list. Well below the time that the proxy waits for its reader. */
export const PATIENCE_MS = READ_TIMEOUT_MS / 3;

/**
 * Each call waits until the reader has taken all output, so that little of a list is in memory. A person with a pager
 * takes minutes. After {@link PATIENCE_MS} in total, calls no longer wait: a list in memory is better than an
 * incomplete one.
 */
function pace({ flush }: Pick<Terminal, 'flush'>, clock: Clock): () => Promise<void> {
  let leftMs = PATIENCE_MS;
  return async () => {
    if (leftMs <= 0) return;
    const startedAt = clock.now();
    const taken = new AbortController();
    await Promise.race([flush().then(() => taken.abort()), sleep(leftMs, clock, taken.signal)]);
    leftMs -= clock.now() - startedAt;
  };
}
