import { join } from 'node:path';
import type { CongestionControl } from './congestion-control.ts';
import { parseDnsperf, parseIperf3, parseStreamLoad, parseUdpLoad, parseWrk, type Result } from './parse.ts';
import { established, listening, Program } from './program.ts';
import { BACKEND, DNS, ECHO, HTTP, IPERF, type Port, type Rig } from './rig.ts';

export interface Metric {
  /** A key of {@link Result.values}, or `cpuPerGibibyte`. */
  readonly key: string;
  readonly label: string;
  readonly unit: string;
  readonly decimals: number;
  readonly better: 'more' | 'less';
  readonly goals?: readonly Goal[];
}

/** What the ratio of ours to somebody else should be: at least, where more is better, or at most. */
export interface Goal {
  readonly ratio: number;
  /** A candidate; `undefined`: the peer that does best. */
  readonly to?: string;
}

export interface Row {
  readonly name: string;
  readonly what: string;
  readonly isUdp: boolean;
  /** Of everybody's TCP connections. */
  readonly congestionControl: CongestionControl;
  /** What it needs other than the kernel's default, on the node of every candidate: file below /proc/sys and value. */
  readonly sysctls?: Readonly<Record<string, string>>;
  readonly metrics: readonly Metric[];
  /** The backend, started in its pod for this measurement alone. */
  server(rig: Rig): { readonly argv: readonly string[]; readonly port: Port };
  client(rig: Rig, seconds: number): { readonly argv: readonly string[]; readonly parse: (output: string) => Result };
  /** Another load on the candidate, from before the measurement until after it. */
  readonly beside?: {
    server(rig: Rig): { readonly argv: readonly string[]; readonly port: Port };
    client(rig: Rig): readonly string[];
    readonly connections: number;
  };
}

const HERE = import.meta.dirname;

const THROUGHPUT: Metric = { key: 'gbits', label: 'throughput', unit: 'Gbit/s', decimals: 1, better: 'more' };
const PROCESSOR_TIME: Metric = {
  key: 'cpuPerGibibyte',
  label: 'CPU of the proxy',
  unit: 's/GiB',
  decimals: 3,
  better: 'less',
};

export const ROWS: readonly Row[] = [
  bulk(1, 'cubic', { throughput: [{ ratio: 1.05 }, { ratio: 0.95, to: 'direct' }] }),
  bulk(4, 'cubic', { throughput: [{ ratio: 1.05 }], processorTime: [{ ratio: 0.75 }] }),
  {
    name: 'bulk-4-cheap',
    what: 'bulk, 4 streams whose ends copy nothing (stream-load, stream-sink)',
    isUdp: false,
    congestionControl: 'cubic',
    metrics: [THROUGHPUT, PROCESSOR_TIME],
    server: () => ({ argv: script('stream-sink.ts', IPERF.port), port: IPERF }),
    client: (rig, seconds) => ({
      argv: script('stream-load.ts', rig.host, IPERF.port, 4, seconds),
      parse: parseStreamLoad,
    }),
  },
  {
    name: 'http-64',
    what: 'HTTP keep-alive, 64 connections (wrk, nginx)',
    isUdp: false,
    congestionControl: 'cubic',
    metrics: [
      { key: 'perSecond', label: 'requests', unit: '/s', decimals: 0, better: 'more', goals: [{ ratio: 1.02 }] },
      { key: 'p50', label: 'latency p50', unit: 'µs', decimals: 0, better: 'less' },
      { key: 'p99', label: 'latency p99', unit: 'µs', decimals: 0, better: 'less', goals: [{ ratio: 1 }] },
    ],
    server: nginx,
    client: (rig, seconds) => wrk(rig, seconds, 64),
  },
  {
    name: 'http-1',
    what: 'HTTP keep-alive, 1 connection (wrk, nginx)',
    isUdp: false,
    congestionControl: 'cubic',
    metrics: [
      { key: 'p50', label: 'latency p50', unit: 'µs', decimals: 0, better: 'less', goals: [{ ratio: 0.95 }] },
      { key: 'perSecond', label: 'requests', unit: '/s', decimals: 0, better: 'more' },
    ],
    server: nginx,
    client: (rig, seconds) => wrk(rig, seconds, 1),
  },
  {
    name: 'connections',
    what: 'a connection for each request, 32 clients (wrk, nginx)',
    isUdp: false,
    congestionControl: 'cubic',
    sysctls: {
      // Ours sets it itself, and peers are to have it, too: else the local ports of what has just ended run out.
      'net/ipv4/tcp_tw_reuse': '1',
      // Not the default two minutes, in which what is over would fill the table of connections. With less than this,
      // ours would not keep the client's address.
      'net/netfilter/nf_conntrack_tcp_timeout_time_wait': '30',
    },
    metrics: [
      { key: 'perSecond', label: 'connections', unit: '/s', decimals: 0, better: 'more', goals: [{ ratio: 1.15 }] },
    ],
    server: nginx,
    client: (rig, seconds) => wrk(rig, seconds, 32, 'Connection: close'),
  },
  {
    name: 'http-beside-bulk',
    what: 'HTTP keep-alive, 8 connections (wrk, nginx), beside 64 streams (iperf3)',
    isUdp: false,
    congestionControl: 'cubic',
    metrics: [
      {
        key: 'p99',
        label: 'latency p99',
        unit: 'µs',
        decimals: 0,
        better: 'less',
        goals: [{ ratio: 2, to: 'haproxy' }],
      },
      { key: 'p50', label: 'latency p50', unit: 'µs', decimals: 0, better: 'less' },
      { key: 'perSecond', label: 'requests', unit: '/s', decimals: 0, better: 'more' },
    ],
    server: nginx,
    client: (rig, seconds) => wrk(rig, seconds, 8),
    beside: {
      server: () => ({ argv: ['iperf3', '--server', '--one-off'], port: IPERF }),
      client: (rig) => ['iperf3', '--client', rig.host, '--time', '3600', '--parallel', '64'],
      connections: 64,
    },
  },
  udp(1, 1.5),
  udp(16, 1.6),
  udpRuns(),
  {
    name: 'dns',
    what: 'DNS, 64 flows, 64 queries under way (dnsperf, NSD)',
    isUdp: true,
    congestionControl: 'cubic',
    metrics: [{ key: 'perSecond', label: 'queries', unit: '/s', decimals: 0, better: 'more', goals: [{ ratio: 1.3 }] }],
    server: nsd,
    client: (rig, seconds) => {
      const queries = rig.file('queries', ['www.bench.test A']);
      const load = ['-l', String(seconds), '-c', '64', '-q', '64'];
      const argv = ['dnsperf', '-s', rig.host, '-p', String(DNS.port), '-d', queries, ...load];
      return { argv, parse: parseDnsperf };
    },
  },
  {
    name: 'dns-fresh',
    what: 'DNS, 64 queries under way, each from a port of its own (dns-load, NSD)',
    isUdp: true,
    congestionControl: 'cubic',
    metrics: [{ key: 'perSecond', label: 'queries', unit: '/s', decimals: 0, better: 'more', goals: [{ ratio: 1.3 }] }],
    server: nsd,
    client: (rig, seconds) => ({
      argv: script('dns-load.ts', rig.host, DNS.port, 64, seconds, 'www.bench.test'),
      parse: parseUdpLoad,
    }),
  },
  bulk(1, 'bbr'),
];

