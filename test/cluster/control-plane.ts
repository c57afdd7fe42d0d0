import { type ChildProcess, execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Agent } from '../netns/agent.ts';
import type { Namespace } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';

/** Who may log in, by `--token-auth-file`. RBAC's own bindings give the rest. */
const USERS = {
  /** Group `system:masters`: everything. */
  admin: 'admin,admin,"system:masters"',
  /** What kube-proxy is: the role `system:node-proxier`. */
  proxy: 'system:kube-proxy,kube-proxy',
} as const;
export type User = keyof typeof USERS;

const READY_MS = 300_000;
/** A Service with an address of each family that there is, and a NodePort. */
const TRIAL = {
  metadata: { name: 'trial' },
  spec: { type: 'NodePort', ipFamilyPolicy: 'PreferDualStack', ports: [{ port: 80 }] },
};
const PORT = 6443;
const ETCD_PORT = 2379;

/** A path from the environment, where `scripts/test-cluster` puts it. */
export function binary(variable: 'KUBE_APISERVER' | 'ETCD' | 'KUBECTL' | 'HELM'): string {
  const path = process.env[variable];
  if (path !== undefined && existsSync(path)) return path;
  throw new Error(`${variable} names no program; run scripts/test-cluster, which finds or builds it`);
}

export interface ControlPlaneOptions {
  readonly node: Namespace;
  /** One on the node. */
  readonly agent: Agent;
  readonly address: string;
  /** For keys, data and logs. */
  readonly directory: string;
  /** Where cluster IPs come from: a CIDR, or one of each family, the primary one first. */
  readonly serviceRanges: string;
  /** More flags of the API server. */
  readonly flags?: readonly string[];
  /** By default 6443. */
  readonly port?: number;
  /** An etcd of its own with clients at this port and peers at the next, by default 2379; or that of this one. */
  readonly etcd?: number | ControlPlane;
  /** Keys, certificates and tokens of another one. */
  readonly keysOf?: ControlPlane;
}

/** A real etcd and a real kube-apiserver on the node, with RBAC on. Both end with their namespace. */
export class ControlPlane {
  /** For the proxy: the node's own address. */
  readonly server: string;
  /** For everybody else on the node, so that a fault on the way of the proxy hits nobody else. */
  readonly localServer: string;
  readonly #node: Namespace;
  readonly #agent: Agent;
  readonly #address: string;
  readonly #directory: string;
  readonly #serviceRanges: string;
  readonly #flags: readonly string[];
  readonly #port: number;
  readonly #etcdPort: number;
  readonly #keys: string;
  readonly #tokens: Readonly<Record<User, string>>;
  #apiServer: ChildProcess | undefined;

  private constructor(options: ControlPlaneOptions) {
    this.#node = options.node;
    this.#agent = options.agent;
    this.#address = options.address;
    this.#directory = options.directory;
    this.#serviceRanges = options.serviceRanges;
    this.#flags = options.flags ?? [];
    this.#port = options.port ?? PORT;
    this.server = `https://${options.address}:${this.#port}`;
    this.localServer = `https://localhost:${this.#port}`;
    const { etcd = ETCD_PORT, keysOf } = options;
    this.#etcdPort = typeof etcd === 'number' ? etcd : etcd.#etcdPort;
    this.#keys = keysOf === undefined ? options.directory : keysOf.#keys;
    const newToken = () => randomBytes(16).toString('hex');
    this.#tokens = keysOf === undefined ? { admin: newToken(), proxy: newToken() } : keysOf.#tokens;
  }

  static async start(options: ControlPlaneOptions): Promise<ControlPlane> {
    mkdirSync(options.directory);
    const plane = new ControlPlane(options);
    if (options.keysOf === undefined) {
      plane.#makeKeys();
      plane.#writeTokens();
    }
    if (!(options.etcd instanceof ControlPlane)) plane.#startEtcd();
    await plane.startApiServer();
    return plane;
  }

  get caFile(): string {
    // Self-signed, so it is its own authority. Names: the address, localhost, 10.96.0.1, kubernetes.default…
    return this.#key('certificates/apiserver.crt');
  }

  /** Signs the tokens of service accounts. */
  get serviceAccountKey(): string {
    return this.#key('service-accounts.key');
  }

  token(user: User): string {
    return this.#tokens[user];
  }

