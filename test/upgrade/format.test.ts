import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type PortState, pack, type Unpacked, unpack } from '../../src/engine/fast/parcels.ts';
import type {
  DiallingRecord,
  EstablishedRecord,
  FlowRecord,
  WaitingRecord,
} from '../../src/engine/fast/worker/records.ts';
import { endpointName } from '../../src/model/endpoint.ts';
import { FORMAT, type Message, type MessageOf, readMessage } from '../../src/upgrade/protocol.ts';
import { endpointAt } from '../compliance/data-plane/harness.ts';
import { FLOW } from '../engine/fast/handed-over.ts';

type Leaf = string | number | boolean | null | Uint8Array | ReadonlyMap<string, unknown>;
/** With every field that may be absent, so that the compiler asks for a new one here. */
type Full<T> = T extends Leaf ? T : { [K in keyof T]-?: Full<Exclude<T[K], undefined>> };

const [ONE, TWO] = [endpointAt('10.0.0.1', 80), endpointAt('fd00::2', 80)];
const CLIENT = endpointAt('10.9.9.9', 40_000);
const TRIES = {
  retries: 3,
  failed: [{ backend: endpointName(ONE), reason: 'refused' }],
  moreFailed: { refused: 1, timeout: 2, unreachable: 3, other: 4 },
} as const;
const ACCOUNT = { closedPort: 'test/gone', beganAt: 6.5, tries: TRIES, waitedMs: 250 } as const;
const WAIT = { at: 7.5, waitedMs: 300, leftMs: 29_700, freshMs: 4_700 };

const PORT: Full<Omit<PortState, 'counters' | 'endpointCounters'>> = {
  id: 'test/web',
  name: 'test/web',
  family: 'IPv4',
  protocol: 'UDP',
  address: '0.0.0.0',
  localPort: 40_000,
  fd: 9,
  backends: {
    endpoints: [
      { ...ONE, weight: 2, isDoubtful: true },
      { ...TWO, weight: 1, isDoubtful: true },
    ],
    draining: [CLIENT],
    affinity: { type: 'ClientIP', timeoutSeconds: 60 },
    scheduler: 'wrr',
    slowStartMs: 1_000,
    keptAddresses: { pods: 'all', others: 'external', clusterIPs: [ONE.address] },
    proxyProtocol: 'v2',
    udpReplayMs: 50,
    waiting: { forEndpointsMs: 30_000, whileFullMs: 5_000, max: 1_024 },
    maxConnections: 100,
    maxConnectionAgeMs: 600_000,
    drainTimeoutMs: 60_000,
    udpTimeoutMs: 10_000,
  },
  picker: {
    order: [
      { ...ONE, weight: 2 },
      { ...TWO, weight: 1 },
    ],
    agesMs: [5, null],
    turns: [1, 2],
    ejections: [[1, { leftMs: 9, inRow: 2 }]],
    affinity: [{ client: '10.9.9.9', endpoint: 1, ageMs: 12.5 }],
  },
};
const SIDE = { total: 2 ** 40, hasEnded: true, isShut: false, rest: new Uint8Array([1, 2, 3]) };
const ESTABLISHED: Full<EstablishedRecord> = {
  ...ACCOUNT,
  kind: 'established',
  port: 0,
  client: CLIENT,
  endpoint: ONE,
  broken: 'backend',
  sides: [
    { ...SIDE, fd: 12, piped: { readEnd: 14, writeEnd: 15, pending: 70_000 } },
    { ...SIDE, fd: 13, piped: { readEnd: 16, writeEnd: 17, pending: 1 } },
  ],
};
const DIALLING: Full<DiallingRecord> = {
  kind: 'dialling',
  port: 0,
  fd: 11,
  client: CLIENT,
  waiting: WAIT,
  ...ACCOUNT,
};
const UDP_FLOW: Full<FlowRecord> = {
  ...FLOW,
  ...ACCOUNT,
  ownFd: 22,
  keptUntil: 10,
  unanswered: [new Uint8Array([4, 5])],
};
const { name, control } = FLOW;
const WAITING: Full<WaitingRecord> = {
  kind: 'waiting',
  port: 1,
  closedPort: 'test/gone',
  name,
  control,
  datagrams: [new Uint8Array([1, 2])],
  waiting: WAIT,
};
const STATE: Unpacked = {
  ports: [{ ...PORT, counters: { connections: 5 }, endpointCounters: new Map([[endpointName(ONE), { retries: 3 }]]) }],
  records: [DIALLING, ESTABLISHED, UDP_FLOW, WAITING],
};

