import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { Iptables } from '../test/netns/iptables.ts';
import { Manifests, serviceObjects } from '../test/netns/manifests.ts';
import { PROGRAM } from '../test/netns/proxy.ts';
import { runCommand } from '../test/netns/topology.ts';
import { listening } from './program.ts';
import { BACKEND, CLUSTER_IP, PORTS, type Port, type Rig } from './rig.ts';

export interface Candidate {
  readonly name: string;
  /** A limit is no proxy: nothing, or the kernel alone, lies between client and backend. */
  readonly kind: 'ours' | 'peer' | 'limit';
  readonly carriesUdp: boolean;
  /** Takes part only when it is named. */
  readonly isExtra?: boolean;
  /** Why it cannot take part on this machine. */
  missing?(): string | undefined;
  /** Resolves when it is ready for traffic. `program`: for one of ours, in place of its own. */
  start(rig: Rig, program?: string): Promise<void>;
}

export const CANDIDATES: readonly Candidate[] = [
  ours('fast', 'fast'),
  ours('node', 'node'),
  { name: 'go', kind: 'peer', carriesUdp: true, missing: () => goMissing(), start: startGo },
  haproxy('haproxy', { threads: 1 }),
  nginx('nginx', { threads: 1 }),
  { name: 'direct', kind: 'limit', carriesUdp: true, start: async () => {} },
  { name: 'dnat', kind: 'limit', carriesUdp: true, start: startDnat },
  // An older build of this program, to see what a change costs: KUP_BENCH_BEFORE names its executable.
  {
    ...ours('before', 'fast', { program: process.env['KUP_BENCH_BEFORE'] }),
    isExtra: true,
    missing: () => (process.env['KUP_BENCH_BEFORE'] === undefined ? 'KUP_BENCH_BEFORE names no executable' : undefined),
  },
  // What it costs that endpoints see the client's address.
  { ...ours('masquerading', 'fast', { flags: ['--client-address', 'node'] }), isExtra: true },
  // What our own sockets can do where everybody else uses BBR.
  { ...ours('cubic', 'fast', { flags: ['--tcp-congestion-control', 'cubic'] }), isExtra: true },
  // What a Service gets when it is never carried by more than one thread.
  { ...ours('one-worker', 'fast', { flags: ['--workers', '1'] }), isExtra: true },
  // To see whether other settings would have done the peers more justice.
  { ...haproxy('haproxy-threads', { threads: availableParallelism() }), isExtra: true },
  { ...haproxy('haproxy-buffers', { threads: 1, bufferKibibytes: 1024 }), isExtra: true },
  { ...nginx('nginx-threads', { threads: availableParallelism() }), isExtra: true },
  { ...nginx('nginx-buffers', { threads: 1, bufferKibibytes: 256 }), isExtra: true },
];

/** By default a peer's buffers are what it comes with: 16 KiB, and 64 KiB in a pipe for splice(2). */
interface PeerSettings {
  readonly threads: number;
  readonly bufferKibibytes?: number;
}

/** Where a peer listens for what goes to a port of the Service. */
function localPort({ port }: Port): number {
  return 20_000 + port;
}

function ours(
  name: string,
  engine: 'fast' | 'node',
  { program: usual = PROGRAM, flags: more = [] }: { program?: string | undefined; flags?: readonly string[] } = {},
): Candidate {
  return {
    name,
    kind: 'ours',
    carriesUdp: true,
    async start(rig, program = usual) {
      const manifests = new Manifests(join(rig.topology.directory, 'manifests'));
      const ports = PORTS.map(({ name, protocol, port }) => ({
        name,
        port,
        target: port,
        protocol: protocol === 'udp' ? ('UDP' as const) : ('TCP' as const),
      }));
      const service = serviceObjects({ name: 'bench', clusterIP: CLUSTER_IP, ports, endpoints: [BACKEND] });
      manifests.write('bench.yaml', service);
      // The default one is for the whole machine: a proxy that runs there, or another benchmark, has it.
      const controlSocket = join(rig.topology.directory, `${name}.sock`);
      const flags = [
        '--manifests',
        manifests.directory,
        '--dataplane',
        engine,
        '--control-socket',
        controlSocket,
        ...more,
      ];
      const started = rig.run([program, ...flags]);
      const iptables = new Iptables(rig.topology.node);
      const hasRules = async () => {
        const rules = await iptables.rules('KUBE-PORTALS-CONTAINER').catch(() => []);
        return rules.filter((rule) => rule.includes(` -d ${CLUSTER_IP}/32 `)).length === PORTS.length;
      };
      await started.until('installs its rules', hasRules);
    },
  };
}

function goMissing(): string | undefined {
  return spawnSync('go', ['version']).status === 0 ? undefined : 'Go is not installed, so its column is missing';
}

