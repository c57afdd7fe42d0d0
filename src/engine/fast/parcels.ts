import { type Address, familyOf } from '../../model/address.ts';
import { type Backends, COUNTERS, type Counters } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { AdoptedPort, Parcel } from '../../model/hand-over.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import { type ListenerId, listenerId } from '../../model/service-port.ts';
import type { PickerRecord } from '../../services/picker.ts';
import { isReplyPath } from '../../sys/datagram-inbox.ts';
import {
  ADDRESS,
  AMOUNT,
  BYTES,
  base64,
  Contents,
  FD,
  FLAG,
  type Format,
  fieldsOf,
  listOf,
  mapOf,
  object,
  oneOf,
  optional,
  type Packing,
  text,
  tuple,
  whole,
} from './parcel-format.ts';
import type { DiallingRecord, EstablishedRecord, FlowRecord, LiveRecord, SideRecord } from './worker/records.ts';

/*
 * How the fast engine's parcels look: each is a list of ports, of connections, or of flows. Connections and flows say by
 * its number among all ports which one they belong to. Whoever changes this raises the version in
 * src/upgrade/protocol.ts.
 */

/** In place of the number of a port that is closed by now. */
export const CLOSED_PORT = -1;

/**
 * Many, as each parcel is a message of its own; but so few that connections that are full of bytes, seldom more than
 * 64 KiB a side, stay within one.
 */
const ITEMS_PER_PARCEL = 256;

/** A listener with all that belongs to it, but for its connections and flows. */
export interface PortState extends AdoptedPort {
  readonly fd: number;
  readonly backends: Backends;
  readonly counters: Counters;
  /** By `endpointName`. */
  readonly endpointCounters: ReadonlyMap<string, Counters>;
  readonly picker: PickerRecord | undefined;
}

/** What is in one parcel. The `port` of a record is a number among all ports, or {@link CLOSED_PORT}. */
export interface Unpacked {
  readonly ports: readonly PortState[];
  readonly records: readonly LiveRecord[];
}

const PORT_NUMBER = whole(1, 65_535);

const ENDPOINT = converted<Endpoint, [Address, number]>(
  tuple(ADDRESS, PORT_NUMBER),
  ({ address, port }) => [address, port],
  ([address, port]) => ({ address, port }),
);

/** Most are 0, and 0 is what is missing stands for: also one that the other version does not count. */
const ALL_COUNTERS: Format<Counters> = converted(
  mapOf(AMOUNT),
  (counters) => new Map(Object.entries(counters).filter(([, count]) => count !== 0)),
  (given) => Object.fromEntries(COUNTERS.map((name) => [name, given.get(name) ?? 0])) as Counters,
);

const PORT = converted(
  object({
    id: text<ListenerId>(/^/),
    // Goes into logs and metrics, where it was before; nothing else is asked of it.
    name: text<ServicePortName>(/^[!-~]{1,600}$/),
    protocol: oneOf<ProxiedProtocol>('TCP', 'UDP'),
    address: ADDRESS,
    localPort: PORT_NUMBER,
    fd: FD,
    timeoutSeconds: whole(),
    endpoints: listOf(ENDPOINT),
    draining: optional(listOf(ENDPOINT)),
    pinned: optional(listOf(tuple<[Address, number, number]>(ADDRESS, whole(), AMOUNT))),
    counters: ALL_COUNTERS,
    endpointCounters: mapOf(ALL_COUNTERS),
  }),
  ({ backends: { affinity, draining, endpoints }, picker, ...port }: PortState) => ({
    ...port,
    address: port.address as Address,
    timeoutSeconds: affinity.type === 'ClientIP' ? affinity.timeoutSeconds : 0,
    endpoints: picker?.inTurn ?? endpoints,
    draining,
    pinned: picker?.affinity.map(({ client, endpoint, ageMs }): [Address, number, number] => [
      client as Address,
      endpoint,
      ageMs,
    ]),
  }),
  ({ timeoutSeconds, endpoints, draining, pinned, ...port }): PortState => {
    const family = familyOf(port.address);
    if (![listenerId(port.name, family, 'own'), listenerId(port.name, family, 'local')].includes(port.id)) {
      throw new Error(`the id of a port is not one of ${port.name}`);
    }
    if (pinned?.some(([, index]) => index >= endpoints.length)) {
      throw new Error(`the endpoint of a client is none of the ${endpoints.length}`);
    }
    const affinity = pinned?.map(([client, endpoint, ageMs]) => ({ client, endpoint, ageMs }));
    return {
      ...port,
      family,
      backends: {
        endpoints,
        ...(draining && { draining }),
        affinity: timeoutSeconds === 0 ? { type: 'None' } : { type: 'ClientIP', timeoutSeconds },
      },
      picker: affinity && { inTurn: endpoints, affinity },
    };
  },
);

