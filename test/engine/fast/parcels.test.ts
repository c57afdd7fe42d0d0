import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CLOSED_PORT, type PortState, pack, type Unpacked, unpack } from '../../../src/engine/fast/parcels.ts';
import type { FlowRecord, LiveRecord } from '../../../src/engine/fast/worker/records.ts';
import { COUNTERS, type Counters } from '../../../src/model/data-plane.ts';
import { endpointName } from '../../../src/model/endpoint.ts';
import type { Parcel } from '../../../src/model/hand-over.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';
import { seededRandom } from '../../support/seeded-random.ts';

const ONE = endpointAt('10.0.0.1', 80);
const TWO = endpointAt('fd00::2', 80);
const GONE = endpointAt('10.0.0.9', 80);

function counters(connections: number): Counters {
  return Object.fromEntries(COUNTERS.map((name) => [name, name === 'connections' ? connections : 0])) as Counters;
}

const CONNECTIONS: readonly LiveRecord[] = [
  { kind: 'dialling', port: 0, fd: 11, client: '10.9.9.9' as never },
  {
    kind: 'established',
    port: 0,
    endpoint: GONE,
    broken: undefined,
    sides: [
      { fd: 12, hasEnded: true, isShut: false, rest: new Uint8Array([1, 2, 3]), piped: undefined },
      {
        fd: 13,
        hasEnded: false,
        isShut: true,
        rest: undefined,
        piped: { readEnd: 14, writeEnd: 15, pending: 70_000 },
      },
    ],
  },
  {
    kind: 'established',
    port: CLOSED_PORT,
    endpoint: ONE,
    broken: 'backend',
    sides: [
      { fd: 16, hasEnded: false, isShut: false, rest: undefined, piped: undefined },
      { fd: 17, hasEnded: true, isShut: false, rest: new Uint8Array([4]), piped: undefined },
    ],
  },
];

/** As the kernel writes them on a little-endian machine. */
const FLOW: FlowRecord = {
  kind: 'flow',
  port: 1,
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

function port(name: string, protocol: 'TCP' | 'UDP'): PortState {
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
    picker: { inTurn: [ONE, TWO], affinity: [{ client: '10.9.9.9', endpoint: 1, ageMs: 12.5 }] },
  };
}

const STATE: Unpacked = {
  ports: [
    port('tcp:web', 'TCP'),
    port('udp', 'UDP'),
    {
      ...port('quiet', 'TCP'),
      picker: undefined,
      backends: { endpoints: [TWO, ONE], affinity: { type: 'None' } },
    },
  ],
  records: [...CONNECTIONS, FLOW, { ...FLOW, fd: 22, hasRetired: true }],
};

/** As they arrive: through JSON. */
function arrived(parcels: Iterable<Parcel>): Parcel[] {
  return Array.from(parcels, (parcel) => ({ ...parcel, value: JSON.parse(JSON.stringify(parcel.value)) }));
}

function unpackAll(parcels: readonly Parcel[]): Unpacked {
  const unpacked = parcels.map(unpack);
  return { ports: unpacked.flatMap(({ ports }) => ports), records: unpacked.flatMap(({ records }) => records) };
}

test('what is packed is what is unpacked', () => {
  assert.deepEqual(unpackAll(arrived(pack(STATE))), STATE);
});

test('a flow of a program that knows of none which retire has not', () => {
  const flow = unpackAll(alteredItem(UDP, { hasRetired: undefined })).records.find(({ kind }) => kind === 'flow');
  assert.equal(flow?.kind === 'flow' && flow.hasRetired, false);
});

