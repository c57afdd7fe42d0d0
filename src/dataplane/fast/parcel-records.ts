import { type Backends, COUNTERS, type Counters } from '../../contracts/data-plane.ts';
import { familyOf, type IpFamily } from '../../model/address.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { type ListenerId, listenerId } from '../../model/listener-id.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import type { PickerRecord } from '../../picker/picker.ts';
import { isReplyPath } from '../../sys/datagram-inbox.ts';
import type { ConnectionRecord, FlowRecord, PortRecord, SideRecord } from '../../worker/hand-over.ts';
import {
  address,
  amount,
  type Contents,
  endpoint,
  type Fields,
  fields,
  flag,
  list,
  oneOf,
  PORT,
  text,
  whole,
} from './parcel-fields.ts';

/*
 * One port, connection or flow as what survives JSON, with its descriptors and bytes beside it. Whatever is packed in some
 * order is unpacked in the same.
 */

const SIDES = ['client', 'backend'] as const;
/** Goes into logs and metrics, where it was before; nothing else is asked of it. */
const NAME = /^[!-~]{1,600}$/;
const BASE64 = /^[A-Za-z0-9+/]{4,64}={0,2}$/;

/** A listener with all that belongs to it. */
export interface PortState {
  readonly id: ListenerId;
  readonly name: ServicePortName;
  readonly family: IpFamily;
  readonly protocol: ProxiedProtocol;
  readonly address: string;
  readonly localPort: number;
  readonly fd: number;
  readonly backends: Backends;
  readonly counters: Counters;
  /** By `endpointName`. */
  readonly endpointCounters: ReadonlyMap<string, Counters>;
  readonly record: PortRecord;
}

export interface Packing {
  readonly fds: number[];
  readonly bytes: Uint8Array[];
}

/** Without its connections and flows. */
export function packPort(port: PortState, into: Packing): object {
  const { id, name, protocol, address, localPort, fd, backends, counters, endpointCounters, record } = port;
  const { affinity, draining } = backends;
  into.fds.push(fd);
  return {
    id,
    name,
    protocol,
    address,
    localPort,
    timeoutSeconds: affinity.type === 'ClientIP' ? affinity.timeoutSeconds : 0,
    endpoints: (record.picker?.inTurn ?? backends.endpoints).map(packEndpoint),
    draining: draining?.map(packEndpoint),
    pinned: record.picker?.affinity.map(({ client, endpoint, ageMs }) => [client, endpoint, ageMs]),
    counters: packCounters(counters),
    endpointCounters: Object.fromEntries(Array.from(endpointCounters, ([of, each]) => [of, packCounters(each)])),
  };
}

export function unpackPort(value: Fields, contents: Contents): PortState {
  const counters = Object.entries(fields(value['endpointCounters'], 'the counters of endpoints'));
  const timeoutSeconds = whole(value['timeoutSeconds'], 'the affinity timeout');
  const endpoints = unpackEndpoints(value['endpoints']);
  const draining = value['draining'] === undefined ? undefined : unpackEndpoints(value['draining']);
  const affinity = timeoutSeconds === 0 ? ({ type: 'None' } as const) : ({ type: 'ClientIP', timeoutSeconds } as const);
  const name = text(value['name'], 'the name of a port', NAME) as ServicePortName;
  const bound = address(value['address'], 'the address of a port');
  const family = familyOf(bound);
  const ids = [listenerId(name, family, 'own'), listenerId(name, family, 'local')];
  return {
    id: oneOf(value['id'], 'the id of a port', ids),
    name,
    family,
    protocol: oneOf(value['protocol'], 'the protocol of a port', ['TCP', 'UDP']),
    address: bound,
    localPort: whole(value['localPort'], 'the local port', PORT),
    fd: contents.fd(),
    backends: { endpoints, ...(draining && { draining }), affinity },
    counters: unpackCounters(value['counters']),
    endpointCounters: new Map(counters.map(([name, each]) => [name, unpackCounters(each)])),
    record: { picker: unpackPicker(value['pinned'], endpoints), connections: [], flows: [] },
  };
}

function unpackEndpoints(value: unknown): readonly Endpoint[] {
  return list(value, 'the endpoints of a port').map((each) => endpoint(each, 'an endpoint'));
}

