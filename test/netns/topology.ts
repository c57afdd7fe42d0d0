import { type ChildProcess, execFile, type StdioOptions, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endProcess } from '../../src/kernel/process.ts';

/** The node: one bridge for pods, `eth0` with the default route. The same addresses as in test/golden. */
export const NODE_ADDRESS = '192.168.50.10';
export const BRIDGE_ADDRESS = '10.244.1.1';
export const POD_ADDRESSES = ['10.244.1.11', '10.244.1.12', '10.244.1.13'] as const;
export const CLIENT_ADDRESS = '10.244.1.20';
/** The host beyond the node's `eth0`, and the node's default gateway. */
export const OUTSIDE_ADDRESS = '192.168.50.1';
/** Of the node and the pod that {@link Topology.addNode} makes. */
export const OTHER_NODE = { IPv4: '192.168.51.10', IPv6: 'fd00:51::10' } as const;
export const OTHER_POD = { IPv4: '10.244.3.11', IPv6: 'fd00:244:3::11' } as const;
/** Of the pod that {@link Topology.addUnnumberedPod} makes. */
export const UNNUMBERED = { IPv4: '10.244.2.11', IPv6: 'fd00:244:2::11' } as const;

export interface RunOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly input?: string;
  readonly timeoutMs?: number;
}

export interface RunResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export function runCommand(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  const [file, ...args] = argv;
  return new Promise((resolve) => {
    const child = execFile(
      file!,
      args,
      { env: { ...process.env, ...options.env }, timeout: options.timeoutMs ?? 120_000, maxBuffer: 64 << 20 },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : null;
        resolve({ code, stdout, stderr: code === null ? `${stderr}${error?.message ?? ''}` : stderr });
      },
    );
    child.stdin?.on('error', () => {}); // The program may end without reading all of its input.
    child.stdin?.end(options.input ?? '');
  });
}

/** Standard output of a command that must succeed. */
export async function output(argv: readonly string[], options: RunOptions = {}): Promise<string> {
  const { code, stdout, stderr } = await runCommand(argv, options);
  if (code !== 0) throw new Error(`"${argv.join(' ')}" ended with ${code}: ${stderr.trim() || stdout.trim()}`);
  return stdout;
}

/** A named network namespace. `ip netns exec` replaces itself by the program, so a child's pid is the program's. */
export class Namespace {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  run(argv: readonly string[], options?: RunOptions): Promise<RunResult> {
    return runCommand(this.#inside(argv), options);
  }

  output(argv: readonly string[], options?: RunOptions): Promise<string> {
    return output(this.#inside(argv), options);
  }

  spawn(argv: readonly string[], env: NodeJS.ProcessEnv = {}, stdio: StdioOptions = 'pipe'): ChildProcess {
    const [file, ...args] = this.#inside(argv);
    return spawn(file!, args, { env: { ...process.env, ...env }, stdio });
  }

  /** Runs lines of `ip` commands here, all in one process. */
  ip(...lines: readonly string[]): Promise<string> {
    return output(['ip', '-n', this.name, '-batch', '-'], { input: lines.join('\n') });
  }

  /** The kernel tells a peer of some six unreachable ports, then of one a second. From now on, it tells of all. */
  async refuseAtAnyRate(): Promise<void> {
    const files = ['/proc/sys/net/ipv4/icmp_ratelimit', '/proc/sys/net/ipv6/icmp/ratelimit'];
    await this.output(['sh', '-c', `echo 0 | tee ${files.join(' ')}`]);
  }

  #inside(argv: readonly string[]): string[] {
    return ['ip', 'netns', 'exec', this.name, ...argv];
  }
}

const PREFIX = 'kup';
const alive = new Set<Topology>();

/**
 * A node with a bridge, three backend pods, a client pod and a host outside, each a network namespace of its own:
 *
 *     pod-1 .11   pod-2 .12   pod-3 .13   client .20
 *        └──────────┴─────┬─────┴───────────┘  10.244.1.0/24
 *                       cbr0 .1
 *                       node ── eth0 192.168.50.10 ─────── 192.168.50.1 outside
 *
 * Nothing is created in the caller's namespace, so removing the namespaces and the folder removes everything. They
 * go when {@link remove} is called, when this process exits by itself or by a signal, and at the next {@link create}
 * if it was killed outright.
 */
export class Topology {
  readonly node: Namespace;
  readonly pods: readonly [Namespace, Namespace, Namespace];
  readonly client: Namespace;
  readonly outside: Namespace;
  /** A folder for files that go with it. */
  readonly directory: string;
  readonly #all: Namespace[];

