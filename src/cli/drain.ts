import { duration } from '../config/values.ts';
import { type Endpoint, endpointName } from '../model/endpoint.ts';
import { partsOf, type ServicePortName } from '../model/service.ts';
import type { EndpointUser, EndpointUsers } from '../operate/control/endpoint-users.ts';
import type { Control } from '../operate/control/protocol.ts';
import type { Clock } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import { counted, messageOf } from '../util/text.ts';
import { sleep } from '../util/wait.ts';
import { command, type Terminal } from './command.ts';
import { oneColumnEach } from './format.ts';
import { endpointsOf } from './near.ts';
import { askOne, CONTROL_SOCKET, servicesOf, typed } from './shared.ts';

/** An endpoint may belong to very many Services. At most this many are named. */
const NAMED = 10;
const POLL_MS = 1_000;
/** Where the proxy has to look through all connections of the node. */
const LIST_POLL_MS = 5_000;
/** While a successor takes over, no process answers for a moment. */
const MAX_FAILURES = 10;
/** The exit code of a shell for a process that SIGINT ended. */
const INTERRUPTED = 130;

export const DRAIN = command({
  name: 'drain',
  summary: 'give an endpoint no new connections on this node, in no Service; those that it has go on',
  argument: 'IP[:PORT]|NAMESPACE/SERVICE[:PORT]',
  completes: ['endpoints', 'services'],
  options: {
    timeout: {
      type: 'string',
      nargs: 1,
      describe: 'wait until its connections have ended, but no longer than this, such as 30s or 5m; 0 is no bound',
    },
    force: { type: 'boolean', describe: 'also an endpoint that no Service has now, before one gets it' },
    ...CONTROL_SOCKET,
  },
  examples: [
    ['drain 10.244.1.7:8080', 'takes the endpoint out, until undrain or a restart of the proxy'],
    ['drain [fd00::7]:8080 --timeout 5m', 'and waits; exits with 1 if connections are left after five minutes'],
    ['drain 10.244.1.7', 'a pod, at all ports at which Services have it'],
    ['drain default/web', 'all endpoints of a Service'],
  ],
  run: async ({ argument, timeout, force, 'control-socket': socket }, terminal, { clock, connect, onInterrupt }) => {
    const timeoutMs = timeout === undefined ? undefined : typed(timeout, duration, '--timeout ');
    const control = connect(socket);
    const endpoints = await endpointsOf(argument, control, force);
    const interrupted = new AbortController();
    const { signal } = interrupted;
    let restore = () => {};
    try {
      for (const endpoint of endpoints) {
        const { users } = await askOne(control, 'drain', { endpoint, ...(force && { forced: true }) });
        // Before the user reads it: an interrupt from then on says that the endpoint stays drained.
        restore();
        restore = onInterrupt(() => interrupted.abort());
        terminal.out(`${endpointName(endpoint)} is drained on this node: ${oneColumnEach(heldBy(users))}.\n`);
        for (const warning of users.flatMap(warningsOf)) terminal.err(`Warning: ${oneColumnEach(warning)}.\n`);
      }
      if (timeoutMs === undefined) return 0;
      const startedAt = clock.now();
      let code = 0;
      for (const endpoint of endpoints) {
        const left = new ConnectionsLeft(endpoint, control);
        const patience = { name: endpointName(endpoint), timeoutMs, startedAt, clock, signal };
        code = Math.max(code, await waitUntilOver(left, patience, terminal));
      }
      return code;
    } finally {
      restore();
    }
  },
});

export const UNDRAIN = command({
  name: 'undrain',
  summary: 'give a drained endpoint new connections again',
  argument: 'IP[:PORT]|NAMESPACE/SERVICE[:PORT]',
  completes: ['endpoints', 'services'],
  options: CONTROL_SOCKET,
  run: async (given, terminal, { connect }) => {
    const control = connect(given['control-socket']);
    for (const endpoint of await endpointsOf(given.argument, control)) {
      const name = endpointName(endpoint);
      const { wasDrained } = await askOne(control, 'undrain', { endpoint });
      terminal.out(wasDrained ? `${name} gets new connections again.\n` : `${name} was not drained.\n`);
    }
    return 0;
  },
});

function heldBy(users: readonly EndpointUser[]): string {
  if (users.length === 0) return 'no Service has it now, and none that gets it will use it';
  const named = users
    .slice(0, NAMED)
    .map(({ name, connections }) => (connections > 0 ? `${name} (${counted(connections, 'connection')})` : name));
  return `no new connections from ${named.join(', ')}${andOthers(users.length - named.length)}`;
}

