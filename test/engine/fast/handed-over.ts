import { CLOSED_PORT, type PortState, type Unpacked } from '../../../src/engine/fast/parcels.ts';
import type { FlowRecord, LiveRecord } from '../../../src/engine/fast/worker/records.ts';
import { endpointName } from '../../../src/model/endpoint.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';

/* What a worker may hand over: one of each kind. */

export const ONE = endpointAt('10.0.0.1', 80);
const TWO = endpointAt('fd00::2', 80);

const CLIENT = endpointAt('10.9.9.9', 40_000);

export const CONNECTIONS: readonly LiveRecord[] = [
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
export const FLOW: FlowRecord = {
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

export function port(name: string, protocol: 'TCP' | 'UDP', fd: number): PortState {
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

export const STATE: Unpacked = {
  ports: [port('tcp:web', 'TCP', 9), { ...port('udp', 'UDP', 10), picker: undefined }],
  records: [...CONNECTIONS, FLOW, { ...FLOW, fd: 22, hasRetired: true }, { ...FLOW, fd: 23, ownFd: 24 }, WAITING],
};
