import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import type { NodeTopology } from '../model/endpoint.ts';
import { type Endpoint, type EndpointGroup, endpointName } from '../model/endpoint.ts';
import { type Service, type ServicePortName, type ServicePortSpec, servicePortName } from '../model/service.ts';
import type {
  EndpointSet,
  HealthCheck,
  ProxiedProtocol,
  RefusedPart,
  ServicePort,
  UnservedPort,
} from '../model/service-port.ts';
import { type CandidateFacts, candidatesOf } from './candidates.ts';
import {
  type Candidate,
  type CategorizedEndpoints,
  categorizeEndpoints,
  isLocal,
  isReady,
  usable,
} from './categorize-endpoints.ts';
import { type ExternalIpFacts, externalIpRefusal } from './external-ip-refusal.ts';
import { type CaptureFacts, loopReason } from './loop-reason.ts';

/** What Service ports depend on beside their Service and its endpoints. */
export interface Surroundings extends CandidateFacts {
  /** All that are served, this one among them: of each Service, one family alone tells what is wrong with it. */
  readonly servedFamilies: readonly IpFamily[];
  readonly topology: NodeTopology;
  readonly capture: CaptureFacts;
  readonly externalIPs: ExternalIpFacts;
}

export interface Derived {
  readonly ports: ReadonlyMap<ServicePortName, ServicePort>;
  readonly unserved: readonly UnservedPort[];
  readonly refused: readonly RefusedPart[];
  readonly healthCheck: HealthCheck | undefined;
}

/** The snapshots of one Service within one family. None when it has no cluster IP there. */
export function deriveServicePorts(
  service: Service,
  groups: readonly EndpointGroup[],
  surroundings: Surroundings,
): Derived {
  const ports = new Map<ServicePortName, ServicePort>();
  const refused: RefusedPart[] = [];
  const unserved = unservedPorts(service, surroundings);
  const { family, topology } = surroundings;
  const clusterIPs = ofFamily(service.clusterIPs, family);
  if (clusterIPs.length === 0) return { ports, unserved, refused, healthCheck: undefined };

  const { healthCheckNodePort } = service;
  const loadBalancerIPs = ofFamily(service.loadBalancerIPs, family);
  const loadBalancerSourceRanges = service.loadBalancerSourceRanges?.filter(
    ({ network }) => familyOf(network) === family,
  );
  /** The addresses with a ready endpoint on this node. */
  const healthy = new Set<Address>();
  for (const spec of service.ports) {
    if (!isProxied(spec)) continue;
    const { protocol, port, nodePort } = spec;
    const name = servicePortName(service.key, spec.name);
    const choice = chooseEndpoints(service, spec, groups, surroundings, refused);
    const { candidates, externalIPs, categorized } = choice;
    const namedEndpoints = endpointsNamedBy(nodePort, choice.known, surroundings);
    const servicePort: ServicePort = {
      name,
      protocol,
      port,
      nodePort,
      // Rules let it in: they follow Service ports, of which one is enough.
      ...(healthCheckNodePort !== undefined && ports.size === 0 && { healthCheckNodePort }),
      clusterIPs,
      externalIPs,
      loadBalancerIPs,
      ...(loadBalancerSourceRanges !== undefined && { loadBalancerSourceRanges }),
      affinity: service.affinity,
      ...(namedEndpoints.length > 0 && { namedEndpoints }),
      ...endpointSets(service, candidates, categorized),
    };
    ports.set(name, Object.freeze(servicePort));
    for (const candidate of candidates) {
      if (isReady(candidate) && isLocal(candidate, topology)) healthy.add(candidate.endpoint.address);
    }
  }
  const healthCheck =
    healthCheckNodePort === undefined ? undefined : { port: healthCheckNodePort, localEndpoints: healthy.size };
  return { ports, unserved, refused, healthCheck };
}

/** What this family has to tell of: only one of several does, so that nothing is said twice. */
function unservedPorts(service: Service, { family, servedFamilies }: Surroundings): UnservedPort[] {
  if (family !== servedFamilies[0]) return [];
  const isServed = servedFamilies.some((served) => ofFamily(service.clusterIPs, served).length > 0);
  const families = servedFamilies.join(' and ');
  const wrongFamily = `the Service has no ${families} cluster IP, and only ${families} is served`;
  return service.ports
    .filter(({ protocol }) => protocol === 'SCTP' || !isServed)
    .map(({ name, protocol }) => ({
      name: servicePortName(service.key, name),
      reason: protocol === 'SCTP' ? 'SCTP is not supported in user space' : wrongFamily,
      ...(service.uid !== undefined && { uid: service.uid }),
    }));
}

/** One that can be carried. */
export type ProxiedPortSpec = ServicePortSpec & { readonly protocol: ProxiedProtocol };

export function isProxied(spec: ServicePortSpec): spec is ProxiedPortSpec {
  return spec.protocol !== 'SCTP';
}

export interface EndpointChoice {
  /** Every endpoint that is known. */
  readonly known: readonly Candidate[];
  /** Those that lead elsewhere than back to the proxy. */
  readonly candidates: readonly Candidate[];
  /** Those of the Service that are allowed. */
  readonly externalIPs: readonly Address[];
  readonly categorized: CategorizedEndpoints;
}

