import type { Cidr } from '../model/address.ts';
import { type Address, familyOf, type IpFamily, isWildcard, parseAddress } from '../model/address.ts';
import { endpointName } from '../model/endpoint.ts';
import type { Origin, RouteFacts } from './routes.ts';

/** What rules must know of the node, for one address family. */
export interface NodeFacts {
  readonly family: IpFamily;
  /** Where the proxy's listeners are: a wildcard (`0.0.0.0`, `::`), or one address of the node. */
  readonly bindAddress: string;
  /** Where rules lead to when the listeners are on the wildcard: an address that the node has. */
  readonly hostAddress: Address;
  /**
   * The node addresses that NodePorts answer on, as CIDRs of both families. Without one of this family, all of its
   * addresses do (upstream `pkg/proxy/util/nodeport_addresses.go` NewNodePortAddresses).
   */
  readonly nodePortCidrs: readonly Cidr[];
  /** By what packets of pods are told from those from outside. Blocks of the other family are passed over. */
  readonly pods: readonly Origin[];
}

/** {@link NodeFacts} as parts of rules, worked out once for all Service ports. */
export interface Steering extends RouteFacts {
  readonly family: IpFamily;
  /** The target that leads a packet to a local port, whatever its destination was. */
  lead(localPort: number): string;
  /** The same for a packet that came in for an address of the node. */
  leadArrived(localPort: number): string;
  /** The destination match for the addresses that local ports are on, with a blank after it; empty: every address. */
  readonly boundMatch: string;
  /** One destination match, with a blank after it, for each network that NodePorts answer on; empty: every address. */
  readonly nodePortMatches: readonly string[];
}

/**
 * Always DNAT, where upstream's container rules use REDIRECT (docs/adr/0016): that goes to the address of the interface
 * which the packet came in by, and the kernel drops the packet when the interface has none. What came in for an address
 * of the node stays at that address, so that replies leave by the route of that very address.
 */
export function steering(node: NodeFacts): Steering {
  const wildcard = isWildcard(node.bindAddress);
  const address = wildcard ? node.hostAddress : parseAddress(node.bindAddress);
  if (address === undefined) throw new Error(`The bind address "${node.bindAddress}" is not an IP address`);
  const lead = (port: number) => `-j DNAT --to-destination ${endpointName({ address, port })}`;
  return {
    family: node.family,
    lead,
    leadArrived: wildcard ? (port) => `-j DNAT --to-destination :${port}` : lead,
    boundMatch: wildcard ? '' : `-d ${address}/${node.family === 'IPv4' ? 32 : 128} `,
    nodePortMatches: nodePortMatches(node),
    pods: node.pods.filter(({ source }) => source === undefined || familyOf(source.network) === node.family),
    nodeAddress: node.hostAddress,
  };
}

function nodePortMatches({ family, nodePortCidrs }: NodeFacts): readonly string[] {
  const matches = nodePortCidrs
    .filter(({ network }) => familyOf(network) === family)
    // iptables-save prints nothing for the network of all addresses.
    .map(({ network, prefixLength }) => (prefixLength === 0 ? '' : `-d ${network}/${prefixLength} `));
  return matches.length === 0 ? [''] : [...new Set(matches)];
}