  private constructor() {
    const id = `${PREFIX}-${process.pid}-${randomBytes(3).toString('hex')}`;
    const namespace = (role: string) => new Namespace(`${id}-${role}`);
    this.node = namespace('node');
    this.pods = [namespace('pod-1'), namespace('pod-2'), namespace('pod-3')];
    this.client = namespace('client');
    this.outside = namespace('outside');
    this.directory = join(tmpdir(), id);
    this.#all = [this.node, ...this.pods, this.client, this.outside];
  }

  static async create(): Promise<Topology> {
    removeLeftovers();
    const topology = new Topology();
    if (alive.size === 0) removeAtExit();
    alive.add(topology);
    try {
      await topology.#build();
    } catch (error) {
      topology.remove();
      throw new Error(
        `cannot build the network namespaces (root and iproute2 are needed): ${(error as Error).message}`,
      );
    }
    return topology;
  }

  /**
   * One more pod, as the CNI plugins of Calico, AWS and Azure connect it: the interface on the node's side has no
   * address, the pod has one without a network, and reaches all else through a gateway that the node answers for (proxy
   * ARP, a link-local address). For the node's kernel, a neighbour on an unnumbered uplink is no different.
   */
  async addUnnumberedPod(): Promise<Namespace> {
    const pod = new Namespace(this.node.name.replace(/node$/, 'unnumbered'));
    this.#all.push(pod);
    await output(['ip', 'netns', 'add', pod.name]);
    await this.node.ip(
      `link add cali0 type veth peer name eth0 netns ${pod.name}`,
      'addr add fe80::1/64 dev cali0 nodad',
      'link set cali0 up',
      `route add ${UNNUMBERED.IPv4}/32 dev cali0`,
    );
    await this.node.output(['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/conf/cali0/proxy_arp']);
    await configureLonePod(pod, UNNUMBERED);
    await this.node.ip(`route add ${UNNUMBERED.IPv6}/128 dev cali0`);
    return pod;
  }

  /** Another node beyond the host outside, with a pod that it routes to by `cali0`. Both families. */
  async addNode(): Promise<{ readonly node: Namespace; readonly pod: Namespace }> {
    const [node, pod] = ['node-b', 'pod-b'].map((role) => new Namespace(this.node.name.replace(/node$/, role)));
    if (node === undefined || pod === undefined) throw new Error('two names');
    this.#all.push(node, pod);
    await output(['ip', '-batch', '-'], { input: `netns add ${node.name}\nnetns add ${pod.name}` });
    await this.outside.ip(
      `link add eth1 type veth peer name eth0 netns ${node.name}`,
      'addr add 192.168.51.1/24 dev eth1',
      'addr add fd00:51::1/64 dev eth1 nodad',
      'link set eth1 up',
      `route add ${OTHER_POD.IPv4}/32 via ${OTHER_NODE.IPv4}`,
    );
    await node.ip(
      'link set lo up',
      `addr add ${OTHER_NODE.IPv4}/24 dev eth0`,
      `addr add ${OTHER_NODE.IPv6}/64 dev eth0 nodad`,
      'link set eth0 up',
      'route add default via 192.168.51.1',
      'route add default via fd00:51::1',
      `link add cali0 type veth peer name eth0 netns ${pod.name}`,
      'addr add 169.254.1.1/32 dev cali0',
      'addr add fe80::1/64 dev cali0 nodad',
      'link set cali0 up',
    );
    await configureLonePod(pod, OTHER_POD);
    // Routes to a pod need its link to be up.
    await node.ip(`route add ${OTHER_POD.IPv4}/32 dev cali0`, `route add ${OTHER_POD.IPv6}/128 dev cali0`);
    await this.outside.ip(`route add ${OTHER_POD.IPv6}/128 via ${OTHER_NODE.IPv6}`);
    const forward = 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding';
    for (const router of [this.outside, node]) await router.output(['sh', '-c', forward]);
    return { node, pod };
  }

