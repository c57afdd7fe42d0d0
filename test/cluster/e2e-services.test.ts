import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { listeningPorts, TCP, UDP } from '../netns/harness.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { CLIENT_ADDRESS, NODE_ADDRESS, OUTSIDE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { NAMESPACE } from './admin.ts';
import { Cluster, NODE_NAME, type ServedService, type Target } from './cluster.ts';
import { affinity, servicePort, sliceEndpoints, sliceObject, slicePorts } from './objects.ts';

/*
 * After the e2e tests of `test/e2e/network/service.go` and `loadbalancer.go` in kubernetes/kubernetes; those of traffic
 * policies are in e2e-traffic-policies.test.ts. Pods are namespaces, and the tests write the slices that
 * controllers write upstream. The assertions are upstream's, or stricter. Not here:
 * - should be able to create an internal type load balancer, should have correct load balancer health-check interval:
 *   they make a load balancer in a cloud.
 * - should handle load balancer cleanup finalizer for service: the service controller does that.
 * - SCTP, should allow creating a basic SCTP service … (3): SCTP is not served.
 * - proxy.go, should proxy through a service and a pod (3); should check NodePort out-of-range, should prevent NodePort
 *   collisions, should find a service from listing all namespaces, should test the lifecycle of an Endpoint: they test
 *   the API server, not the proxy.
 */

const HTTP = { port: 80, target: TCP.name } as const;
const [POD_1, POD_2] = POD_ADDRESSES;
const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;