function script(file: string, ...args: readonly (string | number)[]): readonly string[] {
  return [process.execPath, join(HERE, file), ...args.map(String)];
}

/** With BBR, the kernel paces each stream by timers: that is then measured, more than the proxies. */
function bulk(
  streams: number,
  congestionControl: CongestionControl,
  goals?: { readonly throughput: readonly Goal[]; readonly processorTime?: readonly Goal[] },
): Row {
  const isPaced = congestionControl === 'bbr';
  return {
    name: `bulk-${streams}${isPaced ? '-bbr' : ''}`,
    what: `bulk, ${streams} ${streams === 1 ? 'stream' : 'streams'} (iperf3)${isPaced ? ', all with BBR' : ''}`,
    isUdp: false,
    congestionControl,
    metrics: [
      { ...THROUGHPUT, ...(goals && { goals: goals.throughput }) },
      { ...PROCESSOR_TIME, ...(goals?.processorTime && { goals: goals.processorTime }) },
    ],
    server: () => ({ argv: ['iperf3', '--server', '--one-off'], port: IPERF }),
    client: (rig, seconds) => ({
      argv: ['iperf3', '--client', rig.host, '--time', String(seconds), '--parallel', String(streams), '--json'],
      parse: parseIperf3,
    }),
  };
}

function udp(outstanding: number, goal: number): Row {
  return {
    name: `udp-64x${outstanding}`,
    what: `UDP, 64 flows × ${outstanding} under way (udp-load, udp-echo)`,
    isUdp: true,
    congestionControl: 'cubic',
    metrics: [
      { key: 'perSecond', label: 'queries', unit: '/s', decimals: 0, better: 'more', goals: [{ ratio: goal }] },
    ],
    server: () => ({ argv: script('udp-echo.ts', ECHO.port), port: ECHO }),
    client: (rig, seconds) => ({
      argv: script('udp-load.ts', rig.host, ECHO.port, 64, outstanding, seconds),
      parse: parseUdpLoad,
    }),
  };
}

