import { after, before, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
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
