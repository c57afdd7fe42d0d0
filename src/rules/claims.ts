import { type Address, familyOf } from '../model/address.ts';
import { endpointName } from '../model/endpoint.ts';
import type { ServicePort } from '../model/service-port.ts';
import { NODEPORT_CONTAINER, NODEPORT_HOST, NODEPORT_NON_LOCAL, PORTALS_CONTAINER, PORTALS_HOST } from './chains.ts';
import type { Rule } from './rule.ts';
import type { Steering } from './steering.ts';

/** A Service port and the local port that carries it. */
export interface Portal {
  readonly servicePort: ServicePort;
  readonly localPort: number;
}

/**
 * Strongest first: when two Service ports claim the same address and port, a ClusterIP keeps it against a load
 * balancer's address, and that against an external IP. The API server hands out the first and a controller the second,
 * while any user may write the third, and could take other Services' traffic with it (CVE-2020-8554).
 */
export const CLAIM_KINDS = ['ClusterIP', 'load-balancer IP', 'external IP', 'NodePort'] as const;
export type ClaimKind = (typeof CLAIM_KINDS)[number];

/** One destination that a Service port answers on, and the rules that lead from there to its local port. */
export interface Claim {
  readonly kind: ClaimKind;
  /** What only one Service port can have: "10.96.0.1:443/TCP", "NodePort 30080/TCP". */
  readonly what: string;
  readonly rules: readonly Rule[];
}

/** Every claim of one Service port within one family. A pure function of its arguments: a result may be kept. */
export function claimsOf({ servicePort, localPort }: Portal, steer: Steering): readonly Claim[] {
  const { name: owner, protocol, port, nodePort } = servicePort;
  const proto = protocol.toLowerCase();
  const hostBits = steer.family === 'IPv4' ? 32 : 128;
  const container = steer.container(localPort);
  const host = steer.host(localPort);

  // The comment stands between -p and -m as upstream's does: iptables-save keeps the order of matches.
  const toPort = (number: number) => `-p ${proto} -m comment --comment "${owner}" -m ${proto} --dport ${number}`;
  const nat = (chain: string, ...parts: readonly string[]): Rule => ({
    table: 'nat',
    chain,
    spec: parts.filter((part) => part !== '').join(' '),
    owner,
  });
  const claims = (kind: ClaimKind, addresses: readonly Address[], rulesFor: (match: string) => readonly Rule[]) =>
    addresses
      .filter((address) => familyOf(address) === steer.family)
      .map((address): Claim => {
        const what = `${endpointName({ address, port })}/${protocol}`;
        return { kind, what, rules: rulesFor(`-d ${address}/${hostBits} ${toPort(port)}`) };
      });

  const always = (match: string) => [nat(PORTALS_CONTAINER, match, container), nat(PORTALS_HOST, match, host)];
  /*
   * An external IP is taken only from packets that are bound for this node: those that did not come in by a port of a
   * bridge (a pod that talks to the real owner of the address must reach it), and those to an address the node has.
   */
  const whenBoundForNode = (match: string) => [
    nat(PORTALS_CONTAINER, match, '-m physdev ! --physdev-is-in', container),
    nat(PORTALS_CONTAINER, match, '-m addrtype --dst-type LOCAL', container),
    nat(PORTALS_HOST, match, '-m addrtype --dst-type LOCAL', host),
  ];
  const nodePortClaims = (): readonly Claim[] => {
    if (nodePort === 0 || steer.nodePortMatches.length === 0) return [];
    const rules = steer.nodePortMatches.flatMap((destination) => [
      nat(NODEPORT_CONTAINER, destination, toPort(nodePort), container),
      nat(NODEPORT_HOST, destination, toPort(nodePort), host),
    ]);
    // In filter, the packet has been through NAT already and so shows the local port.
    const spec = `${toPort(localPort)} -m state --state NEW -j ACCEPT`;
    rules.push({ table: 'filter', chain: NODEPORT_NON_LOCAL, spec, owner });
    return [{ kind: 'NodePort', what: `NodePort ${nodePort}/${protocol}`, rules }];
  };

  return [
    ...claims('ClusterIP', servicePort.clusterIPs, always),
    ...claims('load-balancer IP', servicePort.loadBalancerIPs, always),
    ...claims('external IP', servicePort.externalIPs, whenBoundForNode),
    ...nodePortClaims(),
  ];
}
