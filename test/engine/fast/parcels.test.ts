import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CLOSED_PORT, type PortState, pack, type Unpacked, unpack } from '../../../src/engine/fast/parcels.ts';
import type { FlowRecord, LiveRecord } from '../../../src/engine/fast/worker/records.ts';
import { endpointName } from '../../../src/model/endpoint.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';

const ONE = endpointAt('10.0.0.1', 80);
const TWO = endpointAt('fd00::2', 80);

const CLIENT = endpointAt('10.9.9.9', 40_000);

const CONNECTIONS: readonly LiveRecord[] = [
  { kind: 'dialling', port: 0, fd: 11, client: CLIENT, beganAt: 5, tries: { retries: 1, failed: [] } },
  {
    kind: 'established',
    port: 0,
    client: CLIENT,
    beganAt: 6.5,
    endpoint: endpointAt('10.0.0.9', 80),
    sides: [
      { fd: 12, total: 3, hasEnded: true, isShut: false, rest: new Uint8Array([1, 2, 3]) },
      { fd: 13, total: 2 ** 40, hasEnded: false, isShut: true, piped: { readEnd: 14, writeEnd: 15, pending: 70_000 } },
    ],
  },
  {
    kind: 'established',
    port: CLOSED_PORT,
    closedPort: 'test/gone',
    client: undefined,
    beganAt: 7,
    endpoint: ONE,
    broken: 'backend',
    sides: [
      { fd: 16, total: 0, hasEnded: false, isShut: false },
      { fd: 17, total: 4, hasEnded: true, isShut: false, rest: new Uint8Array([4]) },
    ],
  },
];

const zeros = (count: number): number[] => Array.from({ length: count }, () => 0);

/** As the kernel writes them on a little-endian machine. */
const FLOW: FlowRecord = {
  kind: 'flow',
  port: 1,
  fd: 21,
  endpoint: ONE,
  hasReplied: true,
  hasRetired: false,
  beganAt: 8,
  receivedBytes: 9,
  sentBytes: 10,
  name: new Uint8Array([2, 0, 0x30, 0x39, 10, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
  control: new Uint8Array([28, ...zeros(7), 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 10, 1, 0, 1, 10, 1, 0, 1, ...zeros(4)]),
};

const WAITING: LiveRecord = {
  kind: 'waiting',
  port: 1,
  name: FLOW.name,
  control: FLOW.control,
  datagrams: [new Uint8Array([1, 2])],
};

function port(name: string, protocol: 'TCP' | 'UDP', fd: number): PortState {
  return {
    id: `test/${name}`,
    name: `test/${name}`,
    family: 'IPv4',
    protocol,
    address: '0.0.0.0',
    localPort: 40_000,
    fd,
    backends: { endpoints: [ONE, TWO], affinity: { type: 'ClientIP', timeoutSeconds: 60 } },
    counters: { connections: 5 },
    endpointCounters: new Map([[endpointName(ONE), { connections: 3 }]]),
    picker: { order: [ONE, TWO], turns: [1], affinity: [{ client: '10.9.9.9', endpoint: 1, ageMs: 12.5 }] },
  };
}

const STATE: Unpacked = {
  ports: [port('tcp:web', 'TCP', 9), { ...port('udp', 'UDP', 10), moreFds: [7, 8], picker: undefined }],
  records: [...CONNECTIONS, FLOW, { ...FLOW, fd: 22, hasRetired: true }, WAITING],
};

function unpackAll(parcels: Iterable<Parameters<typeof unpack>[0]>): Unpacked {
  const unpacked = Array.from(parcels, unpack);
  return { ports: unpacked.flatMap(({ ports }) => ports), records: unpacked.flatMap(({ records }) => records) };
}

test('unpacking gives what was packed, without counters that are 0', () => {
  const [first, ...others] = STATE.ports as [PortState, PortState];
  const endpointCounters = new Map([[endpointName(ONE), { connections: 3, retries: 0 }]]);
  const packed = { ...first, counters: { ...first.counters, active: 0 }, endpointCounters };
  assert.deepEqual(unpackAll(pack({ ...STATE, ports: [packed, ...others] })), STATE);
});

test('many connections are spread over parcels, and come back in order', () => {
  const connections = Array.from({ length: 1000 }, (_, fd) => ({ ...CONNECTIONS[0], fd }) as LiveRecord);
  const flows = Array.from({ length: 5000 }, (_, fd) => ({ ...FLOW, fd }));
  const records = [...connections, ...flows];
  const parcels = [...pack({ ports: [port('a', 'TCP', 9), port('b', 'UDP', 10)], records })];
  assert.ok(Math.max(...parcels.map(({ fds }) => fds.length)) <= 256);
  assert.ok(parcels.length < 30, 'yet not one for each');
  assert.deepEqual(unpackAll(parcels).records, records);
});

test('bytes of a connection do not keep its parcel in memory', () => {
  const [, connection] = unpackAll(pack(STATE)).records;
  assert.ok(connection?.kind === 'established');
  assert.equal(connection.sides[0].rest?.buffer.byteLength, 3);
});

test('a descriptor that is missing, or used twice, or not at all, is an error', () => {
  const [ports] = pack(STATE);
  assert.ok(ports);
  assert.throws(() => unpack({ ...ports, fds: [] }), /no descriptor 0/);
  assert.throws(() => unpack({ ...ports, fds: [5, 5] }), /no descriptor 1/);
  assert.throws(() => unpack({ ...ports, fds: [...ports.fds, 99] }), /1 descriptors that nothing in it uses/);
});

test('a flow whose reply path is of another size is an error: it is copied into the kernel structures', () => {
  const unpackFlow = (flow: Partial<FlowRecord>) => unpackAll(pack({ ports: [], records: [{ ...FLOW, ...flow }] }));
  assert.throws(() => unpackFlow({ control: new Uint8Array(3) }), /no valid reply path/);
  assert.throws(() => unpackFlow({ control: new Uint8Array(32) }), /no valid reply path/);
  assert.throws(() => unpackFlow({ name: FLOW.name.subarray(1) }), /no valid reply path/);
});

test('bytes that are no parcel are an error', () => {
  for (const bytes of [new Uint8Array(0), new Uint8Array([1, 2, 3]), Buffer.from('{"kind":"ports"}')]) {
    assert.throws(() => unpack({ fds: [], bytes }), Error);
  }
});
