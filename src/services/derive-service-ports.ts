import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import { type EndpointGroup, endpointName, type NodeTopology, type WeightedEndpoint } from '../model/endpoint.ts';
import { type Service, type ServicePortName, type ServicePortSpec, servicePortName } from '../model/service.ts';
import {
  type EndpointSet,
  type EndpointSetName,
  type HealthCheck,
  hasEndpoints,
  type ProxiedProtocol,
  type RefusedPart,
  type ServicePort,
  type UnservedPort,
} from '../model/service-port.ts';
import { type Found, foundText } from '../util/found.ts';
import { listed } from '../util/text.ts';
import {
  type Candidate,
  type CandidateFacts,
  type CategorizedEndpoints,
  candidatesOf,
  categorizeEndpoints,
  decidingHints,
  isLastResort,
  isLocal,
  isReady,
  usable,
} from './categorize-endpoints.ts';
import type { EndpointPorts, KnownAddresses, PortOfNode } from './known-addresses.ts';
import { moreThanOne, ownerOf, withinLimits } from './service-limits.ts';

/** What Service ports depend on beside their Service and endpoints. */
export interface Surroundings extends CandidateFacts {
  readonly servedFamilies: readonly IpFamily[];
  readonly topology: NodeTopology;
  readonly addresses: KnownAddresses;
  /** How long clients wait for an endpoint of a Service that does not say so; 0: not at all. */
  readonly waitForEndpointsMs: number;
}

export interface Derived {
  readonly ports: ReadonlyMap<ServicePortName, ServicePort>;
  readonly unserved: readonly UnservedPort[];
  readonly refused: readonly RefusedPart[];
  readonly healthCheck: HealthCheck | undefined;
  /** A part is left out because a program has its port. */
  readonly awaitsPort: boolean;
}

/** `wasIdled`: it was idled when it was derived last, and had no endpoint. */
export function deriveServicePorts(
  service: Service,
  groups: readonly EndpointGroup[],
  surroundings: Surroundings,
  wasIdled = false,
): Derived {
  const limited = withinLimits(service, surroundings.family);
  const isReporting = surroundings.family === surroundings.servedFamilies[0];
  const unserved = isReporting ? [...limited.unserved, ...unservedPorts(limited.service, surroundings)] : [];
  const derived = derivePorts(limited.service, groups, surroundings, wasIdled);
  const beyond = isOfFamily(service, surroundings.family) ? limited.refused : [];
  const refused = [...beyond, ...(isReporting ? refusedOptions(service) : []), ...derived.refused];
  return { ...derived, unserved, refused };
}

/** What its annotations ask for and there is not. */
export function refusedOptions(service: Service): readonly RefusedPart[] {
  const { key, options } = service;
  return options?.refused?.map((part) => ({ name: key, ...part, ...ownerOf(service) })) ?? [];
}

/** How long the clients of an idled Service wait that does not say so itself: pods may have to pull their image. */
const IDLED_WAIT_MS = 120_000;

/**
 * Whoever wakes an idled Service takes its mark away before the pods are ready (OpenShift's unidling controller, when
 * it has scaled them up), so the Service counts as idled until one of them may serve.
 */
function waitOf(
  { options }: Service,
  sets: Pick<ServicePort, keyof EndpointSet | 'local'>,
  { waitForEndpointsMs }: Surroundings,
  wasIdled: boolean,
): { readonly waitMs?: number } {
  const isIdled = options?.isIdled ?? (wasIdled && !hasEndpoints(sets));
  const waitMs = options?.waitForEndpointsMs ?? (isIdled ? IDLED_WAIT_MS : waitForEndpointsMs);
  return waitMs > 0 ? { waitMs } : {};
}

