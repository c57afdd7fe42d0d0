import { type Address, familyOf } from '../model/address.ts';
import { endpointName } from '../model/endpoint.ts';
import type { Table } from '../model/iptables.ts';
import type { ServicePortName } from '../model/service.ts';
import type { EndpointSetName, ServicePort } from '../model/service-port.ts';
import {
  LET_IN,
  LOCAL_PORTS,
  NODEPORT_CONTAINER,
  NODEPORT_HOST,
  NODEPORT_NON_LOCAL,
  PORTALS_CONTAINER,
  PORTALS_HOST,
} from './chains.ts';
import { addressKey, type DestinationKey, portKey } from './destination-key.ts';
import { REFUSE } from './doors.ts';
import { closedPortComment, healthCheckComment, portComment } from './port-comment.ts';
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
export const CLAIM_KINDS = [
  'ClusterIP',
  'load-balancer IP',
  'external IP',
  'NodePort',
  'health check',
  'local port',
] as const;
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
  const places = (address: Address, ways: Routes) => portalPlaces(servicePort, address, ways, steer);
  portalClaims('ClusterIP', servicePort.clusterIPs, (address) => places(address, routes.clusterIP));
  portalClaims('load-balancer IP', servicePort.loadBalancerIPs, (address) =>
    places(address, routes.loadBalancerIP(address)),
  );
  portalClaims('external IP', servicePort.externalIPs, (address) => places(address, routes.external));
  if (nodePort !== 0) {
    claim('NodePort', `NodePort ${nodePort}/${protocol}`, nodePortPlaces(servicePort, routes.external, steer));
  }
  const { healthCheckNodePort } = servicePort;
  if (healthCheckNodePort !== undefined) {
    const what = `health check node port ${healthCheckNodePort}`;
    claim('health check', what, [healthCheckPlace(servicePort, healthCheckNodePort)]);
  }
  for (const local of localPortsOf(portal)) {
    claim('local port', `local port ${local.port}/${protocol}`, localPortPlaces(servicePort, local, steer));
  }
  return claims;
}

type Place = Omit<ClaimPart, 'standing'>;

function portalPlaces(servicePort: ServicePort, address: Address, routes: Routes, steer: Steering): Place[] {
  const { protocol, port } = servicePort;
  const key = addressKey(address) + portKey(protocol, port);
  const destination = `-d ${address}/${steer.family === 'IPv4' ? 32 : 128} `;
  const specs = (ways: readonly Route[]) =>
    ways.map(({ target, ...origin }) => {
      const match = fromTo(origin, destination) + toPort(servicePort, port, commentFor(servicePort, target));
      return `${match} ${steer.lead(target.port)}`;
    });
  return [
    { table: 'nat', chain: PORTALS_CONTAINER, key, specs: specs(routes.container) },
    { table: 'nat', chain: PORTALS_HOST, key, specs: specs(routes.host) },
  ];
}

function nodePortPlaces(servicePort: ServicePort, { container, host }: Routes, steer: Steering): Place[] {
  const { protocol, nodePort } = servicePort;
  const key = portKey(protocol, nodePort);
  const specs = (ways: readonly Route[], to: Steering['lead']) =>
    ways.flatMap(({ target, ...origin }) => {
      const match = toPort(servicePort, nodePort, commentFor(servicePort, target));
      return steer.nodePortMatches.map((destination) => `${fromTo(origin, destination)}${match} ${to(target.port)}`);
    });
  const named = (servicePort.namedEndpoints ?? []).map((address) => {
    const comment = portComment({ name: servicePort.name, set: 'own' });
    return `-d ${address}/${steer.family === 'IPv4' ? 32 : 128} ${toPort(servicePort, nodePort, comment)}`;
  });
  const spared = named.map((match) => `${match} -j RETURN`);
  // NAT does not touch what is for these, so it comes in as it is.
  const letIn: Place = { table: 'filter', chain: LET_IN, key, specs: named.map((match) => `${match} -j ACCEPT`) };
  return [
    { table: 'nat', chain: NODEPORT_CONTAINER, key, specs: [...spared, ...specs(container, steer.leadArrived)] },
    { table: 'nat', chain: NODEPORT_HOST, key, specs: [...spared, ...specs(host, steer.lead)] },
    ...(named.length === 0 ? [] : [letIn]),
  ];
}

/**
 * Refuses who asks for the local port itself, and lets in what NAT has sent there, past whatever other rules of INPUT
 * keep out. Processes of the node are not refused: they would need as many rules again, and they reach whatever the
 * Service reaches in any case.
 */
function localPortPlaces(servicePort: ServicePort, { port, set }: LocalPort, steer: Steering): Place[] {
  const key = portKey(servicePort.protocol, port);
  const owner = { name: servicePort.name, set };
  const closed = toPort(servicePort, port, closedPortComment(owner));
  return [
    // On other addresses than ours, the port may be somebody else's.
    { table: 'nat', chain: LOCAL_PORTS, key, specs: [`${steer.boundMatch}${closed} ${steer.leadArrived(REFUSE)}`] },
    // For new packets that NAT has sent: the chain begins with that.
    {
      table: 'filter',
      chain: NODEPORT_NON_LOCAL,
      key,
      specs: [`${toPort(servicePort, port, portComment(owner))} -j ACCEPT`],
    },
  ];
}

/** Load balancers ask from outside. One Service port of a Service has it, the first. */
function healthCheckPlace({ name }: ServicePort, port: number): Place {
  const match = `-p tcp -m comment --comment "${healthCheckComment(name)}" -m tcp --dport ${port}`;
  return { table: 'filter', chain: LET_IN, key: portKey('TCP', port), specs: [`${match} -j ACCEPT`] };
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
