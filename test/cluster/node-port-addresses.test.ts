import { after, before, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
import { BRIDGE_ADDRESS, NODE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { Cluster, NODE_NAME } from './cluster.ts';

describe('--nodeport-addresses', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create();
  });

  after(() => cluster.remove());

  test('primary serves NodePorts at the addresses of the Node object alone, and follows them', async () => {
    const setAddress = (address: string) =>
      cluster.admin.patch('nodes', `${NODE_NAME}/status`, { status: { addresses: [{ type: 'InternalIP', address }] } });
    // Not the one that the default route would suggest.
    await setAddress(BRIDGE_ADDRESS);
    await cluster.startProxy({ args: ['--nodeport-addresses', 'primary'] });
    const options = { name: 'web', type: 'NodePort', ports: [{ port: 80, target: TCP.name }] } as const;
    const { nodePort } = await cluster.create(options, POD_ADDRESSES);
    await cluster.isUp({ host: BRIDGE_ADDRESS, port: nodePort }, ['pod-1', 'pod-2', 'pod-3']);
    await cluster.isDown({ host: NODE_ADDRESS, port: nodePort });
    await setAddress(NODE_ADDRESS);
    await cluster.isUp({ host: NODE_ADDRESS, port: nodePort }, ['pod-1', 'pod-2', 'pod-3']);
    await cluster.isDown({ host: BRIDGE_ADDRESS, port: nodePort });
  });
});
