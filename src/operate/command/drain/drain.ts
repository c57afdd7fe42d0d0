import { UsageError } from '../../../config/usage-error.ts';
import { duration } from '../../../config/values.ts';
import { endpointName } from '../../../model/endpoint.ts';
import { askOne } from '../ask-one.ts';
import { command } from '../command.ts';
import { CONTROL_SOCKET } from '../control-options.ts';
import { parseEndpoint } from '../endpoint-argument.ts';
import { oneColumnEach } from '../format/text.ts';
import { type Holder, holdersOf } from './holders.ts';
import { connections, waitForConnections } from './wait.ts';

/** An endpoint may belong to very many Services; which ones is told of so many. */
const NAMED = 10;

export const DRAIN = command({
  name: 'drain',
  summary: 'give an endpoint no new connections on this node, in no Service; those that it has go on',
  argument: 'IP:PORT',
  options: {
    timeout: {
      type: 'string',
      nargs: 1,
      describe: 'wait until its connections have ended, but no longer than this, such as 30s or 5m; 0 is no bound',
    },
    ...CONTROL_SOCKET,
  },
  examples: [
    ['drain 10.244.1.7:8080', 'takes the endpoint out, until undrain or until the proxy is started anew'],
    ['drain [fd00::7]:8080 --timeout 5m', 'and waits; exits with 1 if connections are left after five minutes'],
  ],
  run: async (given, terminal, tools) => {
    const endpoint = parseEndpoint(given.argument);
    const timeoutMs = timeoutOf(given.timeout);
    const control = tools.connect(given['control-socket']);
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
  },
});

function timeoutOf(text: string | undefined): number | undefined {
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
