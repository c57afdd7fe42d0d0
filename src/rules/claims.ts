import type { Table } from '../contracts/iptables.ts';
import { type Address, familyOf } from '../model/address.ts';
import { endpointName } from '../model/endpoint.ts';
import type { EndpointSetName } from '../model/listener-id.ts';
import type { ServicePortName } from '../model/service.ts';
import type { ServicePort } from '../model/service-port.ts';
import {
  LOCAL_PORTS,
  NODEPORT_CONTAINER,
  NODEPORT_HOST,
  NODEPORT_NON_LOCAL,
  PORTALS_CONTAINER,
  PORTALS_HOST,
} from './chains.ts';
import { addressKey, type DestinationKey, portKey } from './destination-key.ts';
import { REFUSE } from './doors.ts';
import { closedPortComment, portComment } from './port-comment.ts';
import { type Origin, type Route, type Routes, routesOf, type Target } from './routes.ts';
import type { Steering } from './steering.ts';

/** A Service port and the local ports that carry it. */
export interface Portal {
  readonly servicePort: ServicePort;
  readonly localPort: number;
  /** The listener of the endpoint set `servicePort.local`, where there is one. */
  readonly localSetPort?: number;
}

/** Each local port of a portal, with the endpoint set that it serves. */
export function localPortsOf({ localPort, localSetPort }: Portal): readonly LocalPort[] {
  const own: LocalPort = { port: localPort, set: 'own' };
  return localSetPort === undefined ? [own] : [own, { port: localSetPort, set: 'local' }];
}

interface LocalPort {
  readonly port: number;
  readonly set: EndpointSetName;
}

/** What changed among portals since the last delta was taken; a name is in one of the two lists, once. */
export interface PortalDelta {
  /** New, or with other rules than before. */
  readonly upserted: readonly Portal[];
  readonly removed: readonly ServicePortName[];
}

/**
 * Strongest first: when two Service ports claim the same address and port, a ClusterIP keeps it against a load
 * balancer's address, and that against an external IP. The API server hands out the first and a controller the second,
 * while any user may write the third, and could take other Services' traffic with it (CVE-2020-8554).
 */
export const CLAIM_KINDS = ['ClusterIP', 'load-balancer IP', 'external IP', 'NodePort', 'local port'] as const;
export type ClaimKind = (typeof CLAIM_KINDS)[number];

/** What decides between claims of the same, and orders rules within a chain. */
export interface Standing {
  readonly kind: ClaimKind;
  readonly owner: ServicePortName;
  /** Among the claims of its owner. */
  readonly index: number;
}

/** One destination that a Service port answers on, and the rules that lead from there to its local port. */
export interface Claim {
  readonly standing: Standing;
  /** What only one Service port can have: "10.96.0.1:443/TCP", "NodePort 30080/TCP". */
  readonly what: string;
  readonly parts: readonly ClaimPart[];
}

/** The rules of a claim that stand in one root chain, or in the buckets that it leads to. */
export interface ClaimPart {
  readonly standing: Standing;
  readonly table: Table;
  readonly chain: string;
  readonly key: DestinationKey;
  readonly specs: readonly string[];
}

/** Every claim of one Service port within one family. A pure function of its arguments: a result may be kept. */
export function claimsOf(portal: Portal, steer: Steering): readonly Claim[] {
  const { servicePort } = portal;
  const { name: owner, protocol, nodePort } = servicePort;
  const routes = routesOf(portal, steer);
  const claims: Claim[] = [];
  const claim = (kind: ClaimKind, what: string, parts: readonly Place[]) => {
    const standing: Standing = { kind, owner, index: claims.length };
    claims.push({ standing, what, parts: parts.map((part) => ({ standing, ...part })) });
  };
  const portalClaims = (kind: ClaimKind, addresses: readonly Address[], parts: (address: Address) => Place[]) => {
    for (const address of addresses) {
      if (familyOf(address) !== steer.family) continue;
      claim(kind, `${endpointName({ address, port: servicePort.port })}/${protocol}`, parts(address));
    }
  };
  const places = (address: Address, ways: Routes, when: Condition) =>
    portalPlaces(servicePort, address, ways, when, steer);
  portalClaims('ClusterIP', servicePort.clusterIPs, (address) => places(address, routes.clusterIP, ALWAYS));
  portalClaims('load-balancer IP', servicePort.loadBalancerIPs, (address) =>
    places(address, routes.loadBalancerIP(address), ALWAYS),
  );
  portalClaims('external IP', servicePort.externalIPs, (address) =>
    places(address, routes.external, WHEN_BOUND_FOR_NODE),
  );
  if (nodePort !== 0) {
    claim('NodePort', `NodePort ${nodePort}/${protocol}`, nodePortPlaces(servicePort, routes.external, steer));
  }
  for (const { port, set } of localPortsOf(portal)) {
    claim('local port', `local port ${port}/${protocol}`, [closedPlace(servicePort, port, set, steer)]);
  }
  return claims;
}