function derivePorts(
  service: Service,
  groups: readonly EndpointGroup[],
  surroundings: Surroundings,
  wasIdled: boolean,
): Omit<Derived, 'unserved'> {
  const ports = new Map<ServicePortName, ServicePort>();
  const refused: RefusedPart[] = [];
  const { family, topology } = surroundings;
  if (!isOfFamily(service, family)) return { ports, refused, healthCheck: undefined, awaitsPort: false };

  const { healthCheckNodePort, affinity, options } = service;
  const loadBalancerIPs = ofFamily(service.loadBalancerIPs, family);
  const loadBalancerSourceRanges = service.loadBalancerSourceRanges?.filter(
    ({ network }) => familyOf(network) === family,
  );
  /** With a ready endpoint on this node. */
  const healthy = new Set<Address>();
  let awaitsPort = false;
  const read: EndpointPorts = new Map();
  for (const spec of service.ports) {
    if (!isProxied(spec)) continue;
    const { protocol, port } = spec;
    const name = servicePortName(service.key, spec.name);
    const choice = chooseEndpoints({ service, spec, groups, surroundings, read });
    const { known, candidates, externalIPs, categorized } = choice;
    const { nodePort, clusterIPs, refusedHere } = portsOfNode(service, spec, known, surroundings);
    refused.push(...choice.refused, ...refusedHere);
    awaitsPort ||= refusedHere.length > 0;
    const named = endpointsNamedBy(nodePort, known, surroundings);
    const closed = named.filter((each) => intrusionOf(each, surroundings) !== undefined);
    const sets = endpointSets(service, candidates, categorized);
    const servicePort: ServicePort = {
      name,
      protocol,
      port,
      nodePort,
      // The rule that accepts health checks is needed once per Service.
      ...(healthCheckNodePort !== undefined && ports.size === 0 && { healthCheckNodePort }),
      clusterIPs,
      externalIPs,
      loadBalancerIPs,
      ...(loadBalancerSourceRanges !== undefined && { loadBalancerSourceRanges }),
      affinity,
      ...(options !== undefined && { options }),
      ...(named.length > 0 && { namedEndpoints: named.map(({ endpoint }) => endpoint.address) }),
      ...(closed.length > 0 && { closedEndpoints: closed.map(({ endpoint }) => endpoint.address) }),
      ...waitOf(service, sets, surroundings, wasIdled),
      ...sets,
    };
    ports.set(name, Object.freeze(servicePort));
    for (const candidate of candidates) {
      if (isReady(candidate) && isLocal(candidate, topology)) healthy.add(candidate.endpoint.address);
    }
  }
  const healthCheck =
    healthCheckNodePort === undefined ? undefined : { port: healthCheckNodePort, localEndpoints: healthy.size };
  return { ports, refused, healthCheck, awaitsPort };
}

/** What a Service port has of this node's own ports: all but those that a program has. */
function portsOfNode(service: Service, spec: ProxiedPortSpec, known: readonly Candidate[], surroundings: Surroundings) {
  const { family, servedFamilies, addresses } = surroundings;
  const { protocol, port, nodePort } = spec;
  const name = servicePortName(service.key, spec.name);
  const refusalOfPort = (to: PortOfNode) => addresses.programRefusal(name, to, protocol);
  // One that listens at the NodePort's own number keeps its clients (docs/adr/0019). Whoever may write endpoints could
  // name any program of the node, so only those count that the proxy may use.
  const isOwn = (each: Candidate) =>
    each.endpoint.port === nodePort &&
    addresses.isThisNode(each.endpoint.address) &&
    intrusionOf(each, surroundings) === undefined;
  const reason = nodePort === 0 || known.some(isOwn) ? undefined : refusalOfPort({ port: nodePort });
  const what = `NodePort ${nodePort}/${protocol}${servedFamilies.length > 1 ? ` over ${family}` : ''}`;
  const { accepted: clusterIPs, refused } = sift(ofFamily(service.clusterIPs, family), {
    reasonOf: (address) => refusalOfPort({ address, port }),
    kind: 'cluster IP',
    nameOf: (address) => endpointName({ address, port }),
    name,
    service,
  });
  return {
    nodePort: reason === undefined ? nodePort : 0,
    clusterIPs,
    refusedHere: [...(reason === undefined ? [] : [{ name, what, ...reason, ...ownerOf(service) }]), ...refused],
  };
}

function isOfFamily({ clusterIPs, families }: Service, family: IpFamily): boolean {
  return families?.includes(family) ?? ofFamily(clusterIPs, family).length > 0;
}

/** Only the first served family reports them, so nothing is reported twice. */
function unservedPorts(service: Service, { servedFamilies }: Surroundings): UnservedPort[] {
  const isServed = servedFamilies.some((served) => isOfFamily(service, served));
  const families = servedFamilies.join(' and ');
  const wrongFamily = `the Service has no ${families} cluster IP, and only ${families} is served`;
  const byReason = Map.groupBy(service.ports, ({ protocol }) => {
    if (protocol === 'SCTP') return 'SCTP is not supported in user space';
    return isServed ? undefined : wrongFamily;
  });
  return [...byReason].flatMap(([found, specs]) => {
    const [first] = specs;
    if (found === undefined || first === undefined) return [];
    const name = servicePortName(service.key, first.name);
    return [{ name, ...moreThanOne(specs.length), found, ...ownerOf(service) }];
  });
}

