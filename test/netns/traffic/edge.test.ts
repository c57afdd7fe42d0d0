import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { TCP, testEnvironment, UDP } from '../harness.ts';
import { addIpv6 } from '../ipv6.ts';
import { sliceObject } from '../manifests.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const RANGES = ['10.96.128.0/24', 'fd00:96::8000/120'] as const;
/** Free in every pod, and on the node. */
const LOCAL_TARGET = 8201;

/** As a user of files writes it: nothing that an API server would fill in. */
function written(name: string, spec: object) {
  return { apiVersion: 'v1', kind: 'Service', metadata: { name, namespace: 'test' }, spec };
}

describe('Services from files that leave to the proxy what an API server would do', () => {
  const environment = testEnvironment('fresh');
  const ports = (nodePort?: number, target?: number) => {
    const more = nodePort !== undefined && { nodePort };
    return [
      { name: 'tcp', port: 80, target: target ?? TCP.name, ...more },
      { name: 'udp', port: 80, target: target ?? UDP['udp-name'], protocol: 'UDP' as const, ...more },
    ];
  };

  before(() => addIpv6(environment));

  /** The cluster IPs that the rules have, of both families. */
  async function clusterIPs(): Promise<string[]> {
    const rules = [...(await environment.iptables.save('nat', 4)), ...(await environment.iptables.save('nat', 6))];
    const found = rules.flatMap((rule) => /^-A KUBE-PORTALS-CONTAINER -d (\S+)\/\d+ -p tcp /.exec(rule)?.[1] ?? []);
    return [...new Set(found)].sort();
  }

  test('a NodePort is served without a cluster IP', async () => {
    await environment.startProxy();
    const nodePort = environment.nodePort();
    const spec = { type: 'NodePort', ports: ports(nodePort) };
    const slice = sliceObject('web', ports(), [{ address: POD_ADDRESSES[0] }]);
    environment.manifests.write('web.yaml', [written('web', spec), slice]);
    await environment.until(environment.outside, NODE_ADDRESS, nodePort, ['pod-1']);
    await environment.until(environment.client, NODE_ADDRESS, nodePort, ['pod-1']);
    assert.deepEqual(await clusterIPs(), []);
  });

  test('cluster IPs come from the ranges, and are the same after a restart with more files', async () => {
    const args = ['--service-cluster-ip-range', RANGES.join()];
    await environment.startProxy({ args });
    const spec = { ipFamilyPolicy: 'PreferDualStack', ports: ports() };
    const slice = sliceObject('web', ports(), [{ address: POD_ADDRESSES[0] }]);
    environment.manifests.write('web.yaml', [written('web', spec), slice]);
    const own = await waitFor('a rule for each family', async () => {
      const found = await clusterIPs();
      return found.length === 2 && found;
    });
    assert.match(own[0] ?? '', /^10\.96\.128\.\d+$/);
    assert.match(own[1] ?? '', /^fd00:96::80[0-9a-f]{2}$/);
    await environment.until(environment.client, own[0] as string, 80, ['pod-1']);

    await environment.proxy.stop();
    environment.manifests.write('another.yaml', [written('another', { ports: ports() })]);
    await environment.startProxy({ args });
    const all = await waitFor('rules of the other Service', async () => {
      const found = await clusterIPs();
      return found.length === 3 && found;
    });
    for (const address of own) assert.ok(all.includes(address), `${address} is still there: ${all}`);
    await environment.until(environment.client, own[0] as string, 80, ['pod-1']);
  });

  test('where the operator allows it, endpoints are programs of this machine at loopback addresses', async () => {
    const { node } = environment;
    await node.call('listenTcp', { port: LOCAL_TARGET, mode: 'peer', name: 'node', host: '127.0.0.1' });
    await node.call('listenUdp', { port: LOCAL_TARGET, mode: 'udp-peer', name: 'node', host: '127.0.0.1' });
    const nodePort = environment.nodePort();
    const clusterIP = environment.clusterIP();
    const spec = { type: 'NodePort', clusterIP, ports: ports(nodePort, LOCAL_TARGET) };
    const slice = sliceObject('local', ports(undefined, LOCAL_TARGET), [{ address: '127.0.0.1' }]);

    await environment.startProxy();
    environment.manifests.write('local.yaml', [written('local', spec), slice]);
    await waitFor('the endpoint is refused', () =>
      environment.proxy.log.some(({ err }) => /only with --allow-loopback-endpoints$/.test(String(err))),
    );
    await environment.proxy.stop();

    await environment.startProxy({ args: ['--allow-loopback-endpoints'] });
    // No client is kept: packets to a loopback address must have the source of one.
    for (const from of [environment.client, environment.outside, node]) {
      await environment.until(from, clusterIP, 80, ['127.0.0.1@node']);
    }
    await environment.until(environment.outside, NODE_ADDRESS, nodePort, ['127.0.0.1@node']);

    // A loop: the local port of this very Service port.
    const own = await environment.localPort('test/local:tcp');
    const loop = sliceObject('local', ports(undefined, own), [{ address: '127.0.0.2' }]);
    environment.manifests.write('local.yaml', [written('local', spec), loop]);
    await waitFor('the endpoint is refused', () =>
      environment.proxy.log.some(({ reason }) => /one of the proxy's own ports/.test(String(reason))),
    );
    const attempts = [{ protocol: 'tcp', host: clusterIP, port: 80 }] as const;
    await waitFor('clients are refused', async () => {
      const [outcome] = await environment.client.call('outcomes', { attempts, timeoutMs: 1_000 });
      return outcome === 'ECONNREFUSED';
    });
  });

  test('over IPv6, too', async () => {
    const { node } = environment;
    await node.call('listenTcp', { port: LOCAL_TARGET + 1, mode: 'peer', name: 'node', host: '::1' });
    const spec = { clusterIP: 'fd00:96::77', ports: [{ port: 80 }] };
    const slice = sliceObject('six', [{ target: LOCAL_TARGET + 1 }], [{ address: '::1' }], 'IPv6');
    await environment.startProxy({ args: ['--allow-loopback-endpoints'] });
    environment.manifests.write('six.yaml', [written('six', spec), slice]);
    const attempts = [{ protocol: 'tcp', host: 'fd00:96::77', port: 80 }] as const;
    await waitFor('an answer', async () => {
      const [outcome] = await environment.client.call('outcomes', { attempts, timeoutMs: 1_000 });
      return outcome === '::1@node';
    });
  });
});
