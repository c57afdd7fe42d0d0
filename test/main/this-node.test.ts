import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import { parseCommandLine } from '../../src/cli/command-line.ts';
import { ThisNode } from '../../src/main/this-node.ts';
import type { Address } from '../../src/model/address.ts';
import type { NodeStatus } from '../../src/sources/kubernetes/node-status.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address, cidr } from '../rules/fixtures.ts';

const STATUS: NodeStatus = {
  name: 'node-1',
  zone: 'a',
  addresses: [],
  podCidrs: [],
  taints: [],
  isDeleted: false,
};
const IPV4 = { family: 'IPv4', bindAddress: address('0.0.0.0') } as const;

function nodeOf(...argv: readonly string[]): ThisNode {
  const line = parseCommandLine(argv);
  assert.ok(line.kind === 'run', JSON.stringify(line));
  return new ThisNode(line.config, { name: 'node-1', log: new RecordingLog() });
}

const hasAddress = Object.values(networkInterfaces()).some((infos) =>
  infos?.some(({ family, internal }) => family === 'IPv4' && !internal),
);

test('pods are told as --detect-local-mode says, and by what the Node object says now', { skip: !hasAddress }, () => {
  assert.deepEqual(nodeOf('--cluster-cidr', '10.244.0.0/16').facts(IPV4)?.pods, [{ source: cidr('10.244.0.0/16') }]);
  const prefix = nodeOf('--detect-local-mode', 'InterfaceNamePrefix', '--pod-interface-name-prefix', 'cali');
  assert.deepEqual(prefix.facts(IPV4)?.pods, [{ inInterface: 'cali+' }]);
  const node = nodeOf('--detect-local-mode', 'NodeCIDR', '--cluster-cidr', '10.244.0.0/16');
  assert.deepEqual(node.facts(IPV4)?.pods, []);
  for (const each of ['10.244.1.0/24', '10.244.2.0/24']) {
    node.set({ ...STATUS, podCidrs: [cidr(each)] });
    assert.deepEqual(node.facts(IPV4)?.pods, [{ source: cidr(each) }]);
  }
});

test('NodePorts are served on all addresses of a family that no network is of', () => {
  const loopback = '127.0.0.1' as Address;
  assert.equal(nodeOf().nodePortAddresses(['IPv4']), undefined);
  assert.ok(nodeOf('--nodeport-addresses', 'fd00::/8').nodePortAddresses(['IPv4'])?.includes(loopback));
  assert.deepEqual(nodeOf('--nodeport-addresses', '127.0.0.0/8').nodePortAddresses(['IPv4']), [loopback]);
});

test('is as eligible as its Node object says, and in its zone', () => {
  const node = nodeOf();
  assert.deepEqual([node.isEligible, node.topology], [true, { nodeName: 'node-1' }]);
  node.set({ ...STATUS, taints: ['ToBeDeletedByClusterAutoscaler'] });
  assert.deepEqual([node.isEligible, node.topology], [false, { nodeName: 'node-1', zone: 'a' }]);
});