type ProxiedPortSpec = ServicePortSpec & { readonly protocol: ProxiedProtocol };

export function isProxied(spec: ServicePortSpec): spec is ProxiedPortSpec {
  return spec.protocol !== 'SCTP';
}

interface Choice {
  readonly service: Service;
  readonly spec: ProxiedPortSpec;
  readonly groups: readonly EndpointGroup[];
  readonly surroundings: Surroundings;
  /** Shared by the ports of the Service: external IPs may have many endpoints. */
  readonly read?: EndpointPorts;
}

/** `candidates`: the known endpoints that listeners may use. `refused`: what is left out. */
function chooseEndpoints(choice: Choice) {
  const { service, spec, groups, surroundings } = choice;
  const { protocol, nodePort } = spec;
  const { family, topology } = surroundings;
  const name = servicePortName(service.key, spec.name);
  const known = candidatesOf(groups, spec, surroundings);

  const { accepted: candidates, refused } = sift(known, {
    reasonOf: (each) => refusalOf(each, protocol, surroundings),
    kind: 'endpoint',
    nameOf: ({ endpoint }) => endpoint.name,
    name,
    service,
  });
  const external = externalIPsOf(choice, known);
  const { accepted: externalIPs } = external;
  const loadBalancerIPs = ofFamily(service.loadBalancerIPs, family);
  const policy = {
    internal: service.internalTrafficPolicy ?? 'Cluster',
    external: service.externalTrafficPolicy ?? 'Cluster',
    isExternallyAccessible: nodePort !== 0 || loadBalancerIPs.length > 0 || externalIPs.length > 0,
  };
  const categorized = categorizeEndpoints(candidates, policy, topology);
  return { known, candidates, externalIPs, categorized, refused: [...refused, ...external.refused] };
}

/** Why no listener may use this endpoint; `undefined` when one may. */
function refusalOf(known: Candidate, protocol: ProxiedProtocol, surroundings: Surroundings): Found | undefined {
  return surroundings.addresses.loopReason(known.endpoint, protocol) ?? intrusionOf(known, surroundings);
}

function intrusionOf({ endpoint, state }: Candidate, { addresses }: Surroundings): Found | undefined {
  return addresses.intrusionReason(endpoint, state.isVouchedFor);
}

const OWN_ENDPOINT: Found = { found: 'it is an endpoint of the Service on this node, which keeps its clients' };

/** The external IPs that may have rules for this port. */
function externalIPsOf({ service, spec, surroundings, read }: Choice, known: readonly Candidate[]): Sifted<Address> {
  const { protocol, port } = spec;
  const { family, addresses } = surroundings;
  const ownEndpoints = new Set(endpointsNamedBy(port, known, surroundings).map(({ endpoint }) => endpoint.address));
  return sift(ofFamily(service.externalIPs, family), {
    reasonOf: (address) =>
      addresses.externalIpRefusal({ address, port }, protocol, service.key, read) ??
      (ownEndpoints.has(address) ? OWN_ENDPOINT : undefined),
    kind: 'external IP',
    nameOf: (address) => endpointName({ address, port }),
    name: servicePortName(service.key, spec.name),
    service,
  });
}

/**
 * The endpoints at addresses of this node that have `port`, on which the Service itself is reached there. The proxy
 * of another node may have chosen this endpoint; balanced again, the connection could go from node to node for ever
 * (docs/adr/0019).
 */
function endpointsNamedBy(
  port: number,
  known: readonly Candidate[],
  { addresses: { nodeAddresses } }: Surroundings,
): readonly Candidate[] {
  if (port === 0) return [];
  return usable(known).filter(({ endpoint }) => endpoint.port === port && nodeAddresses.has(endpoint.address));
}

/**
 * A Service port needs at most two sets, the cluster's and the node's. If it needs both, its own is the cluster's.
 */
