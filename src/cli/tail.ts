import { type LogLine, lineText } from '../operate/connection-log/line.ts';
import { sleep } from '../util/wait.ts';
import { ControlError, RefusedError } from './client.ts';
import { command, type Terminal, type Tools } from './command.ts';
import { ENTRY_HEADER, entryText } from './entry-text.ts';
import { oneColumnEach } from './format.ts';
import { selectionOf } from './list/selection.ts';
import { CONTROL_SOCKET, textOrJson, untilInterrupted } from './shared.ts';

/** How long a proxy may be away: longer than an upgrade or a restart takes. */
const AWAY_MS = 30_000;
const RETRY_MS = 500;

export const TAIL = command({
  name: 'tail',
  summary:
    'show each connection and flow when it ends: client, endpoint, who ended it, bytes, failed tries; until Ctrl-C',
  argument: '[NAMESPACE[/SERVICE[:PORT]]]',
  completes: ['namespaces', 'services'],
  options: {
    ...textOrJson('text, or json: the lines of --connection-log'),
    ...CONTROL_SOCKET,
  },
  examples: [
    ['tail default/web', 'the connections of a Service, as they end'],
    ['tail -o json | jq -c \'select(.end | startswith("refused"))\'', 'the clients that got no endpoint'],
  ],
  run: async (given, terminal, tools) => {
    const { filter, port } = selectionOf(given);
    const control = tools.connect(given['control-socket']);
    const printer = new Printer(terminal, given.output === 'json');
    const ask = () => control.ask('tail', { ...filter, ...(port !== undefined && { port }) });
    return await untilInterrupted(tools, (signal) => follow(ask, printer, signal, tools));
  },
});

type Ask = () => AsyncIterable<readonly LogLine[]>;

/** Asks again when the proxy is away, for it may be upgrading. Rejects when it stays away, or refuses. */
async function follow(
  ask: Ask,
  printer: Printer,
  signal: AbortSignal,
  { clock }: Pick<Tools, 'clock'>,
): Promise<number> {
  for (let lastMs = clock.now(); !signal.aborted; ) {
    printer.begin();
    try {
      for await (const piece of ask()) {
        await printer.print(piece);
        lastMs = clock.now();
      }
      throw new ControlError('the proxy ended the answer, which has no end');
    } catch (error) {
      const isAway = error instanceof ControlError && !(error instanceof RefusedError);
      if (!printer.hasBegun || !isAway || clock.now() - lastMs > AWAY_MS) throw error;
      printer.interrupted(error.message);
    }
    await sleep(RETRY_MS, clock, signal);
  }
  return 0;
}

class Printer {
  readonly #terminal: Terminal;
  readonly #isJson: boolean;
  /** Something has been printed, by this connection or an earlier one. */
  hasBegun = false;
  #isNew = true;

  constructor(terminal: Terminal, isJson: boolean) {
    this.#terminal = terminal;
    this.#isJson = isJson;
  }

  /** Of one connection to the proxy. */
  begin(): void {
    this.#isNew = true;
  }

  /**
   * Resolves when the reader has taken it. While the reader pauses nothing more is taken from the proxy, which then
   * drops and counts.
   */
  async print(lines: readonly LogLine[]): Promise<void> {
    const { out, flush } = this.#terminal;
    if (this.#isNew) this.#head();
    if (lines.length > 0) out(lines.map(this.#isJson ? lineText : textLine).join(''));
    await flush();
  }

  interrupted(why: string): void {
    // Once, and not for each attempt.
    if (!this.#isNew) this.#terminal.err(`${oneColumnEach(why)}; trying again for ${AWAY_MS / 1_000} s.\n`);
  }

  #head(): void {
    const { out, err } = this.#terminal;
    if (this.hasBegun) err('Following the proxy again; connections that ended meanwhile are missing.\n');
    else if (!this.#isJson) out(`${ENTRY_HEADER}\n`);
    [this.hasBegun, this.#isNew] = [true, false];
  }
}

function textLine(line: LogLine): string {
  return 'missing' in line ? missingText(line.missing) : `${entryText(line)}\n`;
}

function missingText(count: number): string {
  const what = count === 1 ? '1 connection is' : `${count} connections are`;
  return `-- ${what} missing here: they ended faster than they could be passed on or read --\n`;
}
