import { UsageError } from '../../../config/usage-error.ts';
import { duration } from '../../../config/values.ts';
import { endpointName } from '../../../model/endpoint.ts';
import { parseArguments, type SubcommandArguments } from '../arguments.ts';
import { askOne } from '../ask-one.ts';
import { controlSocketOf } from '../control-options.ts';
import { parseEndpoint } from '../endpoint-argument.ts';
import { oneColumnEach } from '../format/text.ts';
import type { RunSubcommand } from '../subcommand.ts';
import { DRAIN } from '../subcommands.ts';
import { type Holder, holdersOf } from './holders.ts';
import { connections, waitForConnections } from './wait.ts';

/** An endpoint may belong to very many Services; which ones is told of so many. */
const NAMED = 10;

export const drain: RunSubcommand = async (argv, terminal, tools) => {
  const given = parseArguments(DRAIN, argv);
  const endpoint = parseEndpoint(given.positional ?? '');
  const timeoutMs = timeoutOf(given);
  const control = tools.connect(controlSocketOf(given));
  const holders = await holdersOf(control, endpoint);
  await askOne(control, 'drain', { endpoint });
  const interrupted = new AbortController();
  // Before the user is told: who interrupts from then on hears that it stays drained.
  const restore = tools.onInterrupt(() => interrupted.abort());
  try {
    terminal.out(`${endpointName(endpoint)} is drained on this node: ${oneColumnEach(heldBy(holders))}.\n`);
    for (const warning of holders.flatMap(warningsOf)) terminal.err(`Warning: ${oneColumnEach(warning)}.\n`);
    if (timeoutMs === undefined) return 0;
    return await waitForConnections({
      ...{ control, endpoint, holders, timeoutMs, terminal },
      clock: tools.clock,
      interrupted: interrupted.signal,
    });
  } finally {
    restore();
  }
};

function timeoutOf({ values }: SubcommandArguments): number | undefined {
  const text = values.get('timeout');
  try {
    return text === undefined ? undefined : duration(text);
  } catch (error) {
    throw error instanceof UsageError ? new UsageError(`--timeout ${JSON.stringify(text)}: ${error.message}`) : error;
  }
}

function heldBy(holders: readonly Holder[]): string {
  if (holders.length === 0) return 'no Service has it now, and none that gets it will use it';
  const named = holders
    .slice(0, NAMED)
    .map((holder) => (holder.connections ? `${holder.name} (${connections(holder.connections)})` : holder.name));
  const others = holders.length - named.length;
  return `no new connections from ${named.join(', ')}${others > 0 ? ` and ${others} others` : ''}`;
}

function warningsOf({ name, onlyOneFor }: Holder): string[] {
  return onlyOneFor.map((set) =>
    set === 'own'
      ? `${name} has no other endpoint, so its clients are turned away`
      : `${name} has no other endpoint on this node, so clients that the policy Local keeps here are turned away`,
  );
}