function endpointSets(
  { internalTrafficPolicy, externalTrafficPolicy }: Service,
  candidates: readonly Candidate[],
  { cluster, local, hasAny }: CategorizedEndpoints,
): Pick<ServicePort, keyof EndpointSet | 'local'> {
  const setOf = (chosen: readonly Candidate[]): EndpointSet => {
    const isChosen = new Set(chosen);
    const draining = candidates.filter((candidate) => !isChosen.has(candidate));
    return {
      endpoints: chosen.map(weighted),
      ...(draining.length > 0 && { draining: draining.map(({ endpoint }) => endpoint) }),
      ...(chosen.length === 0 && hasAny && { onlyElsewhere: true }),
    };
  };
  if (cluster === undefined) return setOf(local ?? []);
  if (local === undefined) return setOf(cluster);
  const internal = internalTrafficPolicy === 'Local';
  const external = externalTrafficPolicy === 'Local';
  return { ...setOf(cluster), local: { ...setOf(local), internal, external } };
}

/** Most are as they are: a copy of each would take memory. */
function weighted({ endpoint, weight, state }: Candidate): WeightedEndpoint {
  if (weight === 1 && !state.isDoubtful) return endpoint;
  return { ...endpoint, ...(weight !== 1 && { weight }), ...(state.isDoubtful && { isDoubtful: true }) };
}

/** A hostile slice could list thousands of refused parts. */
const NAMED = 3;

interface Sifted<Part> {
  readonly accepted: readonly Part[];
  readonly refused: readonly RefusedPart[];
}

interface Sieve<Part> {
  /** Why it is left out. */
  readonly reasonOf: (part: Part) => Found | undefined;
  readonly kind: string;
  readonly nameOf: (part: Part) => string;
  readonly name: ServicePortName;
  readonly service: Service;
}

/** Parts of one kind: those that are accepted, and the others by reason. */
function sift<Part>(parts: readonly Part[], { reasonOf, kind, nameOf, name, service }: Sieve<Part>): Sifted<Part> {
  const reasons = new Map<Part, Found>();
  for (const part of parts) {
    const reason = reasonOf(part);
    if (reason !== undefined) reasons.set(part, reason);
  }
  // Usually all are: return the Service's own list to save memory.
  if (reasons.size === 0) return { accepted: parts, refused: [] };
  const byReason = Map.groupBy(reasons, ([, reason]) => foundText(reason));
  const refused = Array.from(byReason.values(), (some): RefusedPart => {
    const names = some.map(([part]) => nameOf(part));
    return { name, what: `${kind} ${listed(names, NAMED)}`, ...(some[0]?.[1] as Found), ...ownerOf(service) };
  });
  return { accepted: parts.filter((part) => !reasons.has(part)), refused };
}

function ofFamily(addresses: readonly Address[], family: IpFamily): readonly Address[] {
  const isOfFamily = (address: Address) => familyOf(address) === family;
  // Usually all are: return the Service's own list to save memory.
  return addresses.every(isOfFamily) ? addresses : addresses.filter(isOfFamily);
}

export interface EndpointVerdict extends Candidate {
  /** Why it gets no new connections ("not ready"). Absent for one that does. */
  readonly reason?: string;
}

/** The verdict of an endpoint set on every known endpoint of a Service port. */
export function endpointVerdicts(
  service: Service,
  spec: ProxiedPortSpec,
  set: EndpointSetName,
  groups: readonly EndpointGroup[],
  surroundings: Surroundings,
): readonly EndpointVerdict[] {
  const { known, candidates, categorized } = chooseEndpoints({ service, spec, groups, surroundings });
  const { topology } = surroundings;
  const { cluster, local = [] } = categorized;
  const isForNode = set === 'local' || cluster === undefined;
  const chosen = new Set(isForNode ? local : cluster);
  const hints = isForNode ? undefined : decidingHints(candidates.filter(isReady), topology)?.kind;
  return known.map((candidate) => {
    if (chosen.has(candidate)) return candidate;
    const isTooFar = isForNode && !isLocal(candidate, topology);
    const refusal = refusalOf(candidate, spec.protocol, surroundings);
    const reason =
      (refusal && foundText(refusal)) ??
      (isTooFar ? 'on another node, and the policy is Local' : reasonInReach(candidate, hints));
    return { ...candidate, reason };
  });
}

function reasonInReach(candidate: Candidate, hints: 'node' | 'zone' | undefined): string {
  const { weight, isWeightSet, state } = candidate;
  if (weight === 0) return isWeightSet ? 'drained by an operator' : 'its weight is 0';
  if (isReady(candidate)) {
    const names = (hints === 'node' ? state.nodeHints : state.zoneHints) ?? [];
    return `its topology hints are for ${hints} ${names.join(', ')}`;
  }
  if (isLastResort(candidate)) return 'terminating, and others are ready';
  return state.terminating ? 'terminating, and no longer serving' : 'not ready';
}
