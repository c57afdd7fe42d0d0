import '../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, test } from 'node:test';
import { ThisNode } from '../../src/app/node.ts';
import type { NodeStatus } from '../../src/kubernetes/node.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { parseCommandLine } from '../support/command-line.ts';
import { address, cidr } from '../support/model.ts';

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

before(() => {
  for (const line of [
    'link set lo up',
    'addr add 192.168.50.10/24 dev lo',
    'addr add fd00:50::10/64 dev lo nodad',
    'addr add fe80::10/64 dev lo nodad',
  ]) {
    execFileSync('ip', line.split(' '));
  }
});

test('pods are recognized by --detect-local-mode and the current Node object', () => {
  assert.deepEqual(nodeOf('--cluster-cidr', '10.244.0.0/16').facts(IPV4)?.pods, [{ source: cidr('10.244.0.0/16') }]);
  const prefix = nodeOf('--detect-local-mode', 'InterfaceNamePrefix', '--pod-interface-name-prefix', 'cali');
  assert.deepEqual(prefix.facts(IPV4)?.pods, [{ inInterface: { name: 'cali', isPrefix: true } }]);
  const node = nodeOf('--detect-local-mode', 'NodeCIDR', '--cluster-cidr', '10.244.0.0/16');
  assert.deepEqual(node.facts(IPV4)?.pods, []);
  for (const each of ['10.244.1.0/24', '10.244.2.0/24']) {
    node.set({ ...STATUS, podCidrs: [cidr(each)] });
    assert.deepEqual(node.facts(IPV4)?.pods, [{ source: cidr(each) }]);
  }
});

test('clients are pods by their address, where anything says so of their family', () => {
  const everyIPv6 = cidr('::/0');
  const pods = cidr('10.244.0.0/16');
  assert.equal(nodeOf().podCidrs, undefined);
  assert.deepEqual(nodeOf('--cluster-cidr', '10.244.0.0/16').podCidrs, [pods, everyIPv6]);
  assert.deepEqual(nodeOf('--cluster-cidr', '10.244.0.0/16,fd00::/48').podCidrs, [pods, cidr('fd00::/48')]);
  const byInterface = ['--detect-local-mode', 'BridgeInterface', '--pod-bridge-interface', 'cbr0'];
  assert.equal(nodeOf(...byInterface, '--cluster-cidr', '10.244.0.0/16').podCidrs, undefined);
  const node = nodeOf('--detect-local-mode', 'NodeCIDR');
  assert.deepEqual(node.podCidrs, [], 'nobody is a pod until the Node object is known');
  node.set({ ...STATUS, podCidrs: [pods] });
  assert.deepEqual(node.podCidrs, [pods, everyIPv6]);
  node.set(STATUS);
  assert.equal(node.podCidrs, undefined);
  assert.equal(nodeOf('--detect-local-mode', 'NodeCIDR', '--manifests', 'x').podCidrs, undefined);
});

test('NodePorts are served on all addresses of a family without a network in --nodeport-addresses', () => {
  const limitedTo = (cidr: string) =>
    nodeOf('--nodeport-addresses', cidr).nodePortAddresses(['IPv4', 'IPv6'])?.toSorted();
  assert.equal(nodeOf().nodePortAddresses(['IPv4', 'IPv6']), undefined);
  assert.deepEqual(limitedTo('fd00::/8'), ['127.0.0.1', '192.168.50.10', 'fd00:50::10']);
  // Listening on a link-local address needs the name of the link.
  assert.deepEqual(limitedTo('127.0.0.0/8'), ['127.0.0.1', '::1', 'fd00:50::10']);
});

test('eligibility and zone come from the Node object', () => {
  const node = nodeOf();
  assert.deepEqual([node.isEligible, node.topology], [true, { nodeName: 'node-1' }]);
  node.set({ ...STATUS, taints: ['ToBeDeletedByClusterAutoscaler'] });
  assert.deepEqual([node.isEligible, node.topology], [false, { nodeName: 'node-1', zone: 'a' }]);
});
