import { ApiServer } from '../netns/api-server.ts';
import { type Environment, TCP, UDP } from '../netns/harness.ts';
import { CLIENT_ADDRESS, NODE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';

/** The node name of the proxy. */
export const NODE_NAME = 'node-1';
export const NAMESPACE = 'shop';
/** Sorted, as from `label_values`. */
export const SERVICES = ['dead', 'dns', 'elsewhere', 'web', 'wobbly'];
/** UDP flows of one Service port, for the proxy: the Service "dns" has more. */
export const MAX_FLOWS = 4;

const FLOWS = 8;
/** Rare enough for the bound on requests per second. */
const ROUNDS_PER_WATCH = 8;
/** An unused address. */
const NOBODY = '10.244.1.99';
const ADDRESSES = {
  dead: '10.96.2.1',
  dns: '10.96.2.2',
  elsewhere: '10.96.2.3',
  web: '10.96.2.4',
  wobbly: '10.96.2.5',
};

type ServiceName = keyof typeof ADDRESSES;

interface Backends {
  readonly addresses: readonly string[];
  readonly port: number;
  readonly protocol?: 'TCP' | 'UDP';
  readonly nodeName?: string;
}

/** Pods that answer, hosts that refuse, missing hosts, and endpoints of another node. */
const BACKENDS: Readonly<Record<ServiceName, Backends>> = {
  dead: { addresses: [CLIENT_ADDRESS], port: TCP.name },
  dns: { addresses: POD_ADDRESSES, port: UDP['udp-echo'], protocol: 'UDP' },
  elsewhere: { addresses: [POD_ADDRESSES[0]], port: TCP.name, nodeName: 'node-2' },
  web: { addresses: POD_ADDRESSES, port: TCP.name },
  wobbly: { addresses: [POD_ADDRESSES[0], CLIENT_ADDRESS, NOBODY], port: TCP.name },
};

/** An API server on the node, whose Services and endpoints are those of the workload. */
export class Cluster {
  readonly #server: ApiServer;

  private constructor(server: ApiServer) {
    this.#server = server;
  }

  static async start({ topology }: Environment): Promise<Cluster> {
    const server = await ApiServer.start(topology.node);
    for (const name of Object.keys(ADDRESSES) as ServiceName[]) await server.set(service(name), slice(name));
    return new Cluster(server);
  }

  get url(): string {
    return this.#server.url;
  }

  /** "web" is changed, and one of its endpoints comes or goes; the slice says when that was. */
  change(round: number): void {
    void this.#server.set(
      service('web', { affinity: round % 2 === 0 }),
      slice('web', { without: round % 2, changedAt: new Date() }),
    );
  }

  /** The proxy has to watch again. */
  endWatches(): void {
    this.#server.endWatches();
  }
}

/** Uses every Service and requests the health repeatedly, until the returned function is called and done. */
export async function startLoad(environment: Environment, cluster: Cluster): Promise<() => Promise<void>> {
  const { client, outside } = environment;
  const web = { host: ADDRESSES.web, port: 80 };
  // The proxy may have listed the objects before all of them were there.
  await environment.waitForRules(ADDRESSES.dns, 1);
  await waitFor('web is served', () => client.call('request', { ...web, timeoutMs: 1_000 }).catch(() => undefined));
  await client.call('open', web);
  const flows = await Promise.all(Array.from({ length: FLOWS }, () => client.call('udpOpen', {})));
  let running = true;
  // The proxy may close a connection whose request is late; the next round sends it again.
  const look = (path: string) =>
    outside.call('httpGet', { url: `http://${NODE_ADDRESS}:10256/${path}` }).catch(() => undefined);
  const rounds = async () => {
    for (let round = 0; running; round++) {
      cluster.change(round);
      if (round % ROUNDS_PER_WATCH === 0) cluster.endWatches();
      await Promise.all([
        client.call('requests', { host: ADDRESSES.web, port: 80, count: 20 }),
        client.call('requests', { host: ADDRESSES.wobbly, port: 80, count: 6 }),
        client.call('requests', { host: ADDRESSES.dead, port: 80, count: 2 }),
        ...flows.map(({ socket }) => client.call('udpSend', { socket, host: ADDRESSES.dns, port: 80, text: 'who?' })),
        ...['healthz', 'livez'].map(look),
      ]);
    }
  };
  const done = rounds();
  return async () => {
    running = false;
    await done;
  };
}

function service(name: ServiceName, { affinity = false } = {}): object {
  const { protocol = 'TCP', port, nodeName } = BACKENDS[name];
  return {
    kind: 'Service',
    metadata: { name, namespace: NAMESPACE },
    spec: {
      clusterIP: ADDRESSES[name],
      ports: [{ port: 80, targetPort: port, protocol }],
      ...(affinity && { sessionAffinity: 'ClientIP' }),
      ...(nodeName && { internalTrafficPolicy: 'Local' }),
    },
  };
}

function slice(
  name: ServiceName,
  { without, changedAt }: { readonly without?: number; readonly changedAt?: Date } = {},
): object {
  const { addresses, port, protocol = 'TCP', nodeName = NODE_NAME } = BACKENDS[name];
  return {
    kind: 'EndpointSlice',
    metadata: {
      name: `${name}-1`,
      namespace: NAMESPACE,
      labels: { 'kubernetes.io/service-name': name },
      annotations: changedAt && { 'endpoints.kubernetes.io/last-change-trigger-time': changedAt.toISOString() },
    },
    addressType: 'IPv4',
    ports: [{ port, protocol }],
    endpoints: addresses
      .filter((_, index) => index !== without)
      .map((address) => ({ addresses: [address], conditions: { ready: true }, nodeName })),
  };
}
