import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COUNTERS, type Counters } from '../../../src/contracts/data-plane.ts';
import type { Parcel } from '../../../src/contracts/hand-over.ts';
import type { PortState } from '../../../src/dataplane/fast/parcel-records.ts';
import { type EngineState, pack, unpack } from '../../../src/dataplane/fast/parcels.ts';
import { endpointName } from '../../../src/model/endpoint.ts';
import type { ConnectionRecord, FlowRecord } from '../../../src/worker/hand-over.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';
import { seededRandom } from '../../support/seeded-random.ts';

const ONE = endpointAt('10.0.0.1', 80);
const TWO = endpointAt('fd00::2', 80);
const GONE = endpointAt('10.0.0.9', 80);

function counters(connections: number): Counters {
  return Object.fromEntries(COUNTERS.map((name) => [name, name === 'connections' ? connections : 0])) as Counters;
}

const CONNECTIONS: readonly ConnectionRecord[] = [
  { kind: 'dialling', fd: 11, client: '10.9.9.9' as never },
  {
    kind: 'established',
    endpoint: GONE,
    broken: undefined,
    client: { fd: 12, hasEnded: true, isShut: false, rest: new Uint8Array([1, 2, 3]), pipe: undefined },
    backend: {
      fd: 13,
      hasEnded: false,
      isShut: true,
      rest: undefined,
      pipe: { readEnd: 14, writeEnd: 15, pending: 70_000 },
    },
  },
  {
    kind: 'established',
    endpoint: ONE,
    broken: 'backend',
    client: { fd: 16, hasEnded: false, isShut: false, rest: undefined, pipe: undefined },
    backend: { fd: 17, hasEnded: true, isShut: false, rest: new Uint8Array([4]), pipe: undefined },
  },
];

