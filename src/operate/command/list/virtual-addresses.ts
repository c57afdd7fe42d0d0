import type { IpFamily } from '../../../model/address.ts';
import { endpointName } from '../../../model/endpoint.ts';
import type { ListenerView, ServiceView } from '../../../model/view.ts';

/** What a NodePort listens on, as `ss` shows it. */
const EVERY_ADDRESS: Readonly<Record<IpFamily, string>> = { IPv4: '0.0.0.0', IPv6: '::' };

/** Where clients of one listener connect to, each with its port: what ipvs would call its virtual services. */
export function virtualAddresses(service: ServiceView, listener: Pick<ListenerView, 'traffic'>): string[] {
  const { clusterIPs, externalIPs, loadBalancerIPs, port, nodePort, family } = service;
  const { traffic } = listener;
  const internal = traffic.includes('internal') ? clusterIPs : [];
  // Addresses that go to two listeners are named at that for clients from outside, unless the other has no others.
  const isExternal = traffic.includes('external') || isForNodeOnly(listener);
  const nodePorts = isExternal && nodePort !== 0 ? [{ address: EVERY_ADDRESS[family], port: nodePort }] : [];
  const external = isExternal ? [...externalIPs, ...loadBalancerIPs] : [];
  const withPort = (address: string) => ({ address, port });
  return [...internal.map(withPort), ...nodePorts, ...external.map(withPort)].map(endpointName);
}

/** Its only clients are the node's own programs. */
export function isForNodeOnly({ traffic }: Pick<ListenerView, 'traffic'>): boolean {
  return traffic.every((each) => each === 'node');
}
