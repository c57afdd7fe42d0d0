import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { parseAddress } from '../../../src/model/address.ts';
import type {
  Backends,
  Counters,
  DataPlane,
  DataPlaneObserver,
  DataPlaneOptions,
} from '../../../src/model/data-plane.ts';
import { type Endpoint, type NamedEndpoint, namedEndpoint, withoutName } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import type { ProxiedProtocol } from '../../../src/model/service-port.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';

/** Makes the engine under test. The suite shuts it down. */
export type EngineFactory = (setup: {
  readonly options: DataPlaneOptions;
  readonly observer: DataPlaneObserver;
  /** In place of this process's. */
  readonly descriptorLimit?: number | undefined;
}) => DataPlane | Promise<DataPlane>;

/** An engine for one test, with these options in place of harmless ones. */
export type RigFactory = (
  t: TestContext,
  options?: Partial<DataPlaneOptions>,
  descriptorLimit?: number,
) => Promise<Rig>;

export const CONNECTION_MARK = 0x2000;

/** No test waits for one of these: a test of a limit sets it. */
export const OPTIONS: DataPlaneOptions = {
  endpointDrainTimeoutMs: 0,
  tcpHalfOpenTimeoutMs: 60_000,
  tcpUserTimeoutMs: 0,
  udpIdleTimeoutMs: 60_000,
  udpFirstReplyTimeoutMs: 60_000,
  udpMaxFlowsPerService: 1000,
  udpMaxFlows: 1000,
  affinityMaxClients: 1000,
  ejectAfter: 0,
  ejectTimeMs: 60_000,
  dialHedgeMs: 0,
  connectionMark: CONNECTION_MARK,
};

/** Adds every event as text: its name, and what an assertion needs of it. */
export function textObserver(events: string[]): DataPlaneObserver {
  return {
    clientRefused: ({ reason }) => events.push(`refused: ${reason}`),
    clientWaits: () => events.push('a client waits'),
    dialFailed: ({ backend, reason }) => events.push(`dial failed: ${backend} ${reason}`),
    ejected: ({ backend }) => events.push(`ejected: ${backend}`),
    readmitted: ({ backend }) => events.push(`readmitted: ${backend}`),
    limited: ({ limit }) => events.push(`limited: ${limit}`),
    listenerFailed: ({ err }) => events.push(`listener failed: ${err}`),
    clientsForgotten: () => events.push('clients forgotten'),
  };
}

type ObserverEvents = { [Name in keyof DataPlaneObserver]: Parameters<DataPlaneObserver[Name]>[0][] };

export function rigFactory(factory: EngineFactory): RigFactory {
  return async (t, options, descriptorLimit) => {
    const events: ObserverEvents = {
      clientRefused: [],
      clientWaits: [],
      dialFailed: [],
      ejected: [],
      readmitted: [],
      limited: [],
      listenerFailed: [],
      clientsForgotten: [],
    };
    const plane = await factory({
      options: { ...OPTIONS, ...options },
      descriptorLimit,
      observer: {
        clientRefused: (event) => events.clientRefused.push(event),
        clientWaits: (event) => events.clientWaits.push(event),
        dialFailed: (event) => events.dialFailed.push(event),
        ejected: (event) => events.ejected.push(event),
        readmitted: (event) => events.readmitted.push(event),
        limited: (event) => events.limited.push(event),
        listenerFailed: (event) => events.listenerFailed.push(event),
        clientsForgotten: (event) => events.clientsForgotten.push(event),
      },
    });
    t.after(() => plane.shutdown());
    return new Rig(plane, events);
  };
}

/** Of an engine that another one takes the place of now and then. */
interface Wandering {
  /** Resolves when what was called during a hand-over is done. */
  settled(): Promise<void>;
  /** Resolves when this one stays. */
  stay(): Promise<void>;
}

/** One engine, and the events that its observer got. */
export class Rig {
  readonly plane: DataPlane;
  readonly events: ObserverEvents;
  #lastNumber = 0;

  constructor(plane: DataPlane, events: ObserverEvents) {
    this.plane = plane;
    this.events = events;
  }

  /** Something takes the place of the engine now and then. */
  get dialsBeginAnew(): boolean {
    return 'dialsBeginAnew' in this.plane;
  }

  /** Holds for the next connection when it is awaited: an engine that is just leaving would let it in without. */
  async update(name: ServicePortName, change: Backends): Promise<void> {
    this.plane.update(name, change);
    await (this.plane as Partial<Wandering>).settled?.();
  }

  /** From now on nothing does. */
  async stay(): Promise<void> {
    await (this.plane as Partial<Wandering>).stay?.();
  }

  /** Opens a Service port of its own at the wildcard address. */
  async open(
    protocol: ProxiedProtocol,
    endpoints: readonly NamedEndpoint[],
    affinitySeconds?: number,
    namespace = 'test',
  ): Promise<{ readonly name: ServicePortName; readonly port: number }> {
    const name: ServicePortName = `${namespace}/service-${++this.#lastNumber}`;
    const spec = listenSpec({ name, protocol, address: '0.0.0.0', port: 0 });
    return { name, port: await this.plane.open(spec, backends(endpoints, affinitySeconds)) };
  }

  /** Waits for `count` events of one kind, because an engine with threads reports later; more are a failure. */
  async reported<Kind extends keyof ObserverEvents>(kind: Kind, count: number): Promise<ObserverEvents[Kind]> {
    await waitFor(`${count} times ${kind}`, () => this.events[kind].length >= count);
    assert.equal(this.events[kind].length, count, kind);
    return this.events[kind];
  }

  counters(name: ServicePortName): Readonly<Counters> {
    for (const stats of this.plane.stats()) if (stats.name === name) return stats.counters;
    throw new Error(`${name} is not open`);
  }
}

export function backends(endpoints: readonly NamedEndpoint[], affinitySeconds?: number): Backends {
  return {
    endpoints,
    affinity: affinitySeconds === undefined ? { type: 'None' } : { type: 'ClientIP', timeoutSeconds: affinitySeconds },
  };
}

export function endpointsOf(servers: readonly { readonly endpoint: NamedEndpoint }[]): readonly NamedEndpoint[] {
  return servers.map(({ endpoint }) => endpoint);
}

export function endpointAt(address: string, port: number): NamedEndpoint {
  const parsed = parseAddress(address);
  if (parsed === undefined) throw new TypeError(`${address} is not an address`);
  return namedEndpoint(parsed, port);
}

export function clientAt(address: string, port: number): Endpoint {
  return withoutName(endpointAt(address, port));
}

/** Silence long enough that whatever was on its way would have arrived. */
export const SETTLED_MS = 150;