test('parcels look as version 2 of the hand-over has them', () => {
  const [ports, connections, flows] = arrived(pack(STATE)).map(
    ({ value }) => value as { kind: string; items: object[] },
  );
  assert.deepEqual(ports, {
    kind: 'ports',
    items: [
      {
        id: 'test/tcp:web',
        name: 'test/tcp:web',
        protocol: 'TCP',
        address: '0.0.0.0',
        localPort: 40_000,
        timeoutSeconds: 60,
        endpoints: [
          ['10.0.0.1', 80],
          ['fd00::2', 80],
        ],
        pinned: [['10.9.9.9', 1, 12.5]],
        counters: { connections: 5 },
        endpointCounters: { '10.0.0.1:80': { connections: 3 } },
      },
      ...(ports?.items.slice(1) ?? []),
    ],
  });
  assert.deepEqual(connections, {
    kind: 'connections',
    items: [
      { port: 0, client: '10.9.9.9' },
      {
        port: 0,
        endpoint: ['10.0.0.9', 80],
        sides: [
          { hasEnded: true, isShut: false, rest: 3 },
          { hasEnded: false, isShut: true, piped: 70_000 },
        ],
      },
      {
        port: -1,
        endpoint: ['10.0.0.1', 80],
        sides: [
          { hasEnded: false, isShut: false },
          { hasEnded: true, isShut: false, rest: 1 },
        ],
        broken: 'backend',
      },
    ],
  });
  assert.deepEqual(flows?.items[0], {
    port: 1,
    endpoint: ['10.0.0.1', 80],
    hasReplied: true,
    hasRetired: false,
    name: Buffer.from(FLOW.name).toString('base64'),
    control: Buffer.from(FLOW.control).toString('base64'),
  });
});

test('many connections are spread over parcels, and come back in order', () => {
  const connections = Array.from({ length: 1000 }, (_, fd) => ({ ...CONNECTIONS[0], fd }) as LiveRecord);
  const flows = Array.from({ length: 5000 }, (_, fd) => ({ ...FLOW, fd }));
  const parcels = arrived(pack({ ports: [port('a', 'TCP'), port('b', 'UDP')], records: [...connections, ...flows] }));
  assert.ok(Math.max(...parcels.map(({ fds }) => fds.length)) <= 256);
  assert.ok(parcels.length < 30, 'yet not one for each');
  assert.deepEqual(unpackAll(parcels).records, [...connections, ...flows]);
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
  ['no list', altered(PORTS, () => ({ value: { kind: 'ports' } })), /^Error: ports is not a list$/],
  ['a name with a line feed', alteredItem(PORTS, { name: 'a/b\nc' }), /ports\[0\]\.name is not a text like/],
  [
    'a port that there is not',
    alteredItem(PORTS, { localPort: 65_536 }),
    /ports\[0\]\.localPort is not a whole number from 1 to 65535/,
  ],
  ['an address with a zone', alteredItem(PORTS, { address: 'fe80::1%lo' }), /ports\[0\]\.address is not an IP address/],
  [
    'a strange endpoint',
    alteredItem(PORTS, { endpoints: [['::1', 0]] }),
    /ports\[0\]\.endpoints\[0\]\[1\] is not a whole number/,
  ],
  ['a client of nobody', alteredItem(PORTS, { pinned: [['10.0.0.1', 2, 0]] }), /endpoint of a client/],
  [
    'a counter below zero',
    alteredItem(PORTS, { counters: { connections: -1 } }),
    /ports\[0\]\.counters\.connections is not a number from 0 on/,
  ],
  ['no listener', altered(PORTS, () => ({ fds: [] })), /too few descriptors/],
  ['a descriptor too many', altered(PORTS, ({ fds }) => ({ fds: [...fds, 99] })), /4 descriptors and speaks of 3/],
  ['a byte too few', altered(TCP, ({ bytes }) => ({ bytes: bytes.subarray(1) })), /too few bytes/],
  ['a byte too many', altered(TCP, () => ({ bytes: new Uint8Array(8) })), /8 bytes and speaks of 4/],
  [
    'a side without flags',
    alteredItem(TCP, { endpoint: ['::1', 1], sides: [{}, {}] }),
    /connections\[0\]\.sides\[0\]\.hasEnded is not true or false/,
  ],
  ['a way back that is another message', alteredItem(UDP, { control: 'AAAA' }), /way back of a flow is none/],
  ['a way back of another type', alteredItem(UDP, { control: `${'A'.repeat(43)}=` }), /way back of a flow is none/],
  ['the id of another name', alteredItem(PORTS, { id: 'test/udp' }), /the id of a port/],
  ['the id of another family', alteredItem(PORTS, { address: '::' }), /the id of a port/],
] as const) {
  test(`a parcel with ${what} is refused in a sentence`, () => {
    assert.throws(() => unpackAll(parcels), expected);
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
      unpackAll(parcels);
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