async function startGo(rig: Rig): Promise<void> {
  const binary = join(rig.topology.directory, 'go-proxy');
  const { code, stderr } = await runCommand(['go', 'build', '-C', join(import.meta.dirname, 'go'), '-o', binary, '.'], {
    env: { CGO_ENABLED: '0', GOTOOLCHAIN: 'local', GOWORK: 'off', GOFLAGS: '' },
    timeoutMs: 180_000,
  });
  if (code !== 0) throw new Error(`go build ended with ${code}: ${stderr.trim()}`);
  const forwards = PORTS.map((port) => `${port.protocol}/${localPort(port)}/${BACKEND}:${port.port}`);
  await serve(rig, [binary, ...forwards], PORTS);
}

function haproxy(name: string, { threads, bufferKibibytes }: PeerSettings): Candidate {
  const ports = PORTS.filter(({ protocol }) => protocol === 'tcp');
  return {
    name,
    kind: 'peer',
    carriesUdp: false,
    async start(rig) {
      const config = rig.file('haproxy.cfg', [
        'global',
        `  nbthread ${threads}`,
        '  maxconn 4096',
        ...(bufferKibibytes === undefined ? [] : [`  tune.pipesize ${bufferKibibytes * 1024}`]),
        'defaults',
        '  mode tcp',
        '  option splice-auto',
        '  timeout connect 5s',
        '  timeout client 1h',
        '  timeout server 1h',
        ...ports.flatMap((port) => [
          `listen ${port.name}`,
          `  bind :${localPort(port)}`,
          `  server pod ${BACKEND}:${port.port}`,
        ]),
      ]);
      await serve(rig, ['haproxy', '-db', '-f', config], ports);
    },
  };
}

function nginx(name: string, { threads, bufferKibibytes }: PeerSettings): Candidate {
  const server = (port: Port) => {
    const isUdp = port.protocol === 'udp';
    // A worker knows its own UDP sessions only, so each needs a socket of its own.
    const listen = `${localPort(port)}${isUdp ? ' udp' : ''}${threads > 1 ? ' reuseport' : ''}`;
    return `  server { listen ${listen}; proxy_pass ${BACKEND}:${port.port}; proxy_timeout ${isUdp ? '250ms' : '1h'}; }`;
  };
  return {
    name,
    kind: 'peer',
    carriesUdp: true,
    async start(rig) {
      const config = rig.file('nginx.conf', [
        'load_module /usr/lib/nginx/modules/ngx_stream_module.so;',
        'daemon off;',
        `worker_processes ${threads};`,
        `pid ${join(rig.topology.directory, 'nginx.pid')};`,
        'error_log stderr;',
        'events { worker_connections 16384; }',
        'stream {',
        ...(bufferKibibytes === undefined ? [] : [`  proxy_buffer_size ${bufferKibibytes}k;`]),
        ...PORTS.map(server),
        '}',
      ]);
      await serve(rig, ['nginx', '-c', config, '-e', 'stderr'], PORTS);
    },
  };
}

async function serve(rig: Rig, argv: readonly string[], ports: readonly Port[]): Promise<void> {
  const program = rig.run(argv);
  await program.until('listens', () => listening(rig.topology.node, ports.map(localPort)));
  await steer(rig, ports, (port) => `REDIRECT --to-ports ${localPort(port)}`);
}

/**
 * Masqueraded, for backend and client share a bridge: the backend's answers would not pass the node. That packets leave
 * by the bridge that they came in by is no reason to redirect the client.
 */
async function startDnat(rig: Rig): Promise<void> {
  const noRedirects = 'for f in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 > $f; done';
  await rig.topology.node.output(['sh', '-c', noRedirects]);
  await steer(rig, PORTS, ({ port }) => `DNAT --to-destination ${BACKEND}:${port}`);
  await new Iptables(rig.topology.node).must(`-t nat -A POSTROUTING -d ${BACKEND}/32 -j MASQUERADE`);
}

/** The chain and the rules that our own program makes for a Service. */
async function steer(rig: Rig, ports: readonly Port[], target: (port: Port) => string): Promise<void> {
  const iptables = new Iptables(rig.topology.node);
  const chain = 'KUBE-PORTALS-CONTAINER';
  await iptables.must(`-t nat -N ${chain}`);
  await iptables.must(`-t nat -A PREROUTING -m comment --comment ClusterIPs -j ${chain}`);
  for (const port of ports) {
    const { name, protocol } = port;
    const match = `-d ${CLUSTER_IP}/32 -p ${protocol} -m comment --comment test/bench:${name} -m ${protocol}`;
    await iptables.must(`-t nat -A ${chain} ${match} --dport ${port.port} -j ${target(port)}`);
  }
}