/** Much as {@link udp}, and nearly all of the processors' time is the proxy's and the kernel's. */
function udpRuns(): Row {
  return {
    name: 'udp-64-runs',
    what: 'UDP, 64 flows × 32 under way, in runs that cost the ends little (udp-load, udp-echo)',
    isUdp: true,
    congestionControl: 'cubic',
    metrics: [{ key: 'perSecond', label: 'queries', unit: '/s', decimals: 0, better: 'more' }],
    server: () => ({ argv: script('udp-echo.ts', ECHO.port, 64), port: ECHO }),
    client: (rig, seconds) => ({
      argv: script('udp-load.ts', rig.host, ECHO.port, 64, 32, seconds, 'runs'),
      parse: parseUdpLoad,
    }),
  };
}

function wrk(rig: Rig, seconds: number, connections: number, header?: string): ReturnType<Row['client']> {
  const load = ['-t1', `-c${connections}`, `-d${seconds}s`, '--latency'];
  const headers = header === undefined ? [] : ['-H', header];
  return { argv: ['wrk', ...load, ...headers, `http://${rig.host}/`], parse: parseWrk };
}

function nginx(rig: Rig): ReturnType<Row['server']> {
  const config = rig.file('backend.conf', [
    'daemon off;',
    'worker_processes 1;',
    `pid ${join(rig.topology.directory, 'backend.pid')};`,
    'error_log stderr;',
    'events { worker_connections 4096; }',
    'http {',
    '  access_log off;',
    '  keepalive_requests 1000000000;',
    `  server { listen ${HTTP.port}; return 200 "${'x'.repeat(128)}"; }`,
    '}',
  ]);
  return { argv: ['nginx', '-c', config, '-e', 'stderr'], port: HTTP };
}

function nsd(rig: Rig): ReturnType<Row['server']> {
  const zone = rig.file('bench.zone', [
    '$ORIGIN bench.test.',
    '$TTL 60',
    '@ SOA ns hostmaster 1 3600 600 86400 60',
    '@ NS ns',
    `ns A ${BACKEND}`,
    'www A 192.0.2.1',
  ]);
  const config = rig.file('nsd.conf', [
    'server:',
    `  ip-address: ${BACKEND}`,
    '  server-count: 1',
    '  username: ""',
    '  chroot: ""',
    '  database: ""',
    '  pidfile: ""',
    `  zonelistfile: "${join(rig.topology.directory, 'zone.list')}"`,
    `  xfrdfile: ""`,
    // All queries come from one address, and NSD would answer 200 of them a second.
    '  rrl-ratelimit: 0',
    'remote-control:',
    '  control-enable: no',
    'zone:',
    '  name: bench.test',
    `  zonefile: "${zone}"`,
  ]);
  return { argv: ['nsd', '-d', '-c', config], port: DNS };
}

/** One run of a row against one candidate. Throws when there is no figure. */
export async function measure(row: Row, rig: Rig, meter: Meter): Promise<Result> {
  const { beside } = row;
  return await rig.withSysctls(row.sysctls ?? {}, async () => {
    if (beside === undefined) return await run(row, rig, meter);
    const { client, pods } = rig.topology;
    const { argv, port } = beside.server(rig);
    const server = new Program(pods[0], argv);
    let load: Program | undefined;
    try {
      await server.until('listens', () => listening(pods[0], [port.port]));
      load = new Program(client, beside.client(rig));
      await load.until('is connected', async () => (await established(pods[0], port.port)) > beside.connections);
      return await run(row, rig, meter);
    } finally {
      await load?.stop();
      await server.stop();
    }
  });
}

async function run(row: Row, rig: Rig, meter: Meter): Promise<Result> {
  rig.check();
  const { client, pods } = rig.topology;
  const { argv, port } = row.server(rig);
  const server = new Program(pods[0], argv);
  try {
    await server.until('listens', () => listening(pods[0], [port.port]));
    const load = row.client(rig, meter.seconds);
    const before = await meter.cpuSeconds(rig);
    const { code, stdout, stderr } = await client.run(load.argv, { timeoutMs: (meter.seconds + 20) * 1000 });
    const cpu = (await meter.cpuSeconds(rig)) - before;
    rig.check();
    // iperf3 says in its report what went wrong.
    if (code !== 0 && !stdout.startsWith('{')) throw new Error(`${load.argv[0]} ended with ${code}: ${stderr.trim()}`);
    const { values, complaints } = load.parse(stdout);
    return { values: { ...values, ...processorTime(cpu, values) }, complaints };
  } finally {
    await server.stop();
  }
}

export interface Meter {
  readonly seconds: number;
  cpuSeconds(rig: Rig): Promise<number>;
}

/** Of the candidate; nothing for the limits, which have no process. */
function processorTime(cpu: number, { gibibytes }: Result['values']): Record<string, number> {
  if (cpu === 0) return {};
  return { cpuSeconds: cpu, ...(gibibytes !== undefined && { cpuPerGibibyte: cpu / gibibytes }) };
}
