import type { Parcel } from '../../contracts/hand-over.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import type { ConnectionRecord, FlowRecord } from '../../worker/hand-over.ts';
import { Contents, type Fields, fields, list, oneOf, whole } from './parcel-fields.ts';
import {
  type Packing,
  type PortState,
  packConnection,
  packFlow,
  packPort,
  unpackConnection,
  unpackFlow,
  unpackPort,
} from './parcel-records.ts';

/*
 * How the fast engine's parcels look: each is a list of ports, of connections, or of flows. Connections and flows say by
 * its number among all ports which one they belong to; connections of closed ones say NO_PORT. Whoever changes this, or
 * parcel-records.ts, raises the version in src/handover/protocol.ts.
 */

const NO_PORT = -1;
const KINDS = ['ports', 'connections', 'flows'] as const;

/**
 * Many, as each parcel is a message of its own; but so few that connections that are full of bytes, seldom more than
 * 64 KiB a side, stay within one.
 */
const ITEMS_PER_PARCEL = 256;

/** All that an engine has. */
export interface EngineState {
  readonly ports: readonly PortState[];
  /** Connections of Service ports that are not open any more. */
  readonly orphans: readonly ConnectionRecord[];
}

/** Something that belongs to a port. */
interface Belonging<Record> {
  readonly port: number;
  readonly record: Record;
}

export function pack({ ports, orphans }: EngineState): Parcel[] {
  const connections = [
    ...ports.flatMap(({ record }, port) => record.connections.map((each) => ({ port, record: each }))),
    ...orphans.map((record) => ({ port: NO_PORT, record })),
  ];
  const flows = ports.flatMap(({ record }, port) => record.flows.map((each) => ({ port, record: each })));
  return [
    ...parcelsOf('ports', ports, packPort),
    ...parcelsOf('connections', connections, belonging(packConnection)),
    ...parcelsOf('flows', flows, belonging(packFlow)),
  ];
}

/** Throws an Error that says what is wrong with them. */
export function unpack(parcels: readonly Parcel[]): EngineState {
  const ports: PortState[] = [];
  const connections = new Map<number, ConnectionRecord[]>([[NO_PORT, []]]);
  const flows = new Map<number, FlowRecord[]>();
  for (const parcel of parcels) {
    const contents = new Contents(parcel);
    const value = fields(parcel.value, 'a parcel');
    const kind = oneOf(value['kind'], 'the kind of a parcel', KINDS);
    for (const each of list(value['items'], 'what is in a parcel')) {
      const item = fields(each, 'what is in a parcel');
      if (kind === 'ports') {
        connections.set(ports.length, []);
        flows.set(ports.length, []);
        ports.push(unpackPort(item, contents));
      } else if (kind === 'connections') {
        listOf(connections, item, ports, 'TCP').push(unpackConnection(item, contents));
      } else {
        listOf(flows, item, ports, 'UDP').push(unpackFlow(item, contents));
      }
    }
    contents.end();
  }
  if (new Set(ports.map(({ id }) => id)).size < ports.length) throw new Error('two ports have one id');
  return {
    orphans: connections.get(NO_PORT) ?? [],
    ports: ports.map((port, index) => ({
      ...port,
      record: { ...port.record, connections: connections.get(index) ?? [], flows: flows.get(index) ?? [] },
    })),
  };
}

function parcelsOf<Item>(
  kind: (typeof KINDS)[number],
  all: readonly Item[],
  packItem: (item: Item, into: Packing) => object,
): Parcel[] {
  const parcels: Parcel[] = [];
  for (let from = 0; from < all.length; from += ITEMS_PER_PARCEL) {
    const into: Packing = { fds: [], bytes: [] };
    const items = all.slice(from, from + ITEMS_PER_PARCEL).map((item) => packItem(item, into));
    parcels.push({ value: { kind, items }, fds: into.fds, bytes: Buffer.concat(into.bytes) });
  }
  return parcels;
}

function belonging<Record>(packRecord: (record: Record, into: Packing) => object) {
  return ({ port, record }: Belonging<Record>, into: Packing): object => ({ port, ...packRecord(record, into) });
}

function listOf<Each>(
  lists: ReadonlyMap<number, Each[]>,
  { port }: Fields,
  ports: readonly PortState[],
  protocol: ProxiedProtocol,
): Each[] {
  const index = whole(port, 'the port of a connection or flow', { min: NO_PORT });
  const into = lists.get(index);
  const isRight = index === NO_PORT || ports[index]?.protocol === protocol;
  if (into === undefined || !isRight)
    throw new Error(`something is of the ${protocol} port ${index}, which there is not`);
  return into;
}
