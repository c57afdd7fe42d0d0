import { familyOf } from '../../model/address.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { partsOf, type ServicePortName } from '../../model/service.ts';
import type { Operations, View } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { eachInSlices } from '../../util/wait.ts';
import type { ConnectionFeed } from '../connection-log/feed.ts';
import { entryLine, missingLine } from '../connection-log/line.ts';
import { Tail } from '../connection-log/tail.ts';
import { inPieces } from '../view/view.ts';
import { type EndpointUsers, endpointUsers } from './endpoint-users.ts';
import { type CommandName, type Commands, RequestError } from './protocol.ts';

/** Rows as JSON, in pieces between which other work may run. */
export type Rows = AsyncIterable<readonly string[]> | Iterable<readonly string[]>;

/** What the running program answers to each command. Rejects with {@link RequestError} when the operator is wrong. */
export type Answers = {
  readonly [C in CommandName]: (
    params: Commands[C]['params'],
    signal: AbortSignal,
  ) => Promise<Commands[C]['piece'] extends readonly unknown[] ? Rows : Commands[C]['piece']>;
};

interface AnswersOptions {
  readonly view: View;
  readonly operations: Operations;
  readonly feed: Pick<ConnectionFeed, 'subscribe' | 'dropped'>;
  readonly log: Log;
  readonly clock: Clock;
}

/** Each change by an operator is a line in the log. */
export function answersOf({ view, operations, feed, log, clock }: AnswersOptions): Answers {
  /** Throws where no Service has the endpoint, mostly a slip of the operator, when given what that means. */
  const usersOf = async (endpoint: Endpoint, unknown?: string): Promise<EndpointUsers> => {
    const found = await endpointUsers(endpoint, view, clock);
    if (found.users.length > 0 || unknown === undefined) return found;
    const name = endpointName(endpoint);
    throw new RequestError(`no Service that this node serves has the endpoint ${name}, ${unknown}`, 404);
  };
  const setWeight = (endpoint: Endpoint, weight: number | undefined) => {
    if (operations.setWeight(endpoint, weight)) return;
    throw new RequestError(
      'too many endpoints are drained or have a weight already; give back those that are gone with undrain or weight',
      409,
    );
  };
  /** Throws when there is no such Service. A number of a port stands for the ports that have it now. */
  const selection = async (wanted: Commands['tail']['params']): Promise<(name: ServicePortName) => boolean> => {
    const { namespace, service, port } = wanted;
    if (namespace === undefined && service === undefined) return () => true;
    const names = new Set<ServicePortName>();
    await eachInSlices(clock, view.services({ ...wanted, summary: true }), (each) => {
      if (port === undefined || each.portName === port || String(each.port) === port) names.add(each.name);
    });
    if (names.size === 0) {
      throw new RequestError(`no Service that this node serves matches ${described(wanted)}`, 404);
    }
    if (port !== undefined) return (name) => names.has(name);
    return (name) => {
      const parts = partsOf(name);
      return (namespace ?? parts.namespace) === parts.namespace && (service ?? parts.service) === parts.service;
    };
  };
  async function* tail(isSelected: (name: ServicePortName) => boolean, signal: AbortSignal) {
    const queue = new Tail({
      clock,
      isWanted: ({ name }) => isSelected(name),
      onDropped: (count) => feed.dropped('tail', count),
    });
    const unsubscribe = feed.subscribe(queue);
    try {
      for await (const { entries, missing } of queue.pieces(signal)) {
        const lines = entries.map(entryLine);
        if (missing > 0) lines.push(missingLine(missing, clock.wallNow()));
        // An empty line tells the reader that the proxy is there.
        yield lines.length > 0 ? lines : ['\n'];
      }
    } finally {
      unsubscribe();
    }
  }
  return {
    node: () => view.node(),
    services: async (filter) => inPieces(view.services(filter), clock, (service) => `${JSON.stringify(service)}\n`),
    connections: async (filter) => connectionRows(view, filter),
    tail: async (params, signal) => tail(await selection(params), signal),
    explain: async (question) => {
      const { address, client = address } = question;
      if (familyOf(client) === familyOf(address)) return await view.explain(question);
      throw new RequestError(`client is ${client}; expected the address family of ${address}`);
    },
    endpoint: ({ endpoint }) => usersOf(endpoint),
    drain: async ({ endpoint, forced }) => {
      const unknown =
        'so nothing is drained; list shows the endpoints, and forced=true (drain --force) drains it before a Service gets it';
      const before = await usersOf(endpoint, forced ? undefined : unknown);
      setWeight(endpoint, 0);
      log.info('An operator drained an endpoint; it gets no new connections', { backend: endpointName(endpoint) });
      return before;
    },
    undrain: async ({ endpoint }) => {
      const wasDrained = operations.undrain(endpoint);
      if (wasDrained) {
        log.info('An operator gave an endpoint back; it gets new connections', { backend: endpointName(endpoint) });
      }
      return { wasDrained };
    },
    weight: async ({ endpoint, weight }) => {
      const before = operations.weightOf(endpoint);
      if (before === undefined) await usersOf(endpoint, 'so it has no weight to set; list shows the endpoints');
      setWeight(endpoint, weight === 'default' ? undefined : weight);
      const backend = endpointName(endpoint);
      if (weight !== 'default') log.info('An operator set the weight of an endpoint', { backend, weight });
      else if (before !== undefined) log.info('An operator took back the weight of an endpoint', { backend });
      return before === undefined ? {} : { before };
    },
    'log-level': async ({ verbosity }) => {
      operations.setVerbosity(verbosity);
      log.info('An operator changed how much the log says', { verbosity });
      return {};
    },
  };
}

async function* connectionRows(view: View, filter: Commands['connections']['params']) {
  for await (const rows of view.connections(filter)) yield rows.map((row) => `${JSON.stringify(row)}\n`);
}

function described({ namespace = '*', service = '*', port }: Commands['tail']['params']): string {
  return `${namespace}/${service}${port === undefined ? '' : `:${port}`}: names must match exactly and are case-sensitive`;
}
