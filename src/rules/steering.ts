import { type Address, familyOf, type IpFamily, isWildcard, parseAddress } from '../model/address.ts';
import type { Cidr } from '../model/cidr.ts';
import { endpointName } from '../model/endpoint.ts';
import type { Origin, RouteFacts } from './routes.ts';

/** What rules must know of the node, for one address family. */
export interface NodeFacts {
  readonly family: IpFamily;
  /** Where the proxy's listeners are: a wildcard (`0.0.0.0`, `::`), or one address of the node. */
  readonly bindAddress: string;
  /** Reached by the node's own connections when the listeners are on the wildcard. */
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
  /** The targets that lead to a local port: for packets that came in, and for those of the node's own processes. */
  container(localPort: number): string;
  host(localPort: number): string;
  /** The destination match for the addresses that local ports are on, with a blank after it; empty: every address. */
  readonly boundMatch: string;
  /** One destination match, with a blank after it, for each network that NodePorts answer on; empty: every address. */
  readonly nodePortMatches: readonly string[];
}

/**
 * REDIRECT sends a packet to the address of the interface it came in by, so only a wildcard listener can be reached by
 * it. In OUTPUT it would mean loopback, where a reply to a pod's or the node's own address would not be recognised;
 * hence DNAT to a node address there, always.
 */
export function steering(node: NodeFacts): Steering {
  const wildcard = isWildcard(node.bindAddress);
  const address = wildcard ? node.hostAddress : parseAddress(node.bindAddress);
  if (address === undefined) throw new Error(`The bind address "${node.bindAddress}" is not an IP address`);
  const dnat = (port: number) => `-j DNAT --to-destination ${endpointName({ address, port })}`;
  return {
    family: node.family,
    container: wildcard ? (port) => `-j REDIRECT --to-ports ${port}` : dnat,
    host: dnat,
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
