import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
import { PROGRAM } from '../netns/proxy.ts';
import { BRIDGE_ADDRESS, CLIENT_ADDRESS, NODE_ADDRESS, OUTSIDE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { Cluster, NODE_NAME } from './cluster.ts';

describe('what follows the Node object', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create();
    await cluster.startProxy({ args: ['--nodeport-addresses', 'primary', '--detect-local-mode', 'NodeCIDR'] });
  });

  after(() => cluster.remove());

  test('primary serves NodePorts at the addresses of the Node object alone, and follows them', async () => {
    const setAddress = (address: string) =>
      cluster.admin.patch('nodes', `${NODE_NAME}/status`, { status: { addresses: [{ type: 'InternalIP', address }] } });
    // Not the one that the default route would suggest.
    await setAddress(BRIDGE_ADDRESS);
    const options = { name: 'web', type: 'NodePort', ports: [{ port: 80, target: TCP.name }] } as const;
    const { nodePort } = await cluster.create(options, POD_ADDRESSES);
    await cluster.isUp({ host: BRIDGE_ADDRESS, port: nodePort }, ['pod-1', 'pod-2', 'pod-3']);
    await cluster.isDown({ host: NODE_ADDRESS, port: nodePort });
    await setAddress(NODE_ADDRESS);
    await cluster.isUp({ host: NODE_ADDRESS, port: nodePort }, ['pod-1', 'pod-2', 'pod-3']);
    await cluster.isDown({ host: BRIDGE_ADDRESS, port: nodePort });
  });

  test('NodeCIDR tells pods from clients outside as soon as the Node object has podCIDRs', async () => {
    const { client, node, outside } = cluster.environment;
    const spec = { externalTrafficPolicy: 'Local' };
    const options = { name: 'local', type: 'NodePort', ports: [{ port: 80, target: TCP.name }], spec } as const;
    const { nodePort } = await cluster.create(options, [{ ip: POD_ADDRESSES[0], nodeName: 'elsewhere' }]);
    const target = { host: NODE_ADDRESS, port: nodePort };
    await cluster.isUp(target, ['pod-1'], [node]);
    await cluster.becomes('timeout', { protocol: 'tcp', ...target }, [client]);
    const seen = await cluster.create({ name: 'seen', ports: [{ port: 80, target: TCP.peer }] }, [POD_ADDRESSES[0]]);
    await cluster.isUp(seen, [`${OUTSIDE_ADDRESS}@pod-1`], [outside]);
    const podCIDR = '10.244.1.0/24';
    await cluster.admin.patch('nodes', NODE_NAME, { spec: { podCIDR, podCIDRs: [podCIDR] } });
    await cluster.isUp(target, ['pod-1'], [client]);
    await cluster.isUp(seen, [`${BRIDGE_ADDRESS}@pod-1`], [outside]);
    await cluster.isUp(seen, [`${CLIENT_ADDRESS}@pod-1`], [client]);
  });
});

// KEP-1880. The default block is the API server's --service-cluster-ip-range.
for (const capture of ['iptables', 'nft'] as const) {
  describe(`cluster IPs that no Service has, with ${capture}`, () => {
    let cluster: Cluster;

    before(async () => {
      cluster = await Cluster.create();
      await cluster.startProxy({ capture, args: ['--capture', capture] });
    });

    after(() => cluster.remove());

    test('are dropped in the blocks of ServiceCIDRs alone, and a Service that comes there is served', async () => {
      const { client, node, outside, topology } = cluster.environment;
      const [inBlock, elsewhere] = ['10.96.77.7', '10.99.0.1'];
      // The node's default route leads there.
      await topology.outside.ip(`addr add ${inBlock}/32 dev lo`, `addr add ${elsewhere}/32 dev lo`);
      await outside.call('listenTcp', { port: 80, mode: 'name', name: 'outside' });
      for (const from of [client, node]) {
        await cluster.becomes('outside', { protocol: 'tcp', host: elsewhere, port: 80 }, [from]);
        await cluster.becomes('timeout', { protocol: 'tcp', host: inBlock, port: 80 }, [from]);
      }
      const { controlSocket } = cluster.environment.proxy;
      const explain = [PROGRAM, 'explain', `${inBlock}:80`, '--control-socket', controlSocket];
      assert.match(
        (await topology.node.run(explain)).stdout,
        /no Service is at 10\.96\.77\.7:80\/TCP; packets to it are dropped/i,
      );
      const more = { metadata: { name: 'more' }, spec: { cidrs: [`${elsewhere}/24`.replace('.1/', '.0/')] } };
      await cluster.admin.request('POST', '/apis/networking.k8s.io/v1/servicecidrs', more);
      await cluster.becomes('timeout', { protocol: 'tcp', host: elsewhere, port: 80 }, [client]);
      const options = { name: 'late', clusterIP: inBlock, ports: [{ port: 80, target: TCP.name }] };
      await cluster.create(options, POD_ADDRESSES);
      await cluster.isUp({ host: inBlock, port: 80 }, ['pod-1', 'pod-2', 'pod-3']);
    });
  });
}