function unpackPicker(pinned: unknown, inTurn: readonly Endpoint[]): PickerRecord | undefined {
  if (pinned === undefined) return undefined;
  const affinity = list(pinned, 'the clients of a port').map((each) => {
    const [client, index, ageMs] = list(each, 'a client');
    return {
      client: address(client, 'a client'),
      endpoint: whole(index, 'the endpoint of a client', { max: inTurn.length - 1 }),
      ageMs: amount(ageMs, 'the age of a client'),
    };
  });
  return { inTurn, affinity };
}

/** Most are 0, and 0 is what is missing stands for: also one that the other version does not count. */
function packCounters(counters: Counters): object {
  return Object.fromEntries(Object.entries(counters).filter(([, count]) => count !== 0));
}

function unpackCounters(value: unknown): Counters {
  const given = fields(value, 'counters');
  return Object.fromEntries(
    COUNTERS.map((name) => [name, amount(given[name] ?? 0, `the counter ${name}`)]),
  ) as Counters;
}

export function packConnection(connection: ConnectionRecord, into: Packing): object {
  if (connection.kind === 'dialling') {
    into.fds.push(connection.fd);
    return { client: connection.client };
  }
  const sides = [packSide(connection.client, into), packSide(connection.backend, into)];
  return { endpoint: packEndpoint(connection.endpoint), sides, broken: connection.broken };
}

export function unpackConnection(value: Fields, contents: Contents): ConnectionRecord {
  if (value['endpoint'] === undefined) {
    return { kind: 'dialling', fd: contents.fd(), client: address(value['client'], 'a client') };
  }
  const [client, backend] = list(value['sides'], 'the sides of a connection');
  const { broken } = value;
  return {
    kind: 'established',
    endpoint: endpoint(value['endpoint'], 'the endpoint of a connection'),
    client: unpackSide(client, contents),
    backend: unpackSide(backend, contents),
    broken: broken === undefined ? undefined : oneOf(broken, 'the broken side', SIDES),
  };
}

function packSide({ fd, hasEnded, isShut, rest, pipe }: SideRecord, { fds, bytes }: Packing): object {
  fds.push(fd);
  if (rest !== undefined) bytes.push(rest);
  if (pipe !== undefined) fds.push(pipe.readEnd, pipe.writeEnd);
  return { hasEnded, isShut, rest: rest?.length, piped: pipe?.pending };
}

function unpackSide(value: unknown, contents: Contents): SideRecord {
  const side = fields(value, 'the side of a connection');
  const { hasEnded, isShut, rest, piped } = side;
  return {
    fd: contents.fd(),
    hasEnded: flag(hasEnded, 'hasEnded'),
    isShut: flag(isShut, 'isShut'),
    rest: rest === undefined ? undefined : contents.bytes(whole(rest, 'the rest of a side', { min: 1 })),
    pipe: piped === undefined ? undefined : unpackPipe(piped, contents),
  };
}

function unpackPipe(piped: unknown, contents: Contents): SideRecord['pipe'] {
  const [readEnd, writeEnd] = [contents.fd(), contents.fd()];
  return { readEnd, writeEnd, pending: whole(piped, 'the bytes in a pipe', { min: 1 }) };
}

export function packFlow({ fd, endpoint, hasReplied, hasRetired, name, control }: FlowRecord, into: Packing): object {
  into.fds.push(fd);
  return {
    endpoint: packEndpoint(endpoint),
    hasReplied,
    hasRetired,
    name: Buffer.from(name).toString('base64'),
    control: Buffer.from(control).toString('base64'),
  };
}

export function unpackFlow(value: Fields, contents: Contents): FlowRecord {
  const name = decoded(value['name'], 'the client of a flow');
  const control = decoded(value['control'], 'the way back of a flow');
  if (!isReplyPath(name, control)) throw new Error('the way back of a flow is none');
  return {
    fd: contents.fd(),
    endpoint: endpoint(value['endpoint'], 'the endpoint of a flow'),
    hasReplied: flag(value['hasReplied'], 'hasReplied'),
    // Missing from programs whose flows do not retire.
    hasRetired: flag(value['hasRetired'] ?? false, 'hasRetired'),
    name,
    control,
  };
}

function decoded(value: unknown, what: string): Uint8Array {
  return new Uint8Array(Buffer.from(text(value, what, BASE64), 'base64'));
}

function packEndpoint({ address, port }: Endpoint): readonly [string, number] {
  return [address, port];
}