  /** Synchronous, so that it also works while the process exits. */
  remove(): void {
    for (const { name } of this.#all) removeNamespace(name);
    removeFolder(this.directory);
    alive.delete(this);
  }

  async #build(): Promise<void> {
    const pods = [
      [this.pods[0], POD_ADDRESSES[0]],
      [this.pods[1], POD_ADDRESSES[1]],
      [this.pods[2], POD_ADDRESSES[2]],
      [this.client, CLIENT_ADDRESS],
    ] as const;

    mkdirSync(this.directory);
    await output(['ip', '-batch', '-'], { input: this.#all.map(({ name }) => `netns add ${name}`).join('\n') });
    await this.node.ip(
      'link set lo up',
      'link add cbr0 type bridge',
      `addr add ${BRIDGE_ADDRESS}/24 dev cbr0`,
      'link set cbr0 up',
      `link add eth0 type veth peer name eth0 netns ${this.outside.name}`,
      `addr add ${NODE_ADDRESS}/24 dev eth0`,
      'link set eth0 up',
      ...pods.flatMap(([pod], index) => [
        `link add veth${index} type veth peer name eth0 netns ${pod.name}`,
        `link set veth${index} master cbr0 up`,
      ]),
      `route add default via ${OUTSIDE_ADDRESS}`,
    );
    await this.outside.ip(
      'link set lo up',
      `addr add ${OUTSIDE_ADDRESS}/24 dev eth0`,
      'link set eth0 up',
      // Cluster addresses as a host outside would reach them: through the node.
      `route add 10.96.0.0/16 via ${NODE_ADDRESS}`,
      `route add 10.244.1.0/24 via ${NODE_ADDRESS}`,
      `route add 203.0.113.0/24 via ${NODE_ADDRESS}`,
    );
    for (const [pod, address] of pods) {
      await pod.ip(
        'link set lo up',
        `addr add ${address}/24 dev eth0`,
        'link set eth0 up',
        `route add default via ${BRIDGE_ADDRESS}`,
      );
    }
    // All other settings keep the kernel's default: another setting could hide a fault.
    await this.node.output(['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward']);
  }
}

/** With all processes in it. */
export function removeNamespace(name: string): void {
  const { stdout } = spawnSync('ip', ['netns', 'pids', name], { encoding: 'utf8' });
  for (const pid of (stdout ?? '').split('\n').filter(Boolean)) {
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It ended by itself meanwhile.
    }
  }
  spawnSync('ip', ['netns', 'delete', name]);
}

/** What a run that was killed outright has left: its process id is in the names. */
function removeLeftovers(): void {
  const isLeftover = (name: string) => {
    const pid = new RegExp(`^${PREFIX}-(\\d+)-[0-9a-f]{6}`).exec(name)?.[1];
    return pid !== undefined && !isRunning(Number(pid));
  };
  const { stdout } = spawnSync('ip', ['netns', 'list'], { encoding: 'utf8' });
  // `ip` may add an "(id: 3)".
  const names = (stdout ?? '').split('\n').map((line) => line.split(' ')[0] ?? '');
  for (const name of names.filter(isLeftover)) removeNamespace(name);
  for (const name of readdirSync(tmpdir()).filter(isLeftover)) removeFolder(join(tmpdir(), name));
}

function removeFolder(path: string): void {
  // What has just been killed there may still write for a moment.
  rmSync(path, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

let exitHandled = false;

function removeAtExit(): void {
  if (exitHandled) return;
  exitHandled = true;
  process.on('exit', () => {
    for (const topology of alive) topology.remove();
  });
  const signals = [
    ['SIGHUP', 1],
    ['SIGINT', 2],
    ['SIGTERM', 15],
  ] as const;
  for (const [signal, number] of signals) process.on(signal, () => void endProcess(128 + number));
}

/** A pod in no subnet, as with Calico: everybody is behind its node. */
async function configureLonePod(pod: Namespace, { IPv4, IPv6 }: typeof OTHER_POD | typeof UNNUMBERED): Promise<void> {
  await pod.ip(
    'link set lo up',
    `addr add ${IPv4}/32 dev eth0`,
    `addr add ${IPv6}/128 dev eth0 nodad`,
    'link set eth0 up',
    'route add 169.254.1.1 dev eth0 scope link',
    'route add default via 169.254.1.1 dev eth0',
    'route add default via fe80::1 dev eth0',
  );
}