/** `hello` may get more fields, which the other version does not know. */
const MESSAGES: { [K in Message['kind']]: K extends 'hello' ? MessageOf<K> : Full<MessageOf<K>> } = {
  hello: { kind: 'hello', versions: [FORMAT], program: '9.9' },
  begin: { kind: 'begin', weights: [{ ...ONE, weight: 0, before: 7 }] },
  parcel: { kind: 'parcel' },
  end: { kind: 'end', parcels: 3 },
  adopted: { kind: 'adopted' },
  failed: { kind: 'failed', err: 'no room' },
  released: { kind: 'released' },
  owning: { kind: 'owning' },
  serving: { kind: 'serving' },
};

interface Written {
  readonly messages: readonly unknown[];
  readonly parcels: readonly { readonly fds: readonly number[]; readonly bytes: string }[];
}

test('what a program of this format hands over is read as it was meant', () => {
  const path = pathOf(FORMAT);
  if (!existsSync(path)) {
    const parcels = Array.from(pack(STATE), ({ fds, bytes }) => ({
      fds,
      bytes: Buffer.from(bytes).toString('base64'),
    }));
    writeFileSync(path, `${JSON.stringify({ messages: Object.values(MESSAGES), parcels }, null, 1)}\n`);
    assert.fail(`${path} is written anew: commit it`);
  }
  const { messages, state, surplus } = read(path);
  const advice =
    'another version would misread this: raise FORMAT. Before the first release with this FORMAT, and where both ' +
    `versions understand each other, delete ${path} and run this test twice`;
  assert.deepEqual(messages, Object.values(MESSAGES), advice);
  assert.deepEqual({ state, surplus }, { state: STATE, surplus: [] }, advice);
});

test('what a program of format 4 hands over is read as this one would have meant it', () => {
  const { messages, state, surplus } = read(pathOf(4));
  const [address, client] = [without(ONE, ['name']), without(CLIENT, ['name'])];
  assert.deepEqual(messages, [
    { ...MESSAGES.hello, versions: [4] },
    { ...MESSAGES.begin, weights: [{ ...address, weight: 0, before: 7 }] },
    ...Object.values(MESSAGES).slice(2),
  ]);
  // Nobody waited for an endpoint then.
  const records = [{ ...DIALLING, client }, { ...ESTABLISHED, client }, UDP_FLOW, WAITING].map((record) =>
    without(record, ['ownFd', 'waitedMs', 'waiting']),
  );
  const backends = without(PORT.backends, [
    'waiting',
    'maxConnections',
    'maxConnectionAgeMs',
    'drainTimeoutMs',
    'udpTimeoutMs',
  ]);
  const endpoints = PORT.backends.endpoints.map((each) => without(each, ['isDoubtful']));
  const ports = STATE.ports.map((port) => ({ ...port, backends: { ...backends, endpoints } }));
  // Two further sockets of the UDP port.
  assert.deepEqual({ state, surplus }, { state: { ports, records }, surplus: [7, 8] });
});

function without(value: object, fields: readonly string[]): object {
  return Object.fromEntries(Object.entries(value).filter(([field]) => !fields.includes(field)));
}

function pathOf(format: number): string {
  return join(import.meta.dirname, `../golden/hand-over-${format}.json`);
}

function read(path: string) {
  const { messages, parcels } = JSON.parse(readFileSync(path, 'utf8')) as Written;
  const unpacked = parcels.map(({ fds, bytes }) => unpack({ fds, bytes: Buffer.from(bytes, 'base64') }));
  const [ports, records] = [unpacked.flatMap((each) => each.ports), unpacked.flatMap((each) => each.records)];
  const surplus = unpacked.flatMap((each) => each.surplus);
  return { messages: messages.map(readMessage), state: { ports, records }, surplus };
}
