import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, afterEach, before } from 'node:test';
import { Agent } from './agent.ts';
import type { Captured } from './captured.ts';
import { CAPTURE, FLAVOUR, type Flavour, Iptables } from './iptables.ts';
import { Manifests, type ServiceOptions, serviceObjects } from './manifests.ts';
import { NftTable } from './nft-table.ts';
import type { Attempt } from './programs/outcomes.ts';
import { ProxyProcess } from './proxy.ts';
import { type Namespace, NODE_ADDRESS, POD_ADDRESSES, Topology } from './topology.ts';
import { PATIENCE_MS, waitFor } from './wait.ts';

/** What every backend pod serves: the name of the mode, the port. TCP and UDP ports are independent. */
export const TCP = {
  name: 8080,
  echo: 8081,
  sink: 8082,
  source: 8083,
  'early-end': 8088,
  peer: 8089,
} as const;
export const UDP = { 'udp-name': 8080, 'udp-echo': 8081, 'udp-peer': 8089 } as const;

/** The ports of a Service whose backends say who they are, over TCP and UDP. */
export const NAMING = [
  { name: 'tcp', port: 80, target: TCP.name },
  { name: 'udp', port: 80, target: UDP['udp-name'], protocol: 'UDP' },
] as const;

/** The same, and whom they take the client for: `10.244.1.20@pod-1`. */
export const PEERS = [
  { name: 'tcp', port: 80, target: TCP.peer },
  { name: 'udp', port: 80, target: UDP['udp-peer'], protocol: 'UDP' },
] as const;

/** A port at which nothing listens in any pod. */
export const NOBODY = 8099;

const METRICS = 'http://127.0.0.1:10249/metrics';

/** Which engine carries the traffic: `KUP_TEST_DATAPLANE` is fast (the default) or node. */
const ENGINE = process.env['KUP_TEST_DATAPLANE'] ?? 'fast';
/** Some things only that engine does. */
export const isFast = ENGINE === 'fast';

export interface ProxyOptions {
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Instead of what the environment was made for. */
  readonly capture?: typeof CAPTURE;
  /** What starts the proxy and becomes it, such as `setpriv`. */
  readonly through?: readonly string[];
  /** Instead of the program that is built from these sources. */
  readonly program?: string;
  /** Where Services come from, instead of {@link Environment.manifests}. */
  readonly source?: readonly string[];
  /** Instead of the node; needs {@link ready}, because the default asks the node's proxy. */
  readonly namespace?: Namespace;
  /** Instead of waiting for the first sync. */
  readonly ready?: () => Promise<boolean>;
  /** How long to wait for it. */
  readonly readyMs?: number;
}

/**
 * An environment for the tests of a suite, from its first test to its last: with one proxy for all of them, started
 * with these options, or `fresh`: each test starts its own, which ends with it.
 */
export function testEnvironment(
  proxies?: ProxyOptions | 'fresh',
  flavour: Flavour = FLAVOUR,
  capture = CAPTURE,
): Environment {
  const environment = new Environment(flavour, capture);
  before(async () => {
    await environment.build();
    if (typeof proxies === 'object') await environment.startProxy(proxies);
  });
  if (proxies === 'fresh') afterEach(() => environment.stopProxies());
  after(() => environment.remove());
  return environment;
}

/** A node with pods around it, agents in all of them, and a place for manifests; one for each test file. */
export class Environment {
  topology!: Topology;
  node!: Agent;
  pods!: readonly [Agent, Agent, Agent];
  client!: Agent;
  outside!: Agent;
  iptables!: Iptables;
  nft!: NftTable;
  /** What the proxies of this environment install. */
  captured!: Captured;
  manifests!: Manifests;
  /** The last one that was started. */
  proxy!: ProxyProcess;
  readonly #flavour: Flavour;
  readonly #capture: typeof CAPTURE;
  readonly #proxies = new Set<ProxyProcess>();
  #lastNumber = 0;

  constructor(flavour: Flavour = FLAVOUR, capture = CAPTURE) {
    this.#flavour = flavour;
    this.#capture = capture;
  }