describe('Services', () => {
  let cluster: Cluster;
  let proxy: ProxyProcess;

  before(async () => {
    cluster = await Cluster.create();
    proxy = await cluster.startProxy();
  });

  after(() => cluster.remove());

  const nodePortOf = ({ nodePort }: ServedService): Target => ({ host: NODE_ADDRESS, port: nodePort });
  const outside = () => [cluster.environment.client, cluster.environment.outside, cluster.environment.node];

  /** The backends that answered 15 requests from one client. */
  async function backends(target: Target, agent = cluster.environment.client): Promise<string[]> {
    const { names, failures } = await agent.call('requests', { host: target.host, port: target.port, count: 15 });
    assert.deepEqual(failures, {});
    return Object.keys(names);
  }

  test('the API server is a Service', async () => {
    const { spec } = await cluster.admin.request('GET', '/api/v1/namespaces/default/services/kubernetes');
    assert.equal(spec.ports[0].port, 443);
    assert.equal(spec.ports[0].name, 'https');
    // Through the proxy, from a pod, with the certificate verified.
    const reached = await waitFor('the API server answers at its ClusterIP', () =>
      cluster.environment.client
        .call('https', {
          url: `https://${spec.clusterIP}/readyz`,
          caFile: cluster.plane.caFile,
          headers: { authorization: `Bearer ${cluster.plane.token('admin')}` },
        })
        .catch(() => undefined),
    );
    assert.deepEqual(reached, { status: 200, body: 'ok' });
  });

  test('one port', async () => {
    const service = await cluster.serve({ name: cluster.name(), ports: [HTTP] }, []);
    for (const [addresses, names] of [
      [[POD_1], ['pod-1']],
      [
        [POD_1, POD_2],
        ['pod-1', 'pod-2'],
      ],
      [[POD_2], ['pod-2']],
    ] as const) {
      await cluster.setEndpoints(service.name, addresses);
      await cluster.isUp(service, names);
    }
    await cluster.setEndpoints(service.name, []);
    await cluster.isDown(service);
  });

  test('several ports', async () => {
    for (const pod of cluster.environment.pods) await pod.serve(9_100, 'name');
    const ports = [
      { name: 'portname1', port: 80, target: TCP.name },
      { name: 'portname2', port: 81, target: 9_100 },
    ];
    const service = await cluster.serve({ name: cluster.name(), ports }, []);
    const second = { ...service, port: 81 };
    // A slice of its own for each port, as for pods whose named ports differ.
    const slice = (name: string, port: (typeof ports)[number], address: string) =>
      cluster.admin.create('endpointslices', {
        metadata: { name, labels: { 'kubernetes.io/service-name': service.name } },
        addressType: 'IPv4',
        ports: slicePorts([port]),
        endpoints: sliceEndpoints([address]),
      });
    await slice('first', ports[0]!, POD_1);
    await cluster.isUp(service, ['pod-1']);
    await slice('second', ports[1]!, POD_2);
    await cluster.isUp(second, ['pod-2']);
    await cluster.isUp(service, ['pod-1']);
    await cluster.admin.delete('endpointslices', 'first');
    await cluster.isDown(service);
    await cluster.isUp(second, ['pod-2']);
    await cluster.admin.delete('endpointslices', 'second');
    await cluster.isDown(second);
  });

  test('a pod reaches itself', async () => {
    const service = await cluster.serve({ name: cluster.name(), ports: [HTTP] }, [POD_1]);
    await cluster.isUp(service, ['pod-1'], [cluster.environment.pods[0]]);
  });

  test('Services come and go', async () => {
    const create = () => cluster.serve({ name: cluster.name('up-down'), ports: [HTTP] }, POD_ADDRESSES);
    const [first, second] = [await create(), await create()];
    await cluster.isUp(first, ALL);
    await cluster.isUp(second, ALL);
    await cluster.deleteService(first.name);
    await cluster.isDown(first);
    await cluster.isUp(second, ALL);
    const third = await create();
    await cluster.isUp(second, ALL);
    await cluster.isUp(third, ALL);
    assert.notEqual(second.host, third.host);
  });

  test('the proxy restarts', async () => {
    const first = await cluster.serve({ name: cluster.name(), ports: [HTTP] }, POD_ADDRESSES);
    await cluster.isUp(first, ALL);
    proxy.kill('SIGKILL');
    await proxy.exited();
    const second = await cluster.create({ name: cluster.name(), ports: [HTTP] }, [POD_1]);
    proxy = await cluster.startProxy();
    await cluster.isUp(first, ALL);
    await cluster.isUp(second, ['pod-1']);
  });

  test('the API server restarts', async () => {
    const first = await cluster.serve({ name: cluster.name(), ports: [HTTP] }, POD_ADDRESSES);
    await cluster.isUp(first, ALL);
    await cluster.plane.killApiServer();
    await cluster.isUp(first, ALL);
    await cluster.plane.startApiServer();
    await cluster.isUp(first, ALL);
    const second = await cluster.create({ name: cluster.name(), ports: [HTTP] }, POD_ADDRESSES);
    await cluster.isUp(second, ALL);
    assert.notEqual(first.host, second.host);
  });

  test('a NodePort', async () => {
    const service = await cluster.serve({ name: cluster.name(), type: 'NodePort', ports: [HTTP] }, POD_ADDRESSES);
    await cluster.isUp(service, ALL);
    await cluster.isUp(nodePortOf(service), ALL, outside());
    await cluster.isUp({ host: '127.0.0.1', port: service.nodePort }, ALL, [cluster.environment.node]);
  });

  test('type and ports change', async () => {
    const ingress = { host: '203.0.113.7', port: 80 };
    const service = await cluster.serve({ name: cluster.name('mutability'), ports: [HTTP] }, POD_ADDRESSES);
    const patch = (spec: object) => cluster.admin.patch('services', service.name, { spec });
    const setIngress = (list: object[]) =>
      cluster.admin.patch('services', `${service.name}/status`, { status: { loadBalancer: { ingress: list } } });
    await cluster.isUp(service, ALL);

    const nodePort: number = (await patch({ type: 'NodePort' })).spec.ports[0].nodePort;
    await cluster.isUp({ host: NODE_ADDRESS, port: nodePort }, ALL, outside());
    await cluster.isUp(service, ALL);

    await patch({ type: 'LoadBalancer' });
    await setIngress([{ ip: ingress.host }]);
    await cluster.isUp(ingress, ALL, outside());

    // The server gives none of the first ports of the range by itself.
    const otherPort = 30_001;
    await patch({ ports: [{ ...servicePort(HTTP), nodePort: otherPort }] });
    await cluster.isUp({ host: NODE_ADDRESS, port: otherPort }, ALL, outside());
    await cluster.isDown({ host: NODE_ADDRESS, port: nodePort }, outside());

    await patch({ ports: [{ ...servicePort({ ...HTTP, port: 81 }), nodePort: otherPort }] });
    await cluster.isUp({ ...ingress, port: 81 }, ALL, outside());
    await cluster.isUp({ host: service.host, port: 81 }, ALL);
    await cluster.isUp({ host: NODE_ADDRESS, port: otherPort }, ALL, outside());
    await cluster.isDown(service);
    await cluster.isDown(ingress, outside());

    await patch({ type: 'ClusterIP', ports: [{ ...servicePort({ ...HTTP, port: 81 }), nodePort: null }] });
    await cluster.isDown({ host: NODE_ADDRESS, port: otherPort }, outside());
    await cluster.isDown({ ...ingress, port: 81 }, outside());
    await cluster.isUp({ host: service.host, port: 81 }, ALL);
  });

  test('one NodePort for both protocols', async () => {
    const service = await cluster.serve({ name: cluster.name(), ports: [{ name: 'tcp', ...HTTP }] }, []);
    const ports = [
      { name: 'tcp', port: 80, target: TCP.name },
      { name: 'udp', port: 80, target: UDP['udp-name'], protocol: 'UDP' },
    ] as const;
    const { spec } = await cluster.admin.patch('services', service.name, {
      spec: { type: 'NodePort', ports: ports.map(servicePort) },
    });
    await cluster.admin.patch('endpointslices', service.name, {
      ports: slicePorts(ports),
      endpoints: sliceEndpoints(POD_ADDRESSES),
    });
    const [tcp, udp] = spec.ports.map(({ nodePort }: { nodePort: number }) => nodePort);
    for (const [host, tcpPort, udpPort] of [
      [service.host, 80, 80],
      [NODE_ADDRESS, tcp, udp],
    ] as const) {
      await cluster.isUp({ host, port: tcpPort }, ALL);
      await cluster.isUpByUdp({ host, port: udpPort }, ALL, [cluster.environment.client]);
    }
  });

  for (const type of ['ClusterIP', 'NodePort'] as const) {
    test(`ExternalName becomes ${type}, and back`, async () => {
      const name = cluster.name('external');
      const external = { type: 'ExternalName', externalName: 'foo.example.com' };
      await cluster.admin.create('services', { metadata: { name }, spec: external });
      const { spec } = await cluster.admin.patch('services', name, {
        spec: { type, externalName: null, ports: [servicePort(HTTP)] },
      });
      await cluster.admin.create('endpointslices', sliceObject({ name, ports: [HTTP] }, POD_ADDRESSES));
      const target = { host: spec.clusterIP, port: 80 };
      const nodePort = { host: NODE_ADDRESS, port: spec.ports[0].nodePort };
      await cluster.isUp(target, ALL);
      if (type === 'NodePort') await cluster.isUp(nodePort, ALL, outside());
      const localPort = await cluster.environment.localPort(`${NAMESPACE}/${name}`);
      const listens = async () => {
        const all = await listeningPorts(cluster.environment.topology.node);
        return all.some((address) => address.endsWith(`:${localPort}`));
      };
      assert.ok(await listens());
      await cluster.admin.patch('services', name, {
        spec: { ...external, clusterIP: null, clusterIPs: null, ports: null },
      });
      await cluster.isDown(target);
      if (type === 'NodePort') await cluster.isDown(nodePort, outside());
      await waitFor('the listener is closed', async () => !(await listens()));
    });
  }

  test('pods that are not ready, where the Service wants them', async () => {
    const service = await cluster.serve({ name: cluster.name(), ports: [HTTP] }, [{ ip: POD_1, ready: false }]);
    await cluster.isDown(service);
    await cluster.setEndpoints(service.name, [{ ip: POD_1, ready: true }]);
    await cluster.isUp(service, ['pod-1']);
    await cluster.setEndpoints(service.name, [{ ip: POD_1, ready: false }, { ip: POD_2 }]);
    await cluster.isUp(service, ['pod-2']);
  });

  /** A Service with affinity. The part of a load balancer is played by writing its address into the status. */
  async function sticky(type: ServedService['type'] & string, affinitySeconds: number, policy?: string) {
    const options = { name: cluster.name('affinity'), type, affinitySeconds, ports: [HTTP] };
    const endpoints = POD_ADDRESSES.map((ip) => ({ ip, nodeName: NODE_NAME }));
    const service = await cluster.serve(
      { ...options, ...(policy !== undefined && { spec: { externalTrafficPolicy: policy } }) },
      endpoints,
    );
    const { host, port } =
      type === 'LoadBalancer'
        ? { host: await cluster.giveLoadBalancerIP(service.name), port: 80 }
        : type === 'NodePort'
          ? nodePortOf(service)
          : service;
    const ask = () => cluster.environment.outside.call('request', { host, port, timeoutMs: 300 });
    await waitFor('it is served', () => ask().catch(() => undefined));
    return { name: service.name, host, port };
  }

  for (const [type, of, policy] of [
    ['ClusterIP', 'service with type clusterIP'],
    ['NodePort', 'NodePort service'],
    ['LoadBalancer', 'LoadBalancer service with ESIPP off', 'Cluster'],
    ['LoadBalancer', 'LoadBalancer service with ESIPP on', 'Local'],
  ] as const) {
    test(`affinity, on and off, for ${of}`, async () => {
      const target = await sticky(type, 10_800, policy);
      const { client, outside } = cluster.environment;
      for (const agent of policy === undefined ? [client, outside] : [outside]) {
        assert.equal((await backends(target, agent)).length, 1);
      }
      const seen = async () => (await backends(target, outside)).length;
      await cluster.admin.patch('services', target.name, { spec: affinity() });
      await waitFor('every backend answers', async () => (await seen()) === 3);
      await cluster.admin.patch('services', target.name, { spec: affinity(10_800) });
      await waitFor('one backend answers', async () => (await seen()) === 1);
    });
  }

  for (const type of ['ClusterIP', 'NodePort'] as const) {
    test(`the timeout of affinity, for a ${type} Service`, async () => {
      const target = await sticky(type, 2);
      // One request each. After the timeout the next backend in turn answers.
      const backend = async () =>
        (await cluster.environment.client.call('request', { host: target.host, port: target.port })).name;
      const first = await backend();
      await sleep(2_500);
      assert.notEqual(await backend(), first);
    });
  }

  test('source ranges of a load balancer', async () => {
    const { client, pods, outside } = cluster.environment;
    const service = await cluster.serve({ name: cluster.name('lb'), type: 'LoadBalancer', ports: [HTTP] }, [POD_1]);
    const target = { host: await cluster.giveLoadBalancerIP(service.name), port: 80 };
    const setRanges = (addresses: readonly string[]) =>
      cluster.admin.patch('services', service.name, {
        spec: { loadBalancerSourceRanges: addresses.map((address) => `${address}/32`) },
      });
    await cluster.isUp(target, ['pod-1'], [client, pods[1], outside]);
    await setRanges([CLIENT_ADDRESS]);
    await cluster.becomes('timeout', { protocol: 'tcp', ...target }, [pods[1], outside]);
    await cluster.isUp(target, ['pod-1'], [client]);
    await setRanges([POD_2, OUTSIDE_ADDRESS]);
    await cluster.becomes('timeout', { protocol: 'tcp', ...target }, [client]);
    await cluster.isUp(target, ['pod-1'], [pods[1], outside]);
    // They are about the load balancer alone.
    await cluster.isUp(service, ['pod-1'], [client]);
    await cluster.isUp(nodePortOf(service), ['pod-1'], [client]);
    await setRanges([]);
    await cluster.isUp(target, ['pod-1'], [client, pods[1], outside]);
  });

  for (const label of ['service.kubernetes.io/service-proxy-name', 'service.kubernetes.io/headless']) {
    test(`the label ${label}`, async () => {
      const labels = { [label]: 'foo-bar' };
      const disabled = await cluster.create({ name: cluster.name('disabled'), labels, ports: [HTTP] }, POD_ADDRESSES);
      const toggled = await cluster.serve({ name: cluster.name('toggled'), ports: [HTTP] }, POD_ADDRESSES);
      await cluster.isUp(toggled, ALL);
      await cluster.isDown(disabled);
      const setLabels = async (patch: object) => {
        // The endpoint slice controller copies the labels of the Service.
        for (const kind of ['services', 'endpointslices'] as const) {
          await cluster.admin.patch(kind, toggled.name, { metadata: { labels: patch } });
        }
      };
      await setLabels(labels);
      await cluster.isDown(toggled);
      await setLabels({ [label]: null });
      await cluster.isUp(toggled, ALL);
      await cluster.isDown(disabled);
    });
  }

  test('refused without endpoints, and with evicted pods alone', async () => {
    const ports = [
      { name: 'tcp', port: 80, target: TCP.name },
      { name: 'udp', port: 90, target: UDP['udp-name'], protocol: 'UDP' },
    ] as const;
    const service = await cluster.serve({ name: cluster.name(), type: 'NodePort', ports }, []);
    const { spec } = await cluster.admin.get('services', service.name);
    const isRejected = async () => {
      for (const [index, protocol] of (['tcp', 'udp'] as const).entries()) {
        const { port, nodePort } = spec.ports[index];
        await cluster.becomes('ECONNREFUSED', { protocol, host: service.host, port }, outside());
        await cluster.becomes('ECONNREFUSED', { protocol, host: NODE_ADDRESS, port: nodePort }, outside());
      }
    };
    await isRejected();
    await cluster.setEndpoints(service.name, [POD_1]);
    await cluster.isUp(service, ['pod-1'], outside());
    // An evicted pod stays as an object, and its endpoint leaves the slice.
    await cluster.setEndpoints(service.name, []);
    await isRejected();
  });

  test('a NodePort is free when its Service has gone', async () => {
    const service = await cluster.serve({ name: cluster.name(), type: 'NodePort', ports: [HTTP] }, POD_ADDRESSES);
    await cluster.isUp(nodePortOf(service), ALL);
    await cluster.deleteService(service.name);
    await cluster.isDown(nodePortOf(service), outside());
    // The number is free for a program on the node, and for another Service.
    await cluster.environment.node.serve(service.nodePort, 'name');
    await cluster.isUp(nodePortOf(service), ['node'], outside());
    await cluster.environment.node.call('unlisten', { port: service.nodePort });
    const again = { ...service, name: cluster.name(), ports: [{ ...HTTP, nodePort: service.nodePort }] };
    await cluster.serve({ name: again.name, type: 'NodePort', ports: again.ports }, POD_ADDRESSES);
    await cluster.isUp(nodePortOf(service), ALL, outside());
  });
});
