import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type PortState, pack, type Unpacked, unpack } from '../../../src/engine/fast/parcels.ts';
import type { FlowRecord, LiveRecord } from '../../../src/engine/fast/worker/records.ts';
import { endpointName } from '../../../src/model/endpoint.ts';
import { CONNECTIONS, FLOW, ONE, port, STATE } from './handed-over.ts';

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
