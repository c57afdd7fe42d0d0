import { type Address, type Cidr, familyOf, type IpFamily, isWildcard, parseAddress } from '../model/address.ts';
import { endpointName } from '../model/endpoint.ts';
import type { Table } from '../model/iptables.ts';
import type { ServicePortName } from '../model/service.ts';
import {
  DESTINATION_KINDS,
  type Destination,
  destinations,
  type ProxiedProtocol,
  type ServicePort,
} from '../model/service-port.ts';
import { sameList } from '../util/same-list.ts';
import {
  LET_IN,
  LOCAL_PORTS,
  NODEPORT_CONTAINER,
  NODEPORT_HOST,
  NODEPORT_NON_LOCAL,
  PORTALS_CONTAINER,
  PORTALS_HOST,
  REJECT_PORT,
} from './chains.ts';
import { localPortsOf, type Portal } from './portal.ts';
import { type Origin, type Route, type RouteFacts, routesTo } from './routes.ts';
import { closedPortComment, healthCheckComment, portComment } from './rule.ts';
import { addressKey, type DestinationKey, portKey } from './rule-tree.ts';

/** What rules must know of the node, for one address family. */
export interface NodeFacts {
  readonly family: IpFamily;
  /** Of the listeners: a wildcard (`0.0.0.0`, `::`), or one address of the node. */
  readonly bindAddress: string;
  /** An address of the node: the target of rules when the listeners are on the wildcard. */
  readonly hostAddress: Address;
  /**
   * Where NodePorts answer, in both families. Without one of this family, on all of its addresses (upstream
   * `pkg/proxy/util/nodeport_addresses.go` NewNodePortAddresses).
   */
  readonly nodePortCidrs: readonly Cidr[];
  /** Of packets from pods. Blocks of the other family are ignored. */
  readonly pods: readonly Origin[];
}

/** {@link NodeFacts} as parts of rules, computed once for all Service ports. */
export interface RuleParts extends RouteFacts {
  /** Sends a packet to a local port, whatever its destination. */
  dnat(localPort: number): string;
  /** Sends a packet to a local port at the address of the node that it already has. */
  dnatToPort(localPort: number): string;
  /** Matches the addresses of local ports, with a blank after it; empty: every address. */
  readonly boundMatch: string;
  /** One match, with a blank after it, for each network of NodePorts; empty: every address. */
  readonly nodePortMatches: readonly string[];
}

/**
 * Always DNAT, where upstream's container rules use REDIRECT (docs/adr/0016). The kernel drops a redirected packet when
 * the incoming interface has no address. A packet to an address of the node keeps it, so replies use its route.
 */
export function rulePartsOf(node: NodeFacts): RuleParts {
  const { family, hostAddress } = node;
  const wildcard = isWildcard(node.bindAddress);
  const address = wildcard ? hostAddress : parseAddress(node.bindAddress);
  if (address === undefined) throw new Error(`The bind address "${node.bindAddress}" is not an IP address`);
  const dnat = (port: number) => `-j DNAT --to-destination ${endpointName({ address, port })}`;
  const nodePortMatches = node.nodePortCidrs
    .filter(({ network }) => familyOf(network) === family)
    // iptables-save prints no match for the network of all addresses.
    .map(({ network, prefixLength }) => (prefixLength === 0 ? '' : `-d ${network}/${prefixLength} `));
  return {
    family,
    dnat,
    dnatToPort: wildcard ? (port) => `-j DNAT --to-destination :${port}` : dnat,
    boundMatch: wildcard ? '' : toAddress(address),
    nodePortMatches: nodePortMatches.length === 0 ? [''] : [...new Set(nodePortMatches)],
    pods: node.pods.filter(({ source }) => source === undefined || familyOf(source.network) === family),
    nodeAddress: hostAddress,
  };
}

/** Strongest first. */
export const RULE_KINDS = [...DESTINATION_KINDS, 'health check', 'local port'] as const;

/** Decides between Service ports that claim the same, and orders rules within a chain. */
export interface Rank {
  readonly kind: (typeof RULE_KINDS)[number];
  readonly owner: ServicePortName;
  readonly index: number;
}

/** All rules of something that only one Service port can have. */
export interface Claim {
  readonly rank: Rank;
  /** "10.96.0.1:443/TCP", "NodePort 30080/TCP". */
  readonly what: string;
  readonly groups: readonly RuleGroup[];
}

/** The rules of a claim in one root chain or its buckets. */
export interface RuleGroup {
  readonly rank: Rank;
  readonly table: Table;
  readonly chain: string;
  readonly key: DestinationKey;
  readonly specs: readonly string[];
}

type Group = Omit<RuleGroup, 'rank'>;

/** Without the spread of an object, which takes another allocation for each of them. */
function ranked(rank: Rank, groups: readonly Group[]): readonly RuleGroup[] {
  return groups.map(({ table, chain, key, specs }) => ({ rank, table, chain, key, specs }));
}

/** The `Claim.what` of a destination that only one Service port can have. */
export function claimName({ address, port }: Pick<Destination, 'address' | 'port'>, protocol: ProxiedProtocol): string {
  // Joined, as a text from a template keeps its parts, and there are thousands.
  return [address === undefined ? `NodePort ${port}` : endpointName({ address, port }), protocol].join('/');
}

