import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { TCP, UDP } from '../netns/harness.ts';
import type { Iptables } from '../netns/iptables.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { NAMESPACE } from './admin.ts';
import { Cluster, NODE_NAME, type ServedService, type Target } from './cluster.ts';
import { sliceEndpoints } from './objects.ts';

/*
 * After the e2e tests of `test/e2e/network/` in kubernetes/kubernetes; `scripts/conformance` runs these themselves.
 * Those of service.go, loadbalancer.go and dual_stack.go have files of their own. Not here:
 * - kube_proxy.go, should resolve connection reset issue #74839: it is about translated packets that connection
 *   tracking gives up; here the segments of a backend end at a socket of the proxy.
 * - networking.go, pod-Service(hostNetwork): udp: upstream skips it (#95565).
 * - networking.go, should function for pod-Service, node-Service, endpoint-Service, for client IP based session
 *   affinity and for service endpoints using hostNetwork; should update endpoints: dual_stack.go has the same for both
 *   families.
 * - service_latency.go, networking_perf.go: `bench/` measures it.
 */

const PORTS = [
  { name: 'http', port: 80, target: TCP.name },
  { name: 'udp', port: 90, target: UDP['udp-name'], protocol: 'UDP' },
] as const;
const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;

describe('a node with a control plane', () => {
  let cluster: Cluster;
  let proxy: ProxyProcess;

  before(async () => {
    cluster = await Cluster.create();
    proxy = await cluster.startProxy();
    // Its event takes up to half a minute, see the test about it.
    const ports = [{ name: 'sctp', protocol: 'SCTP', port: 80 }];
    await cluster.admin.create('services', { metadata: { name: '1-sctp' }, spec: { ports } });
  });

  after(() => cluster.remove());

  const create = (options: { affinitySeconds?: number } = {}, endpoints: readonly string[] = POD_ADDRESSES) =>
    // Names may begin with a digit (KEP-5311), and do so in rules, metrics and events.
    cluster.serve({ name: cluster.name('1-network'), type: 'NodePort', ports: PORTS, ...options }, endpoints);

  async function nodePorts(name: string): Promise<{ http: number; udp: number }> {
    const { spec } = await cluster.admin.get('services', name);
    const [http, udp] = spec.ports.map(({ nodePort }: { nodePort: number }) => nodePort);
    return { http, udp };
  }

  async function isDownByUdp(target: { host: string; port: number }): Promise<void> {
    const { socket } = await cluster.environment.client.call('udpOpen', {});
    await waitFor(`udp ${target.host}:${target.port} is not served`, async () => {
      return (
        (await cluster.environment.client.call('udpAsk', { socket, ...target, text: 'who', timeoutMs: 300 })) ===
        undefined
      );
    });
  }

  describe('networking', () => {
    let service: ServedService;

    before(async () => {
      service = await create();
    });

    test('a NodePort changes: http and udp', async () => {
      const { name } = await create();
      const { http, udp } = await nodePorts(name);
      const [byHttp, byUdp] = [http, udp].map((port) => ({ host: NODE_ADDRESS, port })) as [Target, Target];
      await cluster.isUp(byHttp, ALL);
      await cluster.isUpByUdp(byUdp, ALL, [cluster.environment.client, cluster.environment.outside]);
      await cluster.deleteService(name);
      await cluster.isDown(byHttp);
      await isDownByUdp(byUdp);
    });

    test('large requests: http and udp', async () => {
      const ports = [
        { name: 'http', port: 80, target: TCP.sink },
        { name: 'udp', port: 90, target: UDP['udp-echo'], protocol: 'UDP' },
      ] as const;
      const { host } = await cluster.serve({ name: cluster.name(), ports }, POD_ADDRESSES);
      for (const agent of [cluster.environment.client, cluster.environment.node]) {
        assert.ok((await agent.call('upload', { host, port: 80, bytes: 2_000 })).intact);
        const { socket } = await agent.call('udpOpen', {});
        const echoed = await agent.call('udpEcho', { socket, host, port: 90, bytes: 2_000 });
        assert.deepEqual(echoed, { intact: true, from: `${host}:90` });
      }
    });

    test('the URLs of kube-proxy answer', async () => {
      const get = (url: string) => cluster.environment.node.call('httpGet', { url });
      assert.equal((await get('http://127.0.0.1:10256/healthz')).status, 200);
      const mode = await get('http://127.0.0.1:10249/proxyMode');
      assert.deepEqual({ status: mode.status, body: mode.body }, { status: 200, body: 'userspace' });
    });

    test('deleted rules come back', { timeout: 300_000 }, async () => {
      await cluster.isUp(service, ALL);
      const { iptables } = cluster.environment;
      // Else it might repair what is being removed, and be seen by nobody without its rules.
      proxy.kill('SIGSTOP');
      try {
        for (const table of ['nat', 'filter'] as const) await removeOurs(iptables, table);
        await cluster.isDown(service);
      } finally {
        proxy.kill('SIGCONT');
      }
      await waitFor('the rules are back within the sync period', async () => {
        return (await iptables.rules('KUBE-PORTALS-CONTAINER')).some((rule) => rule.includes(service.host));
      });
      await cluster.isUp(service, ALL);
    });
  });

  describe('connection tracking', () => {
    for (const type of ['NodePort', 'ClusterIP'] as const) {
      test(`UDP clients of a ${type} Service follow its pods`, {
        timeout: 600_000,
      }, async () => {
        const service = await create({}, [POD_ADDRESSES[0]]);
        const target =
          type === 'ClusterIP'
            ? { host: service.host, port: 90 }
            : { host: NODE_ADDRESS, port: (await nodePorts(service.name)).udp };
        const agent = type === 'ClusterIP' ? cluster.environment.client : cluster.environment.outside;
        // One source port that never rests, so that connection tracking would keep sending it where it went.
        const { socket } = await agent.call('udpOpen', { port: 12_345 });
        const isAnsweredBy = (name: string) => async () => {
          const reply = await agent.call('udpAsk', { socket, ...target, text: 'who', timeoutMs: 500 });
          return reply?.text.startsWith(`${name} `) === true;
        };
        await waitFor('the first backend answers', isAnsweredBy('pod-1'));
        await cluster.setEndpoints(service.name, [POD_ADDRESSES[1]]);
        await waitFor('the second backend answers', isAnsweredBy('pod-2'));
        // No endpoint for a while, as when the only pod is replaced.
        await cluster.setEndpoints(service.name, []);
        await waitFor('no answer comes', async () => !(await isAnsweredBy('pod-2')()));
        await cluster.setEndpoints(service.name, [POD_ADDRESSES[2]]);
        await waitFor('the third backend answers', isAnsweredBy('pod-3'));
        await agent.call('udpClose', { socket });
      });
    }

    // Its packets keep the entry alive that connection tracking made without rules; rules count for new entries only.
    test('a UDP client that asked before there was a Service, and before it had a ready endpoint, is answered', async () => {
      const clusterIP = '10.96.200.53';
      const { client } = cluster.environment;
      const { socket } = await client.call('udpOpen', {});
      const ask = () => client.call('udpAsk', { socket, host: clusterIP, port: 90, text: 'who', timeoutMs: 300 });
      assert.equal(await ask(), undefined);
      const { name } = await cluster.serve({ name: cluster.name(), clusterIP, ports: [PORTS[1]] }, []);
      assert.equal(await ask(), undefined);
      await cluster.setEndpoints(name, [POD_ADDRESSES[0]]);
      await waitFor('the same socket is answered', async () => (await ask())?.text.startsWith('pod-1 '));
    });
  });

  test('the CLOSE_WAIT timeout of connection tracking is set', async () => {
    const { host, port } = await cluster.serve(
      { name: cluster.name(), ports: [{ port: 80, target: TCP['early-end'] }] },
      [POD_ADDRESSES[0]],
    );
    const { client, topology } = cluster.environment;
    const { connection, localPort } = await client.call('open', { host, port });
    // The backend has ended its direction, the client has not: what its connection is in now lasts an hour at most.
    assert.equal(await client.call('read', { connection, bytes: 3 }), 'bye');
    const timeout = await waitFor('the connection is in CLOSE_WAIT', async () => {
      const entries = await topology.node.output(['cat', '/proc/net/nf_conntrack']);
      const ofClient = entries
        .split('\n')
        .find((line) => line.includes(` dst=${host} sport=${localPort} dport=${port} `));
      return /^ipv4 +2 tcp +6 (\d+) CLOSE_WAIT /.exec(ofClient ?? '')?.[1];
    });
    assert.ok(Math.abs(Number(timeout) - 3_600) < 60, `${timeout} s`);
    await client.call('reset', { connection });
  });

  test('the Node has the Starting event that upstream writes, seen by kubectl', async () => {
    const selector = `involvedObject.name=${NODE_NAME}`;
    await waitFor('the event', async () => {
      const events = await cluster.kubectl(['get', 'events', '-n', 'default', '--field-selector', selector]);
      return /Normal\s+Starting\s+node\/node-1\s+Starting kube-userspace-proxy/.test(events);
    });
  });

  test('a Service of SCTP has an event with the reason why it is not served, seen by kubectl', async () => {
    await waitFor('the event', async () => {
      const description = await cluster.kubectl(['describe', 'service', '1-sctp', '-n', NAMESPACE]);
      return /Warning\s+ServicePortNotServed .*kube-proxy.*test\/1-sctp:sctp is not served: SCTP/.test(description);
    });
  });

  test('system:kube-proxy may do no more than the proxy needs: RBAC is on', async () => {
    const can = async (...what: string[]) =>
      (
        await cluster
          .kubectl(['auth', 'can-i', ...what, '--as', 'system:kube-proxy', '--all-namespaces'])
          .catch(({ message }) => message)
      ).trim();
    assert.equal(await can('watch', 'endpointslices.discovery.k8s.io'), 'yes');
    assert.match(await can('list', 'pods'), /no/);
    assert.match(await can('get', 'secrets'), /no/);
  });

  test('endpoints in several slices of one Service are one set', async () => {
    const service = await create({}, [POD_ADDRESSES[0]]);
    await cluster.admin.create('endpointslices', {
      metadata: { name: `${service.name}-more`, labels: { 'kubernetes.io/service-name': service.name } },
      addressType: 'IPv4',
      ports: [{ name: 'http', port: TCP.name }],
      endpoints: sliceEndpoints(POD_ADDRESSES.slice(1)),
    });
    await cluster.isUp(service, ALL);
    await cluster.admin.delete('endpointslices', service.name);
    await cluster.isUp(service, ALL.slice(1));
  });
});

/**
 * What upstream's own script does: away with every jump to a chain whose name begins with KUBE-, and then with these.
 */
async function removeOurs(iptables: Iptables, table: 'nat' | 'filter'): Promise<void> {
  const lines = await iptables.save(table);
  const jumps = ['PREROUTING', 'INPUT', 'OUTPUT', 'POSTROUTING'].flatMap((chain) =>
    lines
      .filter((line) => line.startsWith(`-A ${chain} `))
      .map((rule, index) => ({ rule, address: `${chain} ${index + 1}` }))
      .filter(({ rule }) => rule.includes(' -j KUBE-')),
  );
  // From the last to the first, so that numbers stay true.
  for (const { address } of jumps.reverse()) await iptables.must(`-t ${table} -D ${address}`);
  const chains = lines.flatMap((line) => /^:(KUBE-\S+)/.exec(line)?.[1] ?? []);
  for (const chain of chains) await iptables.must(`-t ${table} -F ${chain}`);
  for (const chain of chains) await iptables.must(`-t ${table} -X ${chain}`);
}