function warningsOf({ name, onlyOneFor }: EndpointUser): string[] {
  return onlyOneFor.map((set) =>
    set === 'own'
      ? `${name} has no other endpoint that answers, so its clients are refused`
      : `${name} has no other endpoint on this node that answers, so clients that the policy Local keeps here are refused`,
  );
}

interface Patience {
  /** The name of the endpoint. */
  readonly name: string;
  /** 0: without a bound. */
  readonly timeoutMs: number;
  /** When the wait began, of all endpoints. */
  readonly startedAt: number;
  readonly clock: Clock;
  /** Aborted when the operator presses Ctrl-C. */
  readonly signal: AbortSignal;
}

/** Resolves with the exit code. */
async function waitUntilOver(
  left: ConnectionsLeft,
  { name, timeoutMs, startedAt, clock, signal }: Patience,
  { out, err, isTTY }: Terminal,
): Promise<number> {
  for (let clear = ''; ; clear = isTTY ? '\r\u001b[K' : '') {
    const { open, isOver, isListed } = await left.count().finally(() => out(clear));
    const elapsedMs = clock.now() - startedAt;
    const remainingMs = timeoutMs === 0 ? Number.POSITIVE_INFINITY : timeoutMs - elapsedMs;
    if (isOver) {
      out(`All connections to ${name} have ended.\n`);
      return 0;
    }
    if (signal.aborted || remainingMs <= 0) {
      const why =
        open === 0 ? 'Not all Services have taken it out yet' : `${counted(open, 'connection')} to ${name} still open`;
      err(`${why}; it stays drained, until undrain.\n`);
      return signal.aborted ? INTERRUPTED : 1;
    }
    const soFar = formatDuration(Math.round(elapsedMs / 1_000) * 1_000);
    if (isTTY) out(`Waiting for ${counted(open, 'connection')} to end, ${soFar} so far`);
    await sleep(Math.min(isListed ? LIST_POLL_MS : POLL_MS, remainingMs), clock, signal);
  }
}

/** Counts the connections to a drained endpoint. */
class ConnectionsLeft {
  readonly #endpoint: Endpoint;
  readonly #control: Control;
  /** Service ports that had connections when they were last seen. */
  readonly #busy = new Set<ServicePortName>();
  #last: EndpointUsers = { users: [], isListed: false };
  #failures = 0;
  #wasInEffect = false;

  constructor(endpoint: Endpoint, control: Control) {
    this.#endpoint = endpoint;
    this.#control = control;
  }

  /** `isOver`: there are none, and no Service gives it new ones. Rejects with a sentence when that cannot be known. */
  async count(): Promise<{ readonly open: number; readonly isOver: boolean; readonly isListed: boolean }> {
    try {
      this.#last = await askOne(this.#control, 'endpoint', { endpoint: this.#endpoint });
      this.#failures = 0;
    } catch (error) {
      if (++this.#failures > MAX_FAILURES) throw unknown(messageOf(error));
    }
    const { users, isListed } = this.#last;
    for (const { name, connections } of users) connections > 0 ? this.#busy.add(name) : this.#busy.delete(name);
    const isInEffect = !users.some(({ isActive }) => isActive);
    if (this.#wasInEffect && !isInEffect) {
      throw new Error('it is no longer drained: it was undrained, or the proxy was restarted');
    }
    const isKnown = this.#failures === 0;
    this.#wasInEffect ||= isInEffect && isKnown;
    const open = users.reduce((sum, { connections }) => sum + connections, 0);
    const isOver = open === 0 && isInEffect && isKnown;
    if (isOver) await this.#requireServed();
    return { open, isOver, isListed };
  }

  /** Throws when a Service with connections was removed: the proxy does not count those any more. */
  async #requireServed(): Promise<void> {
    const removed = new Set(this.#busy);
    for (const each of this.#busy) {
      const { namespace, service } = partsOf(each);
      for await (const { name } of servicesOf(this.#control, { namespace, service, summary: true }))
        removed.delete(name);
    }
    const [first, ...others] = removed;
    if (first === undefined) return;
    const had = `${first}${andOthers(others.length)} had some, and connections of a removed Service are not counted`;
    throw unknown(`${had}; ${endpointName(this.#endpoint)} stays drained`);
  }
}

function unknown(why: string): Error {
  return new Error(`cannot say whether connections are left: ${why}`);
}

function andOthers(count: number): string {
  return count > 0 ? ` and ${count} others` : '';
}