  /** Writes a kubeconfig as kubeadm does for kube-proxy, with a token file beside it. */
  writeKubeconfig(path: string, { user, server = this.localServer }: { user: User; server?: string }): void {
    writeFileSync(`${path}.token`, this.token(user), { mode: 0o600 });
    writeFileSync(`${path}.ca`, readFileSync(this.caFile));
    const cluster = server.startsWith('https:') ? { server, 'certificate-authority': `${path}.ca` } : { server };
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'default', cluster }],
      users: [{ name: user, user: { tokenFile: `${path}.token` } }],
      contexts: [{ name: 'default', context: { cluster: 'default', user } }],
      'current-context': 'default',
    };
    writeFileSync(path, JSON.stringify(config));
  }

  /** Resolves when it is ready. */
  async startApiServer(): Promise<void> {
    this.#apiServer = this.#spawn('apiserver.log', [
      binary('KUBE_APISERVER'),
      `--etcd-servers=http://127.0.0.1:${this.#etcdPort}`,
      // Also the endpoint of the Service default/kubernetes. Never a loopback address: it would refuse to start.
      `--advertise-address=${this.#address}`,
      `--secure-port=${this.#port}`,
      `--service-cluster-ip-range=${this.#serviceRanges}`,
      // Without RBAC everything would be allowed, and the rights of system:kube-proxy would go untested.
      '--authorization-mode=RBAC',
      // As on every cluster whose node agents are Pods: kube-proxy's is privileged.
      '--allow-privileged=true',
      `--token-auth-file=${this.#key('tokens.csv')}`,
      `--cert-dir=${this.#key('certificates')}`,
      // It does not start without these three.
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-key-file=${this.#key('service-accounts.pub')}`,
      `--service-account-signing-key-file=${this.#key('service-accounts.key')}`,
      ...this.#flags,
    ]);
    await waitFor(
      'the API server is ready',
      async () => {
        if (this.#apiServer?.exitCode !== null) throw new Error(`the API server has ended\n${this.logTail()}`);
        return await this.isReady();
      },
      READY_MS,
    ).catch((error: Error) => {
      throw new Error(`${error.message}\n${this.logTail()}`);
    });
  }

  /**
   * What it says of itself is ahead of its caches: of the ranges that Services get addresses from, and of the roles.
   */
  async isReady(): Promise<boolean> {
    if (!existsSync(this.caFile)) return false;
    return (
      (await this.#answers('admin', '/readyz')) &&
      (await this.#answers('admin', '/api/v1/namespaces/default/services?dryRun=All', TRIAL)) &&
      (await this.#answers('proxy', '/apis/discovery.k8s.io/v1/endpointslices?limit=1'))
    );
  }

  async #answers(user: User, path: string, body?: object): Promise<boolean> {
    const asked = this.#agent.call('https', {
      ...(body && { method: 'POST', body: JSON.stringify(body) }),
      url: `${this.localServer}${path}`,
      caFile: this.caFile,
      headers: { authorization: `Bearer ${this.token(user)}`, 'content-type': 'application/json' },
      timeoutMs: 2_000,
    });
    return await asked.then(
      ({ status }) => status < 400,
      () => false,
    );
  }

  signalApiServer(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#apiServer?.kill(signal);
  }

  async killApiServer(): Promise<void> {
    const server = this.#apiServer;
    if (server === undefined) return;
    const ended = new Promise((resolve) => server.once('close', resolve));
    server.kill('SIGKILL');
    await ended;
  }

  /** Makes etcd forget every version but the newest, as the API server does every five minutes. */
  async compact(): Promise<void> {
    // Through the JSON gateway of its gRPC API. All keys, none returned: only the revision counts.
    const found = await this.#etcd('range', { key: 'AA==', range_end: 'AA==', count_only: true });
    const { revision } = (found as { header: { revision: string } }).header;
    await this.#etcd('compaction', { revision, physical: true });
  }

  logTail(): string {
    return ['etcd.log', 'apiserver.log']
      .map((file) => this.#path(file))
      .filter(existsSync)
      .map((path) => readFileSync(path, 'utf8').split('\n').slice(-8).join('\n'))
      .join('\n');
  }

  async #etcd(operation: string, body: object): Promise<unknown> {
    const url = `http://127.0.0.1:${this.#etcdPort}/v3/kv/${operation}`;
    return JSON.parse(await this.#node.output(['curl', '-sSf', '-d', JSON.stringify(body), url]));
  }

  #startEtcd(): void {
    // Nothing that is tested survives a power cut, so nothing need reach the disk.
    this.#spawn('etcd.log', [
      binary('ETCD'),
      '--data-dir',
      this.#path('etcd'),
      '--unsafe-no-fsync',
      ...this.#etcdAddresses(),
      '--log-level',
      'warn',
    ]);
  }

  #etcdAddresses(): string[] {
    const at = (port: number) => `http://127.0.0.1:${port}`;
    const peers = at(this.#etcdPort + 1);
    const clients = at(this.#etcdPort);
    return [
      ...['--listen-client-urls', clients, '--advertise-client-urls', clients],
      ...['--listen-peer-urls', peers, '--initial-advertise-peer-urls', peers, '--initial-cluster', `default=${peers}`],
    ];
  }

  #spawn(log: string, argv: readonly string[]): ChildProcess {
    const output = openSync(this.#path(log), 'a');
    const child = this.#node.spawn(argv, {}, ['ignore', output, output]);
    closeSync(output);
    return child;
  }

  #writeTokens(): void {
    const lines = Object.entries(this.#tokens).map(([user, token]) => `${token},${USERS[user as User]}`);
    writeFileSync(this.#key('tokens.csv'), `${lines.join('\n')}\n`);
  }

  #makeKeys(): void {
    const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: this.#directory, stdio: 'pipe' });
    openssl('ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', 'service-accounts.key');
    openssl('ec', '-in', 'service-accounts.key', '-pubout', '-out', 'service-accounts.pub');
  }

  #key(file: string): string {
    return join(this.#keys, file);
  }

  #path(file: string): string {
    return join(this.#directory, file);
  }
}
