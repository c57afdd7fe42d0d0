import { after, before, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
import { BRIDGE_ADDRESS, CLIENT_ADDRESS, NODE_ADDRESS, OUTSIDE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { Cluster, NODE_NAME, type ServedService, type Target, waitShowing, ZONE } from './cluster.ts';
import type { Endpoint, ServiceOptions } from './objects.ts';

/*
 * After the e2e tests of kubernetes/kubernetes about who serves whom. There is one real node; the others are node names
 * in slices, and all their pods are here. `scripts/conformance` has real ones.
 */

const HTTP = { port: 80, target: TCP.name } as const;
/** At which a backend says whom it takes the client for. */
const PEER = { port: 80, target: TCP.peer } as const;
const [POD_1, POD_2, POD_3] = POD_ADDRESSES;
const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;

const here = (ip: string): Endpoint => ({ ip, nodeName: NODE_NAME });
const elsewhere = (ip: string): Endpoint => ({ ip, nodeName: 'node-2' });
const terminating = (endpoint: Endpoint): Endpoint => ({ ...endpoint, terminating: true });

const LOCAL_INSIDE = { spec: { internalTrafficPolicy: 'Local' } } as const;
const LOCAL_OUTSIDE = { type: 'NodePort', spec: { externalTrafficPolicy: 'Local' } } as const;

describe('traffic policies', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create();
    await cluster.startProxy({ args: ['--cluster-cidr', '10.244.0.0/16'] });
  });

  after(() => cluster.remove());

  const inside = () => [cluster.environment.client];
  const onNode = () => [cluster.environment.node];
  const outside = () => [cluster.environment.outside];

  const create = (options: Partial<ServiceOptions>, endpoints: readonly Endpoint[]) =>
    cluster.create({ name: cluster.name('policy'), ports: [HTTP], ...options }, endpoints);

  const nodePortOf = ({ nodePort }: ServedService): Target => ({ host: NODE_ADDRESS, port: nodePort });

  const isDropped = ({ host, port }: Target, from = inside()) =>
    cluster.becomes('timeout', { protocol: 'tcp', host, port }, from);

  describe('of Services', () => {
    for (const [where, from] of [
      ['Pod', inside],
      ['Pod (hostNetwork: true)', onNode],
    ] as const) {
      test(`internalTrafficPolicy Local: ${where} to a pod`, async () => {
        const service = await create(LOCAL_INSIDE, [here(POD_1), elsewhere(POD_2)]);
        await cluster.isUp(service, ['pod-1'], from());
        await cluster.setEndpoints(service.name, [elsewhere(POD_2)]);
        await isDropped(service, from());
      });
    }

    test('internalTrafficPolicy Local: to a pod on the host network', async () => {
      await cluster.environment.node.serve(TCP.name, 'name');
      const service = await create(LOCAL_INSIDE, [here(NODE_ADDRESS), elsewhere(POD_2)]);
      await cluster.isUp(service, ['node'], [...inside(), ...onNode()]);
      await cluster.setEndpoints(service.name, [elsewhere(POD_2)]);
      await isDropped(service, [...inside(), ...onNode()]);
    });

    test('externalTrafficPolicy Local: NodePorts lead to pods of the node', async () => {
      const service = await create(LOCAL_OUTSIDE, [here(POD_1), elsewhere(POD_2)]);
      await cluster.isUp(nodePortOf(service), ['pod-1'], outside());
      // From inside the cluster there is no load balancer that could choose another node.
      await cluster.isUp(nodePortOf(service), ['pod-1', 'pod-2'], [...inside(), ...onNode()]);
      await cluster.isUp(service, ['pod-1', 'pod-2'], inside());
    });

    const ENDING = [terminating(here(POD_1)), terminating(elsewhere(POD_2)), { ip: POD_3, ready: false }];

    test('terminating endpoints serve when none is ready', async () => {
      const service = await create({ type: 'NodePort' }, ENDING);
      await cluster.isUp(service, ['pod-1', 'pod-2'], inside());
      await cluster.isUp(nodePortOf(service), ['pod-1', 'pod-2'], outside());
      await cluster.setEndpoints(service.name, [...ENDING.slice(0, 2), elsewhere(POD_3)]);
      await cluster.isUp(service, ['pod-3'], inside());
    });

    test('terminating endpoints of the node serve when none there is ready, with the policies Local', async () => {
      const service = await create({ type: 'NodePort', spec: { ...LOCAL_INSIDE.spec, ...LOCAL_OUTSIDE.spec } }, [
        ...ENDING.slice(0, 2),
        elsewhere(POD_3),
      ]);
      await cluster.isUp(service, ['pod-1'], inside());
      await cluster.isUp(nodePortOf(service), ['pod-1'], outside());
      await cluster.isUp(nodePortOf(service), ['pod-3'], inside());
      await cluster.setEndpoints(service.name, [...ENDING.slice(0, 2), here(POD_3)]);
      await cluster.isUp(service, ['pod-3'], inside());
    });

    test('the health check node port fails when all endpoints terminate', async () => {
      const { service, host, healthCheck } = await createBalanced([here(POD_1)]);
      await isHealthy(healthCheck, 200);
      await cluster.setEndpoints(service.name, [terminating(here(POD_1))]);
      await isHealthy(healthCheck, 503);
      await cluster.isUp({ host, port: 80 }, ['pod-1'], outside());
    });

    test('node ports while externalTrafficPolicy changes', async () => {
      const { service, healthCheck } = await createBalanced([here(POD_1), elsewhere(POD_2)]);
      const target = nodePortOf(service);
      await cluster.isUp(target, ['pod-1'], outside());
      await isHealthy(healthCheck, 200);
      await cluster.setEndpoints(service.name, [elsewhere(POD_2)]);
      await isDropped(target, outside());
      await isHealthy(healthCheck, 503);
      const setPolicy = (policy: string) =>
        cluster.admin.patch('services', service.name, { spec: { externalTrafficPolicy: policy } });
      await setPolicy('Cluster');
      await cluster.isUp(target, ['pod-2'], outside());
      await isHealthy(healthCheck, undefined);
      const { spec } = await setPolicy('Local');
      await isDropped(target, outside());
      await isHealthy(spec.healthCheckNodePort, 503);
    });
  });

  /** `host`: the address of the load balancer. */
  async function createBalanced(endpoints: readonly Endpoint[]) {
    const service = await create({ ...LOCAL_OUTSIDE, type: 'LoadBalancer' }, endpoints);
    const host = await cluster.giveLoadBalancerIP(service.name);
    const { spec } = await cluster.admin.get('services', service.name);
    return { service, host, healthCheck: spec.healthCheckNodePort as number };
  }

  /** Until a load balancer gets this status; `undefined`: no answer. */
  const isHealthy = (port: number, expected: number | undefined) =>
    waitShowing(`:${port}/healthz answers ${expected}`, async (show) => {
      const url = `http://${NODE_ADDRESS}:${port}/healthz`;
      const answer = await cluster.environment.outside.call('httpGet', { url }).catch(() => undefined);
      show(answer?.status);
      return answer?.status === expected;
    });

  describe('load balancers with externalTrafficPolicy Local', () => {
    test('from outside and from pods, with and without endpoints on the node', async () => {
      const { service, host, healthCheck } = await createBalanced([elsewhere(POD_2)]);
      const target = { host, port: 80 };
      await isHealthy(healthCheck, 503);
      await isDropped(target, outside());
      await cluster.isUp(target, ['pod-2'], [...inside(), ...onNode()]);
      await cluster.setEndpoints(service.name, [elsewhere(POD_2), here(POD_1)]);
      await isHealthy(healthCheck, 200);
      await cluster.isUp(target, ['pod-1'], outside());
      await cluster.deleteService(service.name);
      await isHealthy(healthCheck, undefined);
    });

    test('the policy changes', async () => {
      const { service, host } = await createBalanced([here(POD_1), elsewhere(POD_2), elsewhere(POD_3)]);
      await cluster.isUp({ host, port: 80 }, ['pod-1'], outside());
      await cluster.admin.patch('services', service.name, { spec: { externalTrafficPolicy: 'Cluster' } });
      await cluster.isUp({ host, port: 80 }, ALL, outside());
      await cluster.isUp(nodePortOf(service), ALL, outside());
      await cluster.admin.patch('services', service.name, { spec: { externalTrafficPolicy: 'Local' } });
      await cluster.isUp({ host, port: 80 }, ['pod-1'], outside());
    });
  });

  describe('trafficDistribution', () => {
    // The controller turns either value into the same hints, and it is hints that a proxy sees.
    for (const value of ['PreferClose', 'PreferSameZone']) {
      test(`an endpoint of the same zone, with ${value}`, async () => {
        const hinted = (zones: readonly string[]) =>
          POD_ADDRESSES.map((ip, index) => ({ ...elsewhere(ip), zoneHint: zones[index]! }));
        const service = await create({ spec: { trafficDistribution: value } }, hinted([ZONE, 'zone-2', 'zone-3']));
        await cluster.isUp(service, ['pod-1'], inside());
        // A zone without an endpoint is served by all.
        await cluster.setEndpoints(service.name, hinted(['zone-2', 'zone-2', 'zone-3']));
        await cluster.isUp(service, ALL, inside());
      });
    }

    test('an endpoint that is meant for the node goes before those of its zone', async () => {
      const spec = { trafficDistribution: 'PreferSameNode' };
      const endpoints = POD_ADDRESSES.map((ip, index) => ({
        ...elsewhere(ip),
        zoneHint: ZONE,
        nodeHint: index === 0 ? NODE_NAME : 'node-2',
      }));
      const service = await create({ spec }, endpoints);
      await cluster.isUp(service, ['pod-1'], inside());
      await cluster.setEndpoints(service.name, endpoints.slice(1));
      await cluster.isUp(service, ['pod-2', 'pod-3'], inside());
    });
  });

  describe("the client's address", () => {
    const seen = (address: string, ...pods: readonly string[]) => pods.map((pod) => `${address}@${pod}`);

    test('of a pod, at a cluster IP', async () => {
      const service = await create({ ports: [PEER] }, [here(POD_1), elsewhere(POD_2)]);
      await cluster.isUp(service, seen(CLIENT_ADDRESS, 'pod-1', 'pod-2'), inside());
      await cluster.isUp(service, seen(BRIDGE_ADDRESS, 'pod-1', 'pod-2'), onNode());
    });

    test('of anybody, with externalTrafficPolicy Local', async () => {
      const endpoints = [here(POD_1), elsewhere(POD_2)];
      const service = await create({ ...LOCAL_OUTSIDE, type: 'LoadBalancer', ports: [PEER] }, endpoints);
      const balanced = { host: await cluster.giveLoadBalancerIP(service.name), port: 80 };
      for (const target of [nodePortOf(service), balanced]) {
        await cluster.isUp(target, seen(OUTSIDE_ADDRESS, 'pod-1'), outside());
        await cluster.isUp(target, seen(CLIENT_ADDRESS, 'pod-1', 'pod-2'), inside());
      }
      await cluster.admin.patch('services', service.name, { spec: { externalTrafficPolicy: 'Cluster' } });
      await cluster.isUp(balanced, seen(BRIDGE_ADDRESS, 'pod-1', 'pod-2'), outside());
      await cluster.isUp(service, seen(CLIENT_ADDRESS, 'pod-1', 'pod-2'), inside());
    });

    test('a Service may choose otherwise by its annotation, at any time', async () => {
      const service = await create({ ports: [PEER] }, [here(POD_1)]);
      const annotate = (value: string | null) =>
        cluster.admin.patch('services', service.name, {
          metadata: { annotations: { 'kube-userspace-proxy/client-address': value } },
        });
      await annotate('node');
      await cluster.isUp(service, seen(BRIDGE_ADDRESS, 'pod-1'), inside());
      await annotate(null);
      await cluster.isUp(service, seen(CLIENT_ADDRESS, 'pod-1'), inside());
    });
  });
});
