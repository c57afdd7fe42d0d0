import type { Clock } from '../../contracts/clock.ts';
import type {
  EndpointView,
  HistorySample,
  ListenerView,
  NodeView,
  ServiceState,
  ServiceView,
} from '../../contracts/view.ts';
import type { Control } from '../../control/protocol.ts';
import { endpointName } from '../../model/endpoint.ts';
import type { ServicePortName } from '../../model/service.ts';
import { nodeOf } from '../node-of.ts';
import { RateMeter, type Rates } from './rates.ts';

/** What the running program said at one moment, with the rates since the moment before. */
export interface Look {
  readonly node: NodeView;
  readonly history: readonly HistorySample[];
  /** In the order of their names. */
  readonly services: readonly ServiceRow[];
  /** The one that was asked for; `undefined` when it is not served any more. */
  readonly opened: OpenedService | undefined;
}

/** Whose endpoints are wanted. */
export interface OpenKey {
  /** Tells a Service port within an address family from all others, at every look. */
  readonly key: string;
  readonly namespace: string;
  readonly service: string;
}

/** What is shown of a {@link ServiceView}, and no more: there may be ten thousand. */
export interface ServiceRow extends OpenKey {
  readonly name: ServicePortName;
  readonly family: ServiceView['family'];
  readonly protocol: ServiceView['protocol'];
  /** The first cluster IP, with the port; `-` without one. */
  readonly address: string;
  readonly state: ServiceState;
  readonly reason: string | undefined;
  /** Of the endpoint set that has most, for one endpoint may be in both. */
  readonly endpoints: ListenerView['endpointCount'];
  readonly active: number;
  readonly connections: number;
  /** How long a dial that was answered took, on average. */
  readonly dialMs: number;
  readonly rates: Rates;
}

export interface OpenedService {
  readonly key: string;
  readonly service: ServiceView;
  readonly endpoints: readonly EndpointRow[];
}

export interface EndpointRow {
  readonly key: string;
  readonly endpoint: EndpointView;
  readonly set: ListenerView['set'];
  /** Missing where the engine does not count them. */
  readonly rates: Rates | undefined;
}

/** Asks the running program again and again. One look at a time. */
export class Looker {
  readonly #control: Control;
  readonly #clock: Clock;
  readonly #serviceMeter = new RateMeter();
  #endpointMeter = new RateMeter();
  /** What the endpoints belong to that were counted last. */
  #counted: string | undefined;

  constructor(control: Control, clock: Clock) {
    this.#control = control;
    this.#clock = clock;
  }

  /** Rejects with a sentence for the user. */
  async look(open: OpenKey | undefined): Promise<Look> {
    const node = await nodeOf(this.#control);
    const history: HistorySample[] = [];
    for await (const piece of this.#control.ask('history', {})) history.push(...piece);
    const services: ServiceRow[] = [];
    for await (const piece of this.#control.ask('services', { summary: true })) {
      const now = this.#clock.now();
      for (const view of piece) services.push(serviceRow(view, this.#serviceMeter, now));
    }
    this.#serviceMeter.done();
    return { node, history, services, opened: open && (await this.open(open)) };
  }

  /** `undefined` when it is not served any more. Rejects like {@link look}. */
  async open({ namespace, service, key }: OpenKey): Promise<OpenedService | undefined> {
    let view: ServiceView | undefined;
    for await (const piece of this.#control.ask('services', { namespace, service })) {
      view ??= piece.find((each) => keyOf(each) === key);
    }
    if (view === undefined) return undefined;
    if (this.#counted !== key) this.#endpointMeter = new RateMeter();
    this.#counted = key;
    const meter = this.#endpointMeter;
    const now = this.#clock.now();
    const endpoints = view.listeners.flatMap(({ set, endpoints }) =>
      endpoints.map((endpoint): EndpointRow => {
        const rowKey = `${set} ${endpointName(endpoint.endpoint)}`;
        const rates = endpoint.counters && meter.rates(rowKey, endpoint.counters, now);
        return { key: rowKey, endpoint, set, rates };
      }),
    );
    meter.done();
    return { key, service: view, endpoints };
  }
}

function serviceRow(view: ServiceView, meter: RateMeter, now: number): ServiceRow {
  const { name, namespace, service, family, protocol, port, clusterIPs, state, reason, counters, listeners } = view;
  const key = keyOf(view);
  const [address] = clusterIPs;
  const counts = listeners.map(({ endpointCount }) => endpointCount);
  return {
    key,
    name,
    namespace,
    service,
    family,
    protocol,
    address: address === undefined ? '-' : endpointName({ address, port }),
    state,
    reason,
    endpoints: {
      all: Math.max(0, ...counts.map(({ all }) => all)),
      active: Math.max(0, ...counts.map(({ active }) => active)),
    },
    active: counters.active,
    connections: counters.connections,
    dialMs: averageDialMs(counters),
    rates: meter.rates(key, counters, now),
  };
}

/** 0 before the first. */
export function averageDialMs({ connects, connectMs }: ServiceView['counters']): number {
  return connects === 0 ? 0 : connectMs / connects;
}

function keyOf({ name, family }: Pick<ServiceView, 'name' | 'family'>): string {
  return `${name} ${family}`;
}
