import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Agent } from '../netns/agent.ts';
import { TCP, UDP } from '../netns/harness.ts';
import { IPV6 } from '../netns/ipv6.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import type { ApiObject } from './admin.ts';
import { Cluster, type Target } from './cluster.ts';
import { affinity, type ServiceOptions, serviceObject, sliceEndpoints, sliceObject } from './objects.ts';

/*
 * After the e2e tests of `test/e2e/network/dual_stack.go` in kubernetes/kubernetes, on a node with addresses of both
 * families. Not applicable: the four of node and pod addresses (about kubelet and network plugin), and SCTP.
 */

const PORTS = [
  { name: 'http', port: 80, target: TCP.name },
  { name: 'udp', port: 90, target: UDP['udp-name'], protocol: 'UDP' },
] as const;
const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;
type Protocol = 'http' | 'udp';

const BOTH = { ipFamilyPolicy: 'RequireDualStack', ipFamilies: ['IPv4', 'IPv6'] };

/** A Service of both families: where to reach it, by protocol. */
interface DualStack {
  readonly name: string;
  readonly http: readonly Target[];
  readonly udp: readonly Target[];
}

describe('Services of both families', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create({ dualStack: true });
    const { pods, node } = cluster.environment;
    await Promise.all(
      [...pods, node].map(async (agent, index) => {
        const host = [...IPV6.pods, IPV6.node][index]!;
        await agent.call('listenTcp', { port: TCP.name, mode: 'name', name: agent.name, host });
        await agent.call('listenUdp', { port: UDP['udp-name'], mode: 'udp-name', name: agent.name, host });
      }),
    );
    await node.serve(TCP.name, 'name');
    await node.serve(UDP['udp-name'], 'udp-name');
    await cluster.startProxy();
  });

  after(() => cluster.remove());

  const everywhere = () => [cluster.environment.client, cluster.environment.node, cluster.environment.outside];

  /** Its slices are there before it is. */
  async function create(
    spec: object,
    options: Partial<ServiceOptions> = {},
    endpoints: { readonly IPv4: readonly string[]; readonly IPv6: readonly string[] } = {
      IPv4: POD_ADDRESSES,
      IPv6: IPV6.pods,
    },
  ): Promise<ApiObject> {
    const service = { name: cluster.name('dual'), ports: PORTS, ...options, spec };
    for (const family of ['IPv4', 'IPv6'] as const) {
      await cluster.admin.create('endpointslices', sliceObject(service, endpoints[family], family));
    }
    return cluster.admin.create('services', serviceObject(service));
  }

  async function createBoth(
    options: Partial<ServiceOptions> = {},
    endpoints?: Parameters<typeof create>[2],
  ): Promise<DualStack> {
    const { metadata, spec } = await create(BOTH, { type: 'NodePort', ...options }, endpoints);
    const [http, udp] = spec.ports;
    const targets = ({ port, nodePort }: { port: number; nodePort: number }) => [
      ...spec.clusterIPs.map((host: string) => ({ host, port })),
      ...[NODE_ADDRESS, IPV6.node].map((host) => ({ host, port: nodePort })),
    ];
    return { name: metadata.name, http: targets(http), udp: targets(udp) };
  }

  /** At every address, from each of these places, by exactly these backends. */
  async function isUp(
    service: DualStack,
    protocol: Protocol,
    names: readonly string[],
    from: readonly Agent[],
  ): Promise<void> {
    for (const target of service[protocol]) {
      await (protocol === 'http' ? cluster.isUp(target, names, from) : cluster.isUpByUdp(target, names, from));
    }
  }

  for (const [families, name] of [
    [['IPv4'], 'ipv4'],
    [['IPv6'], 'ipv6'],
    [['IPv4', 'IPv6'], 'ipv4,v6'],
    [['IPv6', 'IPv4'], 'ipv6,v4'],
  ] as const) {
    test(`a Service with ${name} cluster IP is served`, async () => {
      const ipFamilyPolicy = families.length === 1 ? 'SingleStack' : 'RequireDualStack';
      const { spec } = await create({ ipFamilyPolicy, ipFamilies: families });
      assert.deepEqual(spec.ipFamilies, families);
      const ranges = { IPv4: '10.96.', IPv6: 'fd00:96::' };
      assert.ok(families.every((family, index) => spec.clusterIPs[index].startsWith(ranges[family])));
      for (const host of spec.clusterIPs) await cluster.isUp({ host, port: 80 }, ALL, everywhere());
    });
  }

  test('a cluster IP comes from the primary range', async () => {
    const { spec } = await create({});
    assert.deepEqual([spec.ipFamilies, spec.clusterIPs], [['IPv4'], [spec.clusterIP]]);
    await cluster.isUp({ host: spec.clusterIP, port: 80 }, ALL);
  });

  test('a Service that becomes dual-stack is served by the second family, and one that is no longer, not', async () => {
    const { metadata, spec } = await create({});
    const { spec: both } = await cluster.admin.patch('services', metadata.name, { spec: BOTH });
    const second = { host: both.clusterIPs[1], port: 80 };
    await cluster.isUp(second, ALL);
    await cluster.admin.patch('services', metadata.name, {
      spec: { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv4'], clusterIPs: [spec.clusterIP] },
    });
    await cluster.isDown(second);
    await cluster.isUp({ host: spec.clusterIP, port: 80 }, ALL);
  });

  describe('who reaches whom', () => {
    let service: DualStack;

    before(async () => {
      service = await createBoth();
    });

    for (const protocol of ['http', 'udp'] as const) {
      for (const [where, from] of [
        ['pod-Service', () => [cluster.environment.client]],
        ['node-Service', () => [cluster.environment.node]],
        ['endpoint-Service', () => [cluster.environment.pods[0]]],
      ] as const) {
        test(`${where}: ${protocol}`, () => isUp(service, protocol, ALL, from()));
      }

      test(`endpoints change: ${protocol}`, async () => {
        const other = await createBoth();
        await isUp(other, protocol, ALL, [cluster.environment.client]);
        await cluster.setEndpoints(other.name, POD_ADDRESSES.slice(1));
        await cluster.setEndpoints(`${other.name}-ipv6`, IPV6.pods.slice(1));
        await isUp(other, protocol, ALL.slice(1), [cluster.environment.client]);
      });
    }

    test('affinity by client IP: http', async () => {
      const { name, http } = await createBoth({ affinitySeconds: 10_800 });
      const seen = async ({ host, port }: Target) => {
        const { client } = cluster.environment;
        // What meets no rule yet is lost without a word.
        await waitFor('it is served', () =>
          client.call('request', { host, port, timeoutMs: 300 }).catch(() => undefined),
        );
        return Object.keys((await client.call('requests', { host, port, count: 9 })).names).length;
      };
      for (const target of http) await waitFor('one backend answers', async () => (await seen(target)) === 1);
      await cluster.admin.patch('services', name, { spec: affinity() });
      for (const target of http) await waitFor('every backend answers', async () => (await seen(target)) === 3);
    });

    test('affinity by client IP: udp', async () => {
      const { udp } = await createBoth({ affinitySeconds: 10_800 });
      for (const { host, port } of udp) {
        await waitFor('all flows are answered by one backend', async () => {
          const flows = await cluster.environment.client.call('udpFlows', {
            ...{ host, port, count: 9, timeoutMs: 2_000 },
          });
          return flows['none'] === undefined && Object.values(flows).includes(9);
        });
      }
    });

    test('endpoints on the host network', async () => {
      const onNode = await createBoth({}, { IPv4: [NODE_ADDRESS], IPv6: [IPV6.node] });
      for (const protocol of ['http', 'udp'] as const) await isUp(onNode, protocol, ['node'], everywhere());
    });

    test('what is for a pod itself goes there', async () => {
      for (const [index, name] of ALL.entries()) {
        for (const host of [POD_ADDRESSES[index]!, IPV6.pods[index]!]) {
          await cluster.isUp({ host, port: TCP.name }, [name], everywhere());
        }
      }
    });

    test('without endpoints in one family, that one is refused and the other served', async () => {
      const other = await createBoth({}, { IPv4: POD_ADDRESSES, IPv6: [] });
      const [first, second] = other.http;
      await cluster.isUp(first!, ALL);
      await cluster.becomes('ECONNREFUSED', { protocol: 'tcp', ...second! });
      await cluster.admin.patch('endpointslices', `${other.name}-ipv6`, { endpoints: sliceEndpoints(IPV6.pods) });
      await cluster.isUp(second!, ALL);
    });
  });
});