const OWNER = whole(CLOSED_PORT);

const SIDE = object<SideRecord>({
  fd: FD,
  hasEnded: FLAG,
  isShut: FLAG,
  rest: optional(BYTES),
  piped: optional({
    write: ({ readEnd, writeEnd, pending }, { fds }) => {
      fds.push(readEnd, writeEnd);
      return pending;
    },
    read: (value, from, what) => ({
      readEnd: from.fd(),
      writeEnd: from.fd(),
      pending: whole(1).read(value, from, what),
    }),
  }),
});

const ESTABLISHED = object<Omit<EstablishedRecord, 'kind'>>({
  port: OWNER,
  endpoint: ENDPOINT,
  sides: tuple<[SideRecord, SideRecord]>(SIDE, SIDE),
  broken: optional(oneOf('client', 'backend')),
});

const DIALLING = object<Omit<DiallingRecord, 'kind'>>({ port: OWNER, fd: FD, client: ADDRESS });

const CONNECTION: Format<EstablishedRecord | DiallingRecord> = {
  write: (record, to) => (record.kind === 'established' ? ESTABLISHED.write(record, to) : DIALLING.write(record, to)),
  read: (value, from, what) =>
    fieldsOf(value, what)['endpoint'] === undefined
      ? { kind: 'dialling', ...DIALLING.read(value, from, what) }
      : { kind: 'established', ...ESTABLISHED.read(value, from, what) },
};

const ENCODED = base64(/^[A-Za-z0-9+/]{4,64}={0,2}$/);

const FLOW: Format<FlowRecord> = converted(
  object({
    port: OWNER,
    fd: FD,
    endpoint: ENDPOINT,
    hasReplied: FLAG,
    // Missing from programs whose flows do not retire.
    hasRetired: optional(FLAG),
    name: ENCODED,
    control: ENCODED,
  }),
  (record: FlowRecord) => record,
  ({ hasRetired = false, ...flow }) => {
    if (!isReplyPath(flow.name, flow.control)) throw new Error('the way back of a flow is none');
    return { kind: 'flow', hasRetired, ...flow };
  },
);

const KIND = oneOf('ports', 'connections', 'flows');
const PORTS = listOf(PORT);
const CONNECTIONS = listOf(CONNECTION);
const FLOWS = listOf(FLOW);

/** Ports come first. The `port` of a record is as in {@link Unpacked}. */
export function* pack({ ports, records }: Unpacked): Iterable<Parcel> {
  const connections = records.filter((record) => record.kind !== 'flow');
  const flows = records.filter((record) => record.kind === 'flow');
  yield* parcelsOf('ports', ports, PORTS);
  yield* parcelsOf('connections', connections, CONNECTIONS);
  yield* parcelsOf('flows', flows, FLOWS);
}

/** Throws an Error that says what is wrong with it. */
export function unpack(parcel: Parcel): Unpacked {
  const contents = new Contents(parcel);
  const { kind, items } = fieldsOf(parcel.value, 'a parcel');
  const read = <T>(format: Format<T>): T => format.read(items, contents, String(kind));
  const unpacked =
    KIND.read(kind, contents, 'the kind of a parcel') === 'ports'
      ? { ports: read(PORTS), records: [] }
      : { ports: [], records: kind === 'flows' ? read(FLOWS) : read(CONNECTIONS) };
  contents.end();
  return unpacked;
}

function* parcelsOf<Item>(kind: string, all: readonly Item[], format: Format<readonly Item[]>): Iterable<Parcel> {
  for (let from = 0; from < all.length; from += ITEMS_PER_PARCEL) {
    const into: Packing = { fds: [], bytes: [] };
    const items = format.write(all.slice(from, from + ITEMS_PER_PARCEL), into);
    yield { value: { kind, items }, fds: into.fds, bytes: Buffer.concat(into.bytes) };
  }
}

/** The values of a format as the program has them. */
function converted<T, Wire>(format: Format<Wire>, to: (value: T) => Wire, from: (wire: Wire) => T): Format<T> {
  return {
    write: (value, packing) => format.write(to(value), packing),
    read: (value, contents, what) => from(format.read(value, contents, what)),
  };
}