/** As the kernel writes them on a little-endian machine. */
const FLOW: FlowRecord = {
  fd: 21,
  endpoint: ONE,
  hasReplied: true,
  hasRetired: false,
  name: new Uint8Array([2, 0, 0x30, 0x39, 10, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
  control: new Uint8Array([28, ...zeros(7), 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 10, 1, 0, 1, 10, 1, 0, 1, ...zeros(4)]),
};

function zeros(count: number): number[] {
  return Array.from({ length: count }, () => 0);
}

function port(name: string, protocol: 'TCP' | 'UDP', rest: Partial<PortState['record']> = {}): PortState {
  return {
    id: `test/${name}`,
    name: `test/${name}`,
    family: 'IPv4',
    protocol,
    address: '0.0.0.0',
    localPort: 40_000,
    fd: 10,
    backends: { endpoints: [ONE, TWO], affinity: { type: 'ClientIP', timeoutSeconds: 60 } },
    counters: counters(5),
    endpointCounters: new Map([[endpointName(ONE), counters(3)]]),
    record: {
      picker: { inTurn: [ONE, TWO], affinity: [{ client: '10.9.9.9', endpoint: 1, ageMs: 12.5 }] },
      connections: [],
      flows: [],
      ...rest,
    },
  };
}

const STATE: EngineState = {
  ports: [
    port('tcp:web', 'TCP', { connections: CONNECTIONS }),
    port('udp', 'UDP', { flows: [FLOW, { ...FLOW, fd: 22, hasRetired: true }] }),
    {
      ...port('quiet', 'TCP', { picker: undefined }),
      backends: { endpoints: [TWO, ONE], affinity: { type: 'None' } },
    },
  ],
  orphans: [CONNECTIONS[1] as ConnectionRecord],
};

/** As it arrives: through JSON. */
function arrived(parcels: readonly Parcel[]): Parcel[] {
  return parcels.map((parcel) => ({ ...parcel, value: JSON.parse(JSON.stringify(parcel.value)) }));
}

test('what is packed is what is unpacked', () => {
  assert.deepEqual(unpack(arrived(pack(STATE))), STATE);
});

test('a flow of a program that knows of none which retire has not', () => {
  const [port] = unpack(alteredItem(UDP, { hasRetired: undefined })).ports.slice(1);
  assert.equal(port?.record.flows[0]?.hasRetired, false);
});

test('many connections are spread over parcels, and come back in order', () => {
  const connections = Array.from({ length: 1000 }, (_, fd) => ({ kind: 'dialling', fd, client: '10.9.9.9' }) as const);
  const flows = Array.from({ length: 5000 }, (_, fd) => ({ ...FLOW, fd }));
  const state = { ports: [port('a', 'TCP', { connections }), port('b', 'UDP', { flows })], orphans: [] };
  const parcels = pack(state);
  assert.ok(Math.max(...parcels.map(({ fds }) => fds.length)) <= 256);
  assert.ok(parcels.length < 30, 'yet not one for each');
  const { ports } = unpack(arrived(parcels));
  assert.deepEqual(
    ports[0]?.record.connections.map((each) => 'fd' in each && each.fd),
    [...connections.keys()],
  );
  assert.deepEqual(
    ports[1]?.record.flows.map(({ fd }) => fd),
    [...flows.keys()],
  );
});

type Item = Readonly<Record<string, unknown>>;

/** The parcels of {@link STATE}: ports, connections, flows. */
const [PORTS, TCP, UDP] = [0, 1, 2] as const;

function altered(index: number, change: (parcel: Parcel) => Partial<Parcel>): Parcel[] {
  const parcels = arrived(pack(STATE));
  const parcel = parcels[index] as Parcel;
  parcels[index] = { ...parcel, ...change(parcel) };
  return parcels;
}

/** The first of its items changed. */
function alteredItem(index: number, by: Item): Parcel[] {
  return altered(index, ({ value }) => {
    const { kind, items } = value as { kind: string; items: readonly Item[] };
    return { value: { kind, items: [{ ...items[0], ...by }, ...items.slice(1)] } };
  });
}

for (const [what, parcels, expected] of [
  ['a kind that nobody knows', altered(PORTS, () => ({ value: { kind: 'trees', items: [] } })), /kind of a parcel/],
  ['no object', altered(PORTS, () => ({ value: 7 })), /a parcel is not an object/],
  ['no list', altered(PORTS, () => ({ value: { kind: 'ports' } })), /what is in a parcel is not a list/],
  ['a name with a line feed', alteredItem(PORTS, { name: 'a/b\nc' }), /name of a port/],
  ['a port that there is not', alteredItem(PORTS, { localPort: 65_536 }), /local port/],
  ['an address with a zone', alteredItem(PORTS, { address: 'fe80::1%lo' }), /address of a port/],
  ['a strange endpoint', alteredItem(PORTS, { endpoints: [['::1', 0]] }), /port of an endpoint/],
  ['a client of nobody', alteredItem(PORTS, { pinned: [['10.0.0.1', 2, 0]] }), /endpoint of a client/],
  ['a counter below zero', alteredItem(PORTS, { counters: { connections: -1 } }), /counter connections/],
  ['no listener', altered(PORTS, () => ({ fds: [] })), /too few descriptors/],
  ['a descriptor too many', altered(PORTS, ({ fds }) => ({ fds: [...fds, 99] })), /4 descriptors and speaks of 3/],
  ['a byte too few', altered(TCP, ({ bytes }) => ({ bytes: bytes.subarray(1) })), /too few bytes/],
  ['a byte too many', altered(TCP, () => ({ bytes: new Uint8Array(8) })), /8 bytes and speaks of 7/],
  ['a connection of a UDP port', alteredItem(TCP, { port: 1 }), /TCP port 1/],
  ['a connection of no port', alteredItem(TCP, { port: 9 }), /TCP port 9/],
  ['a side without flags', alteredItem(TCP, { endpoint: ['::1', 1], sides: [{}, {}] }), /hasEnded/],
  ['a flow of a TCP port', alteredItem(UDP, { port: 0 }), /UDP port 0/],
  ['a way back that is another message', alteredItem(UDP, { control: 'AAAA' }), /way back of a flow is none/],
  ['a way back of another type', alteredItem(UDP, { control: `${'A'.repeat(43)}=` }), /way back of a flow is none/],
  ['two ports of one id', alteredItem(PORTS, { id: 'test/udp', name: 'test/udp' }), /two ports have one id/],
  ['the id of another name', alteredItem(PORTS, { id: 'test/udp' }), /the id of a port/],
  ['the id of another family', alteredItem(PORTS, { address: '::' }), /the id of a port/],
] as const) {
  test(`a parcel with ${what} is refused in a sentence`, () => {
    assert.throws(() => unpack(parcels), expected);
  });
}

test('whatever a parcel says, it is unpacked or refused in a sentence', () => {
  const random = seededRandom(5);
  const strange = [null, -1, 1e20, 'x', [], {}, true, 0.5, undefined];
  let refused = 0;
  for (let round = 0; round < 2000; round++) {
    const parcels = arrived(pack(STATE));
    const parcel = parcels[Math.floor(random() * parcels.length)] as Parcel;
    replaceOne(parcel.value as Record<string, unknown>, strange[Math.floor(random() * strange.length)], random);
    try {
      unpack(parcels);
    } catch (err) {
      refused++;
      assert.ok(err instanceof Error && err.constructor === Error, String(err));
    }
  }
  assert.ok(refused > 1000, `${refused}`);
});

function replaceOne(inside: Record<string, unknown>, by: unknown, random: () => number): void {
  const keys = Object.keys(inside);
  const key = keys[Math.floor(random() * keys.length)];
  if (key === undefined) return;
  const value = inside[key];
  if (typeof value === 'object' && value !== null && random() < 0.7) replaceOne(value as never, by, random);
  else inside[key] = by;
}
