import { type Address, type Cidr, familyOf, isWildcard } from '../../model/address.ts';
import type { NodeFacts } from '../../model/capture.ts';
import { endpointName } from '../../model/endpoint.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import type { Claim, NodePortClaim, Route } from '../claims.ts';
import { DROP_PORT, portOf, REJECT_PORT } from '../portal.ts';
import { type TreeName, tableOf } from './chains.ts';
import { closedPortComment, healthCheckComment, portComment, type Rule } from './rule.ts';
import { addressKey, type DestinationKey, portKey } from './rule-tree.ts';

/** {@link NodeFacts} as parts of rules, computed once for all claims. */
interface RuleParts {
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
export function rulePartsOf({ family, bindAddress, hostAddress, nodePortCidrs }: NodeFacts): RuleParts {
  const wildcard = isWildcard(bindAddress);
  const address = wildcard ? hostAddress : bindAddress;
  const dnat = (port: number) => `-j DNAT --to-destination ${endpointName({ address, port })}`;
  const nodePortMatches = nodePortCidrs
    .filter(({ network }) => familyOf(network) === family)
    // iptables-save prints no match for the network of all addresses.
    .map(({ network, prefixLength }) => (prefixLength === 0 ? '' : `-d ${network}/${prefixLength} `));
  return {
    dnat,
    dnatToPort: wildcard ? (port) => `-j DNAT --to-destination :${port}` : dnat,
    boundMatch: wildcard ? '' : toAddress(address),
    nodePortMatches: nodePortMatches.length === 0 ? [''] : [...new Set(nodePortMatches)],
  };
}

/** Drops what goes to these blocks and was not taken before. */
export function unassignedSpecs(blocks: readonly Cidr[], { dnat }: RuleParts): readonly string[] {
  return blocks.flatMap(({ network, prefixLength }) =>
    ['tcp', 'udp'].map(
      (proto) =>
        `-d ${network}/${prefixLength} -p ${proto} -m comment --comment "no Service is there" ${dnat(DROP_PORT)}`,
    ),
  );
}

/** The rules of a claim in one tree. */
export interface RuleGroup {
  readonly claim: Claim;
  readonly tree: TreeName;
  readonly key: DestinationKey;
  readonly specs: readonly string[];
}

/** All rules of a claim. */
export function groupsOf(claim: Claim, parts: RuleParts): readonly RuleGroup[] {
  switch (claim.kind) {
    case 'NodePort':
      return nodePortGroups(claim, parts);
    case 'health check': {
      const spec = `${toPort('TCP', claim.port, healthCheckComment(claim.owner))} -j ACCEPT`;
      return [{ claim, tree: 'LI', key: portKey('TCP', claim.port), specs: [spec] }];
    }
    case 'local port': {
      // Rejects other clients of the local port, and accepts what NAT has sent there, whatever other rules of INPUT
      // say. Processes of the node are not rejected: it would take as many rules again.
      const { protocol, port } = claim;
      const key = portKey(protocol, port);
      // On other addresses, another program may have the port.
      const closed = toPort(protocol, port, closedPortComment(claim));
      const reject = `${parts.boundMatch}${closed} ${parts.dnatToPort(REJECT_PORT)}`;
      // Only new packets from NAT reach this rule: see LET_IN_CONDITIONS.
      const accept = `${toPort(protocol, port, portComment(claim))} -j ACCEPT`;
      return [
        { claim, tree: 'LP', key, specs: [reject] },
        { claim, tree: 'NL', key, specs: [accept] },
      ];
    }
    default: {
      const { address, protocol, port, routes } = claim;
      const key = addressKey(address) + portKey(protocol, port);
      const to = toAddress(address);
      const specs = (ways: readonly Route[]) => ways.map((way) => routeSpec(way, to, claim, parts.dnat));
      const inContainer = specs(routes.container);
      if (routes.host === routes.container) return [{ claim, tree: 'PB', key, specs: inContainer }];
      return [
        { claim, tree: 'PC', key, specs: inContainer },
        { claim, tree: 'PH', key, specs: specs(routes.host) },
      ];
    }
  }
}

function nodePortGroups(claim: NodePortClaim, parts: RuleParts): readonly RuleGroup[] {
  const { owner, protocol, port, routes, spared, letIn } = claim;
  const key = portKey(protocol, port);
  const exception = (address: Address) =>
    toAddress(address) + toPort(protocol, port, portComment({ name: owner, set: 'own' }));
  const returns = spared.map((address) => `${exception(address)} -j RETURN`);
  const specs = (ways: readonly Route[], dnat: RuleParts['dnat']) => [
    ...returns,
    ...ways.flatMap((way) => parts.nodePortMatches.map((to) => routeSpec(way, to, claim, dnat))),
  ];
  const groups: readonly RuleGroup[] = [
    { claim, tree: 'NC', key, specs: specs(routes.container, parts.dnatToPort) },
    { claim, tree: 'NH', key, specs: specs(routes.host, parts.dnat) },
  ];
  if (letIn.length === 0) return groups;
  return [...groups, { claim, tree: 'LI', key, specs: letIn.map((address) => `${exception(address)} -j ACCEPT`) }];
}

export function rulesOf({ claim, tree, specs }: RuleGroup, chain: string): readonly Rule[] {
  return specs.map((spec) => ({ table: tableOf(tree), chain, spec, owner: claim.owner }));
}

/** Matches in the order in which iptables-save prints them. */
function routeSpec(
  { source, inInterface, target }: Route,
  destination: string,
  { owner, protocol, port }: Pick<NodePortClaim, 'owner' | 'protocol' | 'port'>,
  dnat: RuleParts['dnat'],
): string {
  const from = source === undefined ? '' : `-s ${source.network}/${source.prefixLength} `;
  const by = inInterface === undefined ? '' : `-i ${inInterface.name}${inInterface.isPrefix ? '+' : ''} `;
  const set = target.kind === 'listener' ? target.set : 'own';
  return `${from}${destination}${by}${toPort(protocol, port, portComment({ name: owner, set }))} ${dnat(portOf(target))}`;
}

function toAddress(address: Address): string {
  return `-d ${address}/${familyOf(address) === 'IPv4' ? 32 : 128} `;
}

/** The comment stands between -p and -m as upstream's does: iptables-save keeps the order of matches. */
function toPort(protocol: ProxiedProtocol, port: number, comment: string): string {
  const proto = protocol.toLowerCase();
  return `-p ${proto} -m comment --comment "${comment}" -m ${proto} --dport ${port}`;
}
