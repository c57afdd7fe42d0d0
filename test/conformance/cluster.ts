import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { binary, ControlPlane } from '../cluster/control-plane.ts';
import { Agent } from '../netns/agent.ts';
import { Namespace, output, removeNamespace } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { COREDNS, makeImages } from './images.ts';
import { ClusterNode, type Network } from './node.ts';

/** The control plane and the tests are here, and it is every node's gateway. */
const GATEWAY = ['172.30.0.1', 'fd00:30::1'] as const;
const POD_RANGES = ['10.244.0.0/16', 'fd00:244::/48'] as const;
const SERVICE_RANGES = '10.96.0.0/16,fd00:96::/112';
const CLUSTER_DNS = '10.96.0.10';
const READY_MS = 600_000;

export type ServiceProxy = 'kube-userspace-proxy' | 'kube-proxy';

export interface ClusterOptions {
  /** Keeps images and results between runs. */
  readonly directory: string;
  readonly bin: string;
  readonly nodes: number;
  readonly network: Network;
  /** Ours. */
  readonly program: string;
}

/**
 * A cluster of real nodes, each with kubelet and containerd in namespaces of its own:
 *
 *     gateway: kube-apiserver, etcd, controllers, e2e.test
 *        └─ br0 172.30.0.1 ── eth0 172.30.0.11, 10.244.1.0/24 of pods
 *                          └─ eth0 172.30.0.12, 10.244.2.0/24 of pods …
 */
export class ConformanceCluster {
  readonly #options: ClusterOptions;
  readonly #gateway = new Namespace('kup-e2e-gateway');
  readonly #networks: readonly Namespace[];
  readonly #nodes: ClusterNode[] = [];
  readonly #children: ChildProcess[] = [];
  readonly #state: string;
  #plane!: ControlPlane;
  #proxy: { readonly kind: ServiceProxy; readonly processes: readonly ChildProcess[] } | undefined;

  constructor(options: ClusterOptions) {
    this.#options = options;
    this.#state = join(options.directory, 'state');
    this.#networks = Array.from({ length: options.nodes }, (_, index) => new Namespace(`kup-e2e-node-${index + 1}`));
  }