/** What of one Service port is left out goes to `refused`. */
export function chooseEndpoints(
  service: Service,
  spec: ProxiedPortSpec,
  groups: readonly EndpointGroup[],
  surroundings: Surroundings,
  refused: RefusedPart[] = [],
): EndpointChoice {
  const { protocol, nodePort } = spec;
  const { internalTrafficPolicy: internal = 'Cluster', externalTrafficPolicy: external = 'Cluster' } = service;
  const judging = { name: servicePortName(service.key, spec.name), protocol, surroundings, refused };
  const known = candidatesOf(groups, spec, surroundings);
  const candidates = withoutLoops(known, judging);
  const externalIPs = allowedExternalIPs(service, spec, candidates, judging);
  const loadBalancerIPs = ofFamily(service.loadBalancerIPs, surroundings.family);
  const isExternallyAccessible = nodePort !== 0 || loadBalancerIPs.length > 0 || externalIPs.length > 0;
  const policy = { internal, external, isExternallyAccessible };
  return {
    known,
    candidates,
    externalIPs,
    categorized: categorizeEndpoints(candidates, policy, surroundings.topology),
  };
}

/**
 * Where endpoints of this node have `port`, on which the Service itself is reached there. A connection to such an address
 * and port comes from the proxy of another node, which has chosen this very endpoint, or from a client of the Service.
 * Spread again, it might go from node to node for ever (docs/adr/0019).
 */
function endpointsNamedBy(
  port: number,
  known: readonly Candidate[],
  { capture: { nodeAddresses } }: Surroundings,
): readonly Address[] {
  if (port === 0) return [];
  return usable(known)
    .filter(({ endpoint }) => endpoint.port === port && nodeAddresses.has(endpoint.address))
    .map(({ endpoint }) => endpoint.address);
}

/**
 * The traffic of a Service port needs at most two sets, whatever its policies: the cluster's and the node's. When it
 * needs both, the cluster's is the Service port's own and the node's is beside it.
 */
function endpointSets(
  { internalTrafficPolicy, externalTrafficPolicy }: Service,
  candidates: readonly Candidate[],
  { cluster, local, hasAny }: CategorizedEndpoints,
): Pick<ServicePort, keyof EndpointSet | 'local'> {
  const setOf = (chosen: readonly Candidate[]) => endpointSet(chosen, candidates, hasAny);
  if (cluster === undefined) return setOf(local ?? []);
  if (local === undefined) return setOf(cluster);
  return {
    ...setOf(cluster),
    local: {
      ...setOf(local),
      internal: internalTrafficPolicy === 'Local',
      external: externalTrafficPolicy === 'Local',
    },
  };
}

function endpointSet(chosen: readonly Candidate[], all: readonly Candidate[], hasAny: boolean): EndpointSet {
  const isChosen = new Set(chosen);
  const draining = all.filter((candidate) => !isChosen.has(candidate));
  return {
    endpoints: chosen.map(({ endpoint }) => endpoint),
    ...(draining.length > 0 && { draining: draining.map(({ endpoint }) => endpoint) }),
    ...(chosen.length === 0 && hasAny && { onlyElsewhere: true }),
  };
}

/** For whom a part is judged, and where refusals go. */
interface Judging {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  readonly surroundings: Surroundings;
  readonly refused: RefusedPart[];
}

function withoutLoops(candidates: readonly Candidate[], judging: Judging): readonly Candidate[] {
  const { protocol, surroundings } = judging;
  return judge('endpoint', candidates, judging, {
    nameOf: ({ endpoint }) => endpoint,
    reasonAgainst: ({ endpoint }) => loopReason(endpoint, protocol, surroundings.capture),
  });
}

function allowedExternalIPs(
  service: Service,
  { port }: ServicePortSpec,
  candidates: readonly Candidate[],
  judging: Judging,
): readonly Address[] {
  const { protocol, surroundings } = judging;
  const ownEndpoints = new Set(endpointsNamedBy(port, candidates, surroundings));
  return judge('external IP', ofFamily(service.externalIPs, surroundings.family), judging, {
    nameOf: (address) => ({ address, port }),
    reasonAgainst: (address) =>
      externalIpRefusal({ address, port }, { protocol, service: service.key }, surroundings.externalIPs) ??
      (ownEndpoints.has(address)
        ? 'it is an endpoint of the Service on this node, which keeps its clients'
        : undefined),
  });
}

/** How many refused parts of a kind are named: a hostile slice could list thousands. */
const NAMED = 3;

/** Keeps what nothing speaks against, and tells of the rest by reason. */
function judge<T>(
  kind: string,
  parts: readonly T[],
  { name, refused }: Judging,
  { nameOf, reasonAgainst }: { nameOf(part: T): Endpoint; reasonAgainst(part: T): string | undefined },
): readonly T[] {
  const byReason = new Map<string, string[]>();
  const kept = parts.filter((part) => {
    const reason = reasonAgainst(part);
    if (reason === undefined) return true;
    const names = byReason.get(reason) ?? [];
    byReason.set(reason, names);
    names.push(endpointName(nameOf(part)));
    return false;
  });
  for (const [reason, names] of byReason) {
    const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : '';
    refused.push({ name, what: `${kind} ${names.slice(0, NAMED).join(', ')}${more}`, reason });
  }
  return kept;
}

function ofFamily(addresses: readonly Address[], family: IpFamily): readonly Address[] {
  const isOfFamily = (address: Address) => familyOf(address) === family;
  // Mostly all of them are: then the Service's own list does, of which there is one already.
  return addresses.every(isOfFamily) ? addresses : addresses.filter(isOfFamily);
}