/** Every claim of one Service port within one family. */
export function claimsOf(portal: Portal, parts: RuleParts): readonly Claim[] {
  const { servicePort } = portal;
  const { name: owner, protocol, healthCheckNodePort } = servicePort;
  const claims: Claim[] = [];
  const claim = (kind: Rank['kind'], what: string, groups: readonly Group[]) => {
    const rank: Rank = { kind, owner, index: claims.length };
    claims.push({ rank, what, groups: ranked(rank, groups) });
  };
  for (const destination of destinations(servicePort)) {
    const { kind, address, port } = destination;
    if (address !== undefined && familyOf(address) !== parts.family) continue;
    const routes = routesTo(destination, portal, parts);
    if (address === undefined) {
      const { namedEndpoints = [], closedEndpoints = [] } = servicePort;
      const exception = (address: Address) => endpointException(servicePort, address, port);
      const returns = namedEndpoints.map((address) => `${exception(address)} -j RETURN`);
      const key = portKey(protocol, port);
      const specs = (ways: readonly Route[], target: RuleParts['dnat']) =>
        ways.flatMap((way) => parts.nodePortMatches.map((to) => routeSpec(way, to, servicePort, port, target)));
      const inContainer = [...returns, ...specs(routes.container, parts.dnatToPort)];
      const onHost = [...returns, ...specs(routes.host, parts.dnat)];
      const open = namedEndpoints.filter((address) => !closedEndpoints.includes(address));
      const accepts = open.map((address) => `${exception(address)} -j ACCEPT`);
      claim(kind, claimName(destination, protocol), [
        { table: 'nat', chain: NODEPORT_CONTAINER, key, specs: inContainer },
        { table: 'nat', chain: NODEPORT_HOST, key, specs: onHost },
        ...(accepts.length === 0 ? [] : [{ table: 'filter', chain: LET_IN, key, specs: accepts } as const]),
      ]);
    } else {
      const key = addressKey(address) + portKey(protocol, port);
      const to = toAddress(address);
      const specs = (ways: readonly Route[]) => ways.map((way) => routeSpec(way, to, servicePort, port, parts.dnat));
      const inContainer = specs(routes.container);
      const onHost = specs(routes.host);
      claim(kind, claimName(destination, protocol), [
        { table: 'nat', chain: PORTALS_CONTAINER, key, specs: inContainer },
        // Nearly always the same texts, of which thousands of Services need half the memory if they share them.
        { table: 'nat', chain: PORTALS_HOST, key, specs: sameList(onHost, inContainer) ? inContainer : onHost },
      ]);
    }
  }
  if (healthCheckNodePort !== undefined) {
    const spec = `${toPort('tcp', healthCheckNodePort, healthCheckComment(owner))} -j ACCEPT`;
    const key = portKey('TCP', healthCheckNodePort);
    claim('health check', `health check node port ${healthCheckNodePort}`, [
      { table: 'filter', chain: LET_IN, key, specs: [spec] },
    ]);
  }
  for (const { port, set } of localPortsOf(portal)) {
    // Rejects other clients of the local port, and accepts what NAT has sent there, whatever other rules of INPUT say.
    // Processes of the node are not rejected: it would take as many rules again, and they may use the Service anyway.
    const key = portKey(protocol, port);
    const closed = toPort(protocol, port, closedPortComment({ name: owner, set }));
    // On other addresses, another program may have the port.
    const reject = `${parts.boundMatch}${closed} ${parts.dnatToPort(REJECT_PORT)}`;
    // Only new packets from NAT reach this rule: see LET_IN_CONDITIONS.
    const accept = `${toPort(protocol, port, portComment({ name: owner, set }))} -j ACCEPT`;
    claim('local port', ['local port ', port, '/', protocol].join(''), [
      { table: 'nat', chain: LOCAL_PORTS, key, specs: [reject] },
      { table: 'filter', chain: NODEPORT_NON_LOCAL, key, specs: [accept] },
    ]);
  }
  return claims;
}

/** Matches for an endpoint of this node that has the NodePort's own number. */
function endpointException({ name, protocol }: ServicePort, address: Address, port: number): string {
  return toAddress(address) + toPort(protocol, port, portComment({ name, set: 'own' }));
}

/** Matches in the order in which iptables-save prints them. */
function routeSpec(
  { source, inInterface, target }: Route,
  destination: string,
  { name, protocol }: ServicePort,
  port: number,
  dnat: RuleParts['dnat'],
): string {
  const from = source === undefined ? '' : `-s ${source.network}/${source.prefixLength} `;
  const by = inInterface === undefined ? '' : `-i ${inInterface} `;
  const set = target.kind === 'listener' ? target.set : 'own';
  return `${from}${destination}${by}${toPort(protocol, port, portComment({ name, set }))} ${dnat(target.port)}`;
}

function toAddress(address: Address): string {
  return `-d ${address}/${familyOf(address) === 'IPv4' ? 32 : 128} `;
}

/** The comment stands between -p and -m as upstream's does: iptables-save keeps the order of matches. */
function toPort(protocol: string, port: number, comment: string): string {
  const proto = protocol.toLowerCase();
  return `-p ${proto} -m comment --comment "${comment}" -m ${proto} --dport ${port}`;
}