/** What else a packet must be for the rules of an address, if anything: one rule for each. */
interface Condition {
  readonly container: readonly string[];
  readonly host: readonly string[];
}

const ALWAYS: Condition = { container: [''], host: [''] };

/**
 * An external IP is taken only from packets that are bound for this node: those that did not come in by a port of a
 * bridge (a pod that talks to the real owner of the address must reach it), and those to an address the node has.
 */
const WHEN_BOUND_FOR_NODE: Condition = {
  container: ['-m physdev ! --physdev-is-in ', '-m addrtype --dst-type LOCAL '],
  host: ['-m addrtype --dst-type LOCAL '],
};

type Place = Omit<ClaimPart, 'standing'>;

function portalPlaces(
  servicePort: ServicePort,
  address: Address,
  routes: Routes,
  when: Condition,
  steer: Steering,
): Place[] {
  const { protocol, port } = servicePort;
  const key = addressKey(address) + portKey(protocol, port);
  const destination = `-d ${address}/${steer.family === 'IPv4' ? 32 : 128} `;
  const specs = (ways: readonly Route[], conditions: readonly string[], to: Steering['host']) =>
    ways.flatMap(({ target, ...origin }) => {
      const match = fromTo(origin, destination) + toPort(servicePort, port, commentFor(servicePort, target));
      return conditions.map((condition) => `${match} ${condition}${to(target.port)}`);
    });
  return [
    { table: 'nat', chain: PORTALS_CONTAINER, key, specs: specs(routes.container, when.container, steer.container) },
    { table: 'nat', chain: PORTALS_HOST, key, specs: specs(routes.host, when.host, steer.host) },
  ];
}

function nodePortPlaces(servicePort: ServicePort, { container, host }: Routes, steer: Steering): Place[] {
  const { protocol, nodePort } = servicePort;
  const key = portKey(protocol, nodePort);
  const specs = (ways: readonly Route[], to: Steering['host']) =>
    ways.flatMap(({ target, ...origin }) => {
      const match = toPort(servicePort, nodePort, commentFor(servicePort, target));
      return steer.nodePortMatches.map((destination) => `${fromTo(origin, destination)}${match} ${to(target.port)}`);
    });
  // In filter, the packet has been through NAT already and so shows the local port.
  const letIn = new Map<number, Place>();
  for (const { target } of [...container, ...host]) {
    if (target.kind === 'door') continue;
    const match = toPort(servicePort, target.port, commentFor(servicePort, target));
    letIn.set(target.port, {
      table: 'filter',
      chain: NODEPORT_NON_LOCAL,
      key: portKey(protocol, target.port),
      specs: [`${match} -m state --state NEW -j ACCEPT`],
    });
  }
  const named = (servicePort.namedEndpoints ?? []).map((address) => {
    const comment = portComment({ name: servicePort.name, set: 'own' });
    return `-d ${address}/${steer.family === 'IPv4' ? 32 : 128} ${toPort(servicePort, nodePort, comment)}`;
  });
  if (named.length > 0) {
    letIn.set(nodePort, {
      ...{ table: 'filter', chain: NODEPORT_NON_LOCAL, key },
      specs: named.map((match) => `${match} -m state --state NEW -j ACCEPT`),
    });
  }
  const spared = named.map((match) => `${match} -j RETURN`);
  return [
    { table: 'nat', chain: NODEPORT_CONTAINER, key, specs: [...spared, ...specs(container, steer.container)] },
    { table: 'nat', chain: NODEPORT_HOST, key, specs: [...spared, ...specs(host, steer.host)] },
    ...letIn.values(),
  ];
}

/**
 * Refuses who asks for the local port itself. Not the node's own processes: they would need as many rules again, and
 * they reach whatever the Service reaches in any case.
 */
function closedPlace(servicePort: ServicePort, port: number, set: EndpointSetName, steer: Steering): Place {
  const match = toPort(servicePort, port, closedPortComment({ name: servicePort.name, set }));
  return {
    table: 'nat',
    chain: LOCAL_PORTS,
    key: portKey(servicePort.protocol, port),
    // On other addresses than ours, the port may be somebody else's.
    specs: [`${steer.boundMatch}${match} ${steer.container(REFUSE)}`],
  };
}

/** The comment stands between -p and -m as upstream's does: iptables-save keeps the order of matches. */
function toPort({ protocol }: ServicePort, port: number, comment: string): string {
  const proto = protocol.toLowerCase();
  return `-p ${proto} -m comment --comment "${comment}" -m ${proto} --dport ${port}`;
}

function commentFor({ name }: ServicePort, target: Target): string {
  return portComment({ name, set: target.kind === 'door' ? 'own' : target.set });
}

/** In the order in which iptables-save prints them. */
function fromTo({ source, inInterface }: Origin, destination: string): string {
  const from = source === undefined ? '' : `-s ${source.network}/${source.prefixLength} `;
  return from + destination + (inInterface === undefined ? '' : `-i ${inInterface} `);
}
