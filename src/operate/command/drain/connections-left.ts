import type { Endpoint } from '../../../model/endpoint.ts';
import { partsOf, type ServicePortName } from '../../../model/service.ts';
import type { ServiceFilter } from '../../../model/view.ts';
import { messageOf } from '../../../util/text.ts';
import type { Control } from '../../control/protocol.ts';
import { type Holder, holdersOf, isSame } from './holders.ts';

/** While a successor takes over, nobody answers for a moment. */
const MAX_FAILURES = 10;
/** To look at every Service is less than to ask for so many of them one by one. */
const MANY_SERVICES = 50;

export interface Left {
  readonly open: number;
  /** Nothing gives the endpoint new connections any more. */
  readonly isInEffect: boolean;
  /** Every connection on the node was looked at: not to be done too often. */
  readonly isListed: boolean;
  /** Service ports that have gone and had connections to it: what becomes of these, the proxy tells nobody. */
  readonly gone: readonly ServicePortName[];
}

/**
 * Counts the connections to a drained endpoint anew at each call, which rejects with a sentence when it is drained no
 * longer.
 *
 * The counters of its Services are quickly asked. They count nothing for an endpoint that has left its Service, and begin
 * anew when it comes back; so when they come to nothing, the connections themselves are looked through.
 */
export function connectionsLeft(control: Control, endpoint: Endpoint, holders: readonly Holder[]): () => Promise<Left> {
  const filters = filtersFor(holders.map(({ name }) => name));
  /** Service ports that had connections to it when they were last seen. */
  const busy = new Set<ServicePortName>();
  const follow = (name: ServicePortName, connections = 0) =>
    connections > 0 ? void busy.add(name) : void busy.delete(name);

  const look = async (): Promise<Left> => {
    const counted: Holder[] = [];
    for (const filter of filters) counted.push(...(await holdersOf(control, endpoint, filter)));
    for (const { name, connections } of counted) follow(name, connections);
    const open = openOf(counted);
    const isInEffect = !counted.some(({ isActive }) => isActive);
    if (open > 0 || !isInEffect) return { open, isInEffect, isListed: false, gone: [] };
    const listed = await openConnections(control, endpoint);
    // Asked after the list: whatever is served now, was when it was listed.
    const served = await servedAmong(
      control,
      [...busy].filter((name) => !listed.has(name)),
    );
    for (const name of served) follow(name);
    for (const [name, connections] of listed) follow(name, connections);
    const gone = [...busy].filter((name) => !listed.has(name));
    return { open: sum(listed.values()), isInEffect, isListed: true, gone };
  };

  for (const { name, connections } of holders) follow(name, connections);
  let last: Left = { open: openOf(holders), isInEffect: false, isListed: false, gone: [] };
  let wasDrained = false;
  let failures = 0;
  return async () => {
    try {
      last = await look();
      failures = 0;
    } catch (error) {
      failures++;
      if (failures > MAX_FAILURES) throw new Error(`cannot say whether connections are left: ${messageOf(error)}`);
    }
    if (!last.isInEffect && wasDrained) {
      throw new Error('it is drained no longer: somebody gave it back, or the proxy was started anew');
    }
    wasDrained ||= last.isInEffect;
    return last;
  };
}

/**
 * How many open connections and flows to an endpoint each Service port has, whether or not it has the endpoint still.
 * Of the connections that go through here nothing but their number is kept.
 */
async function openConnections(control: Control, endpoint: Endpoint): Promise<ReadonlyMap<ServicePortName, number>> {
  const open = new Map<ServicePortName, number>();
  for await (const connections of control.ask('connections', {})) {
    for (const { name, endpoint: to } of connections) {
      if (to !== undefined && isSame(to, endpoint)) open.set(name, (open.get(name) ?? 0) + 1);
    }
  }
  return open;
}

/** Which of these Service ports there are. */
async function servedAmong(control: Control, names: readonly ServicePortName[]): Promise<readonly ServicePortName[]> {
  const served = new Set<ServicePortName>();
  for (const filter of filtersFor(names)) {
    for await (const services of control.ask('services', { ...filter, summary: true })) {
      for (const { name } of services) served.add(name);
    }
  }
  return names.filter((name) => served.has(name));
}

/** What to ask for to hear of these Service ports, and perhaps of others. */
function filtersFor(names: readonly ServicePortName[]): readonly ServiceFilter[] {
  const filters = new Map(
    names.map((name) => {
      const { namespace, service } = partsOf(name);
      return [`${namespace}/${service}`, { namespace, service }];
    }),
  );
  return filters.size > MANY_SERVICES ? [{}] : [...filters.values()];
}

/** What nobody counts is looked for in the list. */
function openOf(holders: readonly Holder[]): number {
  return sum(holders.map(({ connections = 0 }) => connections));
}

function sum(numbers: Iterable<number>): number {
  let total = 0;
  for (const each of numbers) total += each;
  return total;
}