  /** Makes all of it; nothing is there before. */
  async build(): Promise<void> {
    this.topology = await Topology.create();
    const { node, pods, client, outside } = this.topology;
    this.node = new Agent(node, 'node');
    this.pods = [new Agent(pods[0], 'pod-1'), new Agent(pods[1], 'pod-2'), new Agent(pods[2], 'pod-3')];
    this.client = new Agent(client, 'client');
    this.outside = new Agent(outside, 'outside');
    this.iptables = new Iptables(node, this.#flavour);
    this.nft = new NftTable(node);
    this.captured = this.#capture === 'nft' ? this.nft : this.iptables;
    this.manifests = new Manifests(this.temporary('manifests'));
    await Promise.all(this.pods.map(serveAll));
  }

  static async create(): Promise<Environment> {
    const environment = new Environment();
    await environment.build();
    return environment;
  }

  async remove(): Promise<void> {
    await Promise.all([...this.#proxies].map((proxy) => proxy.kill('SIGKILL')));
    // Undefined if it could not be made.
    this.topology?.remove();
  }

  /** A path of this environment's own. */
  temporary(name: string): string {
    return join(this.topology.directory, name);
  }

  /** A number that no other caller has: for addresses, ports and names that must not clash. */
  number(): number {
    this.#lastNumber++;
    return this.#lastNumber;
  }

  clusterIP(): string {
    return `10.96.1.${this.number()}`;
  }

  nodePort(): number {
    return 30_100 + this.number();
  }

  /** Starts the real program on the node and waits for its first sync. */
  async startProxy(options: ProxyOptions = {}): Promise<ProxyProcess> {
    const proxy = new ProxyProcess(
      options.namespace ?? this.topology.node,
      [
        ...(options.source ?? ['--manifests', this.manifests.directory]),
        '--capture',
        options.capture ?? this.#capture,
        '--iptables-mode',
        this.#flavour,
        '--dataplane',
        ENGINE,
        '--log-format',
        'json',
        '-v',
        '2',
        ...(options.args ?? []),
      ],
      {
        ...(options.env && { env: options.env }),
        ...(options.through && { through: options.through }),
        ...(options.program && { program: options.program }),
      },
    );
    this.#proxies.add(proxy);
    this.proxy = proxy;
    try {
      await waitFor(
        'the proxy syncs for the first time',
        async () => {
          if (!proxy.running) throw new Error('the proxy has ended');
          return options.ready === undefined ? (await this.lastSync()) > 0 : await options.ready();
        },
        options.readyMs,
      );
    } catch (error) {
      proxy.kill('SIGKILL');
      throw new Error(`${(error as Error).message}\n${proxy.tail()}`);
    }
    return proxy;
  }

  /** Stops every proxy and removes their rules, for the next one. */
  async stopProxies(): Promise<void> {
    for (const proxy of this.#proxies) await proxy.stop();
    this.#proxies.clear();
    await this.iptables.flush();
    if (this.captured === this.nft) await this.nft.flush();
    this.manifests.clear();
  }

  /**
   * Since when the rules of every address family have been in sync once more, in seconds since 1970; 0 before the first
   * time, and when the proxy does not answer.
   */
  async lastSync(): Promise<number> {
    const text = await this.metricsText().catch(() => '');
    const times = samples(text, 'kubeproxy_sync_proxy_rules_last_timestamp_seconds');
    return times.length === 0 ? 0 : Math.min(...times);
  }

  /** Whether the kernel has all that was wanted until now, in every address family. */
  async isInSync(): Promise<boolean> {
    const text = await this.metricsText();
    const [queued, synced] = ['queued_timestamp', 'timestamp'].map((what) =>
      samples(text, `kubeproxy_sync_proxy_rules_last_${what}_seconds`),
    );
    const isPending = metric(text, 'kubeproxy_sync_proxy_rules_service_changes_pending') > 0;
    return !isPending && synced!.every((at, family) => at >= queued![family]!);
  }

  async metricsText(): Promise<string> {
    return (await this.node.call('httpGet', { url: METRICS })).body;
  }

  /**
   * Writes the manifests of a new Service and waits for its rules; unless told otherwise, of port 80 to all backends,
   * which say who they are. Gives where to reach it.
   */
  async serve(options: Pick<ServiceOptions, 'name'> & Partial<ServiceOptions>): Promise<Served> {
    const usual = { ports: [{ port: 80, target: TCP.name }], endpoints: POD_ADDRESSES };
    const service = { clusterIP: this.clusterIP(), ...usual, ...options };
    this.write(service);
    await this.waitForRules(service.clusterIP, service.ports.length);
    return { ...service, host: service.clusterIP, port: service.ports[0]!.port };
  }

  /** Replaces the manifests of a Service. */
  write(service: ServiceOptions): void {
    this.manifests.write(`${service.name}.yaml`, serviceObjects(service));
  }

  /** Waits until this number of rules redirects this address for the node's pods. */
  async waitForRules(address: string, count: number, timeoutMs?: number): Promise<void> {
    const present = async () => {
      const portals = await this.captured.portals();
      return portals.filter((portal) => portal.address === address).length === count;
    };
    await waitFor(`${count} rules for ${address}`, present, timeoutMs);
  }

  /**
   * What becomes of a few clients over TCP and UDP, enough for every endpoint to have a turn: each outcome once,
   * sorted.
   */
  async outcomes(from: Agent, host: string, port: number, timeoutMs = PATIENCE_MS): Promise<string[]> {
    const over = async (protocol: Attempt['protocol']) => {
      const attempts = Array.from({ length: 4 }, () => ({ protocol, host, port }));
      return [...new Set(await from.call('outcomes', { attempts, timeoutMs }))].sort();
    };
    const [tcp, udp] = await Promise.all([over('tcp'), over('udp')]);
    return tcp.join() === udp.join() ? tcp : [...tcp, 'but over UDP', ...udp];
  }

  /** Until these are the outcomes over both protocols. */
  async until(from: Agent, host: string, port: number, expected: readonly string[]): Promise<void> {
    let seen: readonly string[] = [];
    const isSo = async () => {
      seen = await this.outcomes(from, host, port, 1_000);
      return seen.join() === expected.join();
    };
    await waitFor(`${expected} from ${from.name} at ${host}:${port}`, isSo).catch((error: Error) => {
      throw new Error(`${error.message}; last seen ${seen}\n${this.proxy.tail()}`);
    });
  }

  /** Fails unless a pod answers to a pod, to the node's programs, and to a machine outside by NodePort. */
  async assertServed({ host, port, ports }: Served): Promise<void> {
    const nodePort = ports[0]?.nodePort ?? 0;
    for (const [from, to] of [
      [this.client, { host, port }],
      [this.node, { host, port }],
      [this.outside, { host: NODE_ADDRESS, port: nodePort }],
    ] as const) {
      assert.match((await from.call('request', to)).name, /^pod-/, `${from.name} at ${to.host}`);
    }
  }

  /** The local port that this Service port (`test/name` or `test/name:port`) has been given, from the kernel. */
  async localPort(servicePort: string): Promise<number> {
    const portal = (await this.captured.portals()).find(({ name }) => name === servicePort);
    if (portal === undefined) throw new Error(`nothing leads to ${servicePort}`);
    return portal.localPort;
  }
}

export interface Served extends ServiceOptions {
  readonly host: string;
  readonly port: number;
}

/** Sum over the samples of one metric whose labels contain all of `labels` (as text: `port="http"`). */
export function metric(text: string, name: string, ...labels: readonly string[]): number {
  return samples(text, name, ...labels).reduce((sum, value) => sum + value, 0);
}

function samples(text: string, name: string, ...labels: readonly string[]): number[] {
  return text.split('\n').flatMap((line) => {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    return match?.[1] === name && labels.every((label) => match[2]?.includes(label)) ? [Number(match[3])] : [];
  });
}

/** `tcp address:port` of every TCP listener, and `udp …` of every UDP socket, in this namespace. */
export async function listeningPorts(node: Namespace): Promise<string[]> {
  const lines = (await node.output(['ss', '-Hltnu'])).split('\n').filter(Boolean);
  // Each once: a UDP port that several workers serve has several sockets.
  return [...new Set(lines.map((line) => `${line.split(/\s+/)[0]} ${line.split(/\s+/)[4]}`))];
}

async function serveAll(pod: Agent): Promise<void> {
  for (const [mode, port] of Object.entries(TCP)) await pod.serve(port, mode as keyof typeof TCP);
  for (const [mode, port] of Object.entries(UDP)) await pod.serve(port, mode as keyof typeof UDP);
}