  get kubeconfig(): string {
    return join(this.#state, 'admin.kubeconfig');
  }

  async start(): Promise<void> {
    mkdirSync(this.#state, { recursive: true });
    const images = makeImages(this.#options.directory, this.#options.bin);
    await this.#connect();
    await this.#startControlPlane();
    for (const [index, namespace] of this.#networks.entries()) {
      const number = index + 1;
      const name = `e2e-node-${number}`;
      this.#nodes.push(
        await ClusterNode.start({
          name,
          number,
          namespace,
          network: this.#options.network,
          directory: join(this.#state, name),
          bin: this.#options.bin,
          images,
          kubeconfig: this.kubeconfig,
          addresses: nodeAddresses(number),
          podRanges: podRanges(number),
          dns: { cluster: CLUSTER_DNS, upstream: GATEWAY[0] },
        }),
      );
    }
    await waitFor('all nodes are ready', async () => (await this.#readyNodes()) === this.#options.nodes, READY_MS);
    await this.kubectl(
      ['apply', '-f', '-'],
      coreDns()
        .map((object) => JSON.stringify(object))
        .join('\n'),
    );
  }

  /** Runs this proxy, and no other, on every node, and waits until the cluster's DNS is ready. */
  async runProxy(kind: ServiceProxy): Promise<void> {
    await this.stopProxy();
    const kubeconfig = join(this.#state, 'proxy.kubeconfig');
    const processes = this.#nodes.map((node) => {
      const common = [`--kubeconfig=${kubeconfig}`, `--hostname-override=${node.name}`, `--cluster-cidr=${POD_RANGES}`];
      return node.spawn(`${kind}.log`, [...this.#programOf(kind), ...common]);
    });
    this.#proxy = { kind, processes };
    const wait = ['rollout', 'status', 'deployment/coredns', '--namespace=kube-system', '--timeout=10m'];
    await this.kubectl(wait);
  }

  async stopProxy(): Promise<void> {
    if (this.#proxy === undefined) return;
    const { kind, processes } = this.#proxy;
    this.#proxy = undefined;
    const [program = ''] = this.#programOf(kind);
    for (const [index, process] of processes.entries()) {
      // `nsenter` waits for its only child.
      await output(['pkill', '-TERM', '-P', String(process.pid)]);
      await waitFor(`${kind} ends`, () => process.exitCode !== null || process.signalCode !== null);
      const cleanup = this.#nodes[index]!.spawn('cleanup.log', [program, '--cleanup']);
      await waitFor(`${kind} has cleaned up`, () => cleanup.exitCode !== null);
    }
  }

  async kubectl(args: readonly string[], input?: string): Promise<string> {
    const argv = this.inGateway([binary('KUBECTL'), `--kubeconfig=${this.kubeconfig}`, ...args]);
    return await output(argv, { timeoutMs: READY_MS, ...(input !== undefined && { input }) });
  }

  inGateway(argv: readonly string[]): string[] {
    return ['nsenter', `--net=/run/netns/${this.#gateway.name}`, ...argv];
  }

  async remove(): Promise<void> {
    for (const node of this.#nodes) await node.remove();
    for (const child of this.#children) child.kill('SIGKILL');
    for (const { name } of [this.#gateway, ...this.#networks]) removeNamespace(name);
    rmSync(this.#state, { recursive: true, force: true, maxRetries: 20, retryDelay: 500 });
  }

  #programOf(kind: ServiceProxy): readonly string[] {
    // In a network namespace the sizes of connection tracking are read-only.
    const conntrack = ['--conntrack-max-per-core=0', '--conntrack-min=0'];
    return kind === 'kube-proxy'
      ? [join(this.#options.bin, kind), ...conntrack, '--proxy-mode=iptables']
      : [this.#options.program];
  }

  async #connect(): Promise<void> {
    for (const { name } of [this.#gateway, ...this.#networks]) {
      removeNamespace(name);
      await output(['ip', 'netns', 'add', name]);
    }
    await this.#gateway.ip(
      'link set lo up',
      'link add br0 type bridge',
      ...GATEWAY.map((address, family) => `addr add ${address}/${family === 0 ? 24 : '64 nodad'} dev br0`),
      'link set br0 up',
    );
    await settings(this.#gateway, FORWARDING);
    for (const [index, node] of this.#networks.entries()) {
      const number = index + 1;
      await this.#gateway.ip(
        `link add node${number} type veth peer name eth0 netns ${node.name}`,
        `link set node${number} master br0 up`,
      );
      await settings(node, this.#options.network === 'bridge' ? [...FORWARDING, ...BRIDGE] : FORWARDING);
      await node.ip(
        'link set lo up',
        ...nodeAddresses(number).map(
          (address, family) => `addr add ${address}/${family === 0 ? 24 : '64 nodad'} dev eth0`,
        ),
        'link set eth0 up',
        ...GATEWAY.map((address) => `route add default via ${address}`),
      );
      const [pods, pods6] = podRanges(number);
      const [address, address6] = nodeAddresses(number);
      await this.#gateway.ip(`route add ${pods} via ${address}`, `route add ${pods6} via ${address6}`);
      // As flannel, kindnet and ip-masq-agent do: what is no pod sees a pod's node.
      for (const [program, range] of [['iptables', POD_RANGES[0]] as const, ['ip6tables', POD_RANGES[1]] as const]) {
        const rule = ['POSTROUTING', '-s', range, '!', '-d', range, '-j', 'MASQUERADE'];
        await node.output([program, '-t', 'nat', '-A', ...rule]);
      }
    }
  }

  async #startControlPlane(): Promise<void> {
    const directory = join(this.#state, 'control-plane');
    const address = GATEWAY[0];
    this.#plane = await ControlPlane.start({
      node: this.#gateway,
      agent: new Agent(this.#gateway, 'gateway'),
      address,
      directory,
      serviceRanges: SERVICE_RANGES,
      // Nobody knows the nodes' names.
      flags: ['--kubelet-preferred-address-types=InternalIP'],
    });
    const { server } = this.#plane;
    this.#plane.writeKubeconfig(this.kubeconfig, { user: 'admin', server });
    this.#plane.writeKubeconfig(join(this.#state, 'proxy.kubeconfig'), { user: 'proxy', server });
    const config = `--kubeconfig=${this.kubeconfig}`;
    const common = [config, '--leader-elect=false', `--cert-dir=${directory}`];
    this.#spawn('kube-controller-manager', [
      ...common,
      '--allocate-node-cidrs=false',
      `--service-cluster-ip-range=${SERVICE_RANGES}`,
      `--root-ca-file=${this.#plane.caFile}`,
      `--service-account-private-key-file=${this.#plane.serviceAccountKey}`,
    ]);
    this.#spawn('kube-scheduler', common);
  }

  #spawn(name: string, args: readonly string[]): void {
    const file = openSync(join(this.#state, `${name}.log`), 'a');
    const [program, ...rest] = this.inGateway([join(this.#options.bin, name), ...args]);
    this.#children.push(spawn(program!, rest, { stdio: ['ignore', file, file] }));
    closeSync(file);
  }

  async #readyNodes(): Promise<number> {
    const path = 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}';
    const text = await this.kubectl(['get', 'nodes', `--output=${path}`]).catch(() => '');
    return text.split(' ').filter((status) => status === 'True').length;
  }
}

const FORWARDING = ['net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1', 'net.ipv6.conf.default.accept_dad=0'];
/** What kube-proxy needs where pods are behind a bridge. */
const BRIDGE = ['net.bridge.bridge-nf-call-iptables=1', 'net.bridge.bridge-nf-call-ip6tables=1'];

async function settings(namespace: Namespace, list: readonly string[]): Promise<void> {
  await namespace.output(['sysctl', '-qw', ...list]);
}

function nodeAddresses(number: number): readonly [string, string] {
  return [`172.30.0.1${number}`, `fd00:30::1${number}`];
}

function podRanges(number: number): readonly [string, string] {
  return [`10.244.${number}.0/24`, `fd00:244:0:${number}::/64`];
}

/** The cluster's DNS, which most tests look names up in. */
function coreDns(): object[] {
  const metadata = { name: 'coredns', namespace: 'kube-system' };
  const labels = { 'k8s-app': 'kube-dns' };
  const read = ['list', 'watch'];
  const subject = { kind: 'ServiceAccount', ...metadata };
  const corefile = `.:53 {
    errors
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
      pods insecure
      fallthrough in-addr.arpa ip6.arpa
    }
    cache 5
  }`;
  const container = {
    name: 'coredns',
    image: COREDNS,
    imagePullPolicy: 'IfNotPresent',
    args: ['-conf', '/etc/coredns/Corefile'],
    volumeMounts: [{ name: 'config', mountPath: '/etc/coredns' }],
    readinessProbe: { httpGet: { path: '/ready', port: 8181 }, periodSeconds: 2 },
  };
  const ports = [
    { name: 'dns', port: 53, protocol: 'UDP' },
    { name: 'dns-tcp', port: 53, protocol: 'TCP' },
  ];
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata },
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRole',
      metadata: { name: 'coredns' },
      rules: [
        { apiGroups: [''], resources: ['endpoints', 'services', 'pods', 'namespaces'], verbs: read },
        { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: read },
      ],
    },
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: 'coredns' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'coredns' },
      subjects: [subject],
    },
    { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { Corefile: corefile } },
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { ...metadata, labels },
      spec: {
        replicas: 2,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            serviceAccountName: 'coredns',
            dnsPolicy: 'Default',
            containers: [container],
            volumes: [{ name: 'config', configMap: { name: 'coredns' } }],
          },
        },
      },
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'kube-dns', namespace: 'kube-system', labels },
      spec: { clusterIP: CLUSTER_DNS, selector: labels, ports },
    },
  ];
}
