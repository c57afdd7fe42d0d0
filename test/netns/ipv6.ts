import type { Environment } from './harness.ts';
import type { Namespace } from './topology.ts';

/** The topology of IPv4 once more. */
export const IPV6 = {
  node: 'fd00:50::10',
  outside: 'fd00:50::1',
  bridge: 'fd00:244:1::1',
  pods: ['fd00:244:1::11', 'fd00:244:1::12', 'fd00:244:1::13'],
  client: 'fd00:244:1::20',
  podRange: 'fd00:244:1::/64',
  clusterIPs: 'fd00:96::/112',
  loadBalancerIPs: '2001:db8::/64',
} as const;

/** Gives every namespace a second address, which is usable at once. Nothing listens there yet. */
export async function addIpv6({ topology }: Environment): Promise<void> {
  const { node, outside, pods, client } = topology;
  await node.output(['sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/forwarding']);
  await node.ip(
    `addr add ${IPV6.bridge}/64 dev cbr0 nodad`,
    `addr add ${IPV6.node}/64 dev eth0 nodad`,
    `route add default via ${IPV6.outside}`,
  );
  await outside.ip(
    `addr add ${IPV6.outside}/64 dev eth0 nodad`,
    ...[IPV6.clusterIPs, IPV6.loadBalancerIPs, IPV6.podRange].map((to) => `route add ${to} via ${IPV6.node}`),
  );
  const addAddress = (pod: Namespace, address: string) =>
    pod.ip(`addr add ${address}/64 dev eth0 nodad`, `route add default via ${IPV6.bridge}`);
  await Promise.all([...pods.map((pod, index) => addAddress(pod, IPV6.pods[index]!)), addAddress(client, IPV6.client)]);
}
