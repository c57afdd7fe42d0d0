import { after, before, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
import { BRIDGE_ADDRESS, NODE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { Cluster, NODE_NAME } from './cluster.ts';

const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;

describe('--nodeport-addresses', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create();
    await cluster.startProxy({ args: ['--nodeport-addresses', 'primary'] });
  });

  after(() => cluster.remove());

  test('primary serves NodePorts at the addresses of the Node object alone, and follows it', async () => {
    const ports = [{ port: 80, target: TCP.name }];
    const { nodePort } = await cluster.create({ name: 'web', type: 'NodePort', ports }, POD_ADDRESSES);
    const named = { host: NODE_ADDRESS, port: nodePort };
    const other = { host: BRIDGE_ADDRESS, port: nodePort };
    await cluster.isUp(named, ALL);
    await cluster.isDown(other);
    await cluster.admin.patch('nodes', `${NODE_NAME}/status`, {
      status: { addresses: [{ type: 'InternalIP', address: BRIDGE_ADDRESS }] },
    });
    await cluster.isUp(other, ALL);
    await cluster.isDown(named);
  });
});
