import { familyOf, type IpFamily } from '../model/address.ts';
import {
  type EndpointAddress,
  type EndpointGroup,
  type EndpointPort,
  type NamedEndpoint,
  type NodeTopology,
  namedEndpoint,
} from '../model/endpoint.ts';
import type { ServicePortSpec, TrafficPolicy } from '../model/service.ts';

export interface Candidate {
  readonly endpoint: NamedEndpoint;
  readonly state: EndpointAddress;
  /** 0 is no new connections. */
  readonly weight: number;
  /** An operator has set the weight. */
  readonly isWeightSet?: true;
}

export interface EndpointPolicy {
  readonly internal: TrafficPolicy;
  readonly external: TrafficPolicy;
  /** It has a NodePort, a load balancer IP or an external IP. */
  readonly isExternallyAccessible: boolean;
}

export interface CategorizedEndpoints {
  /** For traffic with the policy Cluster. Absent when there is no such traffic. */
  readonly cluster?: readonly Candidate[];
  /** For traffic with the policy Local. Absent when there is no such traffic. */
  readonly local?: readonly Candidate[];
  /** Some endpoint in the cluster can serve, perhaps on other nodes only. */
  readonly hasAny: boolean;
}

/**
 * As upstream `pkg/proxy/topology.go` CategorizeEndpoints: ready endpoints serve. If none is ready, in the cluster or
 * on this node, endpoints that still serve while they terminate do. Traffic from inside the cluster to external
 * addresses always has the policy Cluster.
 */
export function categorizeEndpoints(
  candidates: readonly Candidate[],
  policy: EndpointPolicy,
  node: NodeTopology,
): CategorizedEndpoints {
  const usesCluster = policy.internal === 'Cluster' || policy.isExternallyAccessible;
  const usesLocal = policy.internal === 'Local' || (policy.external === 'Local' && policy.isExternallyAccessible);
  return {
    ...(usesCluster && { cluster: usable(candidates, (ready) => preferred(ready, node)) }),
    ...(usesLocal && { local: usable(candidates.filter((candidate) => isLocal(candidate, node))) }),
    hasAny: candidates.some((candidate) => isReady(candidate) || isLastResort(candidate)),
  };
}

export function isReady({ state, weight }: Candidate): boolean {
  return state.ready && weight > 0;
}

export function isLocal({ state }: Candidate, { nodeName }: NodeTopology): boolean {
  return nodeName !== undefined && state.nodeName === nodeName;
}

export function isLastResort({ state, weight }: Candidate): boolean {
  return state.serving && state.terminating && weight > 0;
}

export function usable(
  candidates: readonly Candidate[],
  prefer: (ready: readonly Candidate[]) => readonly Candidate[] = (ready) => ready,
): readonly Candidate[] {
  const ready = candidates.filter(isReady);
  return ready.length > 0 ? prefer(ready) : candidates.filter(isLastResort);
}

function preferred(ready: readonly Candidate[], node: NodeTopology): readonly Candidate[] {
  return decidingHints(ready, node)?.hinted ?? ready;
}

/**
 * The kind of hints that decides, and the endpoints with hints for this node. Hints of a kind count only when every
 * ready endpoint has some and one of them names this node or zone: a half-written slice must not lose endpoints.
 */
export function decidingHints(
  ready: readonly Candidate[],
  { nodeName, zone }: NodeTopology,
): { readonly kind: 'node' | 'zone'; readonly hinted: readonly Candidate[] } | undefined {
  const forNode = hintedFor(ready, nodeName, ({ state }) => state.nodeHints);
  if (forNode !== undefined) return { kind: 'node', hinted: forNode };
  const forZone = hintedFor(ready, zone, ({ state }) => state.zoneHints);
  return forZone && { kind: 'zone', hinted: forZone };
}

function hintedFor(
  ready: readonly Candidate[],
  name: string | undefined,
  hintsOf: (candidate: Candidate) => readonly string[] | undefined,
): readonly Candidate[] | undefined {
  if (name === undefined || !ready.every((candidate) => hintsOf(candidate) !== undefined)) return undefined;
  const ours = ready.filter((candidate) => hintsOf(candidate)?.includes(name));
  return ours.length > 0 ? ours : undefined;
}

export interface CandidateFacts {
  readonly family: IpFamily;
  /** What an operator has set. */
  weightOf(endpoint: NamedEndpoint): number | undefined;
}

/**
 * By name and protocol (upstream `pkg/proxy/endpointslicecache.go`, `endpointInfoByServicePort`). Upstream's userspace
 * mode compared names only, and so gave TCP endpoints to a UDP port.
 */
export function matchesSpec(port: EndpointPort, spec: PortIdentity): boolean {
  return port.name === spec.name && port.protocol === spec.protocol;
}

type PortIdentity = Pick<ServicePortSpec, 'name' | 'protocol'>;

/** The endpoints of one Service port, each once, in an order that is independent of the order of groups. */
export function candidatesOf(
  groups: readonly EndpointGroup[],
  spec: PortIdentity,
  { family, weightOf }: CandidateFacts,
): readonly Candidate[] {
  const candidates = new Map<string, Candidate>();
  for (const group of groups) {
    for (const { port } of group.ports.filter((each) => matchesSpec(each, spec))) {
      for (const state of group.addresses) {
        if (familyOf(state.address) !== family) continue;
        const endpoint = namedEndpoint(state.address, port);
        const set = weightOf(endpoint);
        const weight = set ?? group.weight ?? 1;
        const candidate: Candidate = { endpoint, state, weight, ...(set !== undefined && { isWeightSet: true }) };
        const other = candidates.get(endpoint.name);
        if (other === undefined || better(candidate, other)) candidates.set(endpoint.name, candidate);
      }
    }
  }
  return [...candidates.keys()].sort().map((name) => candidates.get(name) as Candidate);
}

/**
 * While an endpoint moves between slices, both may list it, and one is outdated. The better state costs a retry at
 * worst; the other could leave a Service without endpoints.
 */
function better(a: Candidate, b: Candidate): boolean {
  const difference = rank(a) - rank(b) || a.weight - b.weight;
  return difference === 0 ? JSON.stringify(a.state) > JSON.stringify(b.state) : difference > 0;
}

function rank(candidate: Candidate): number {
  if (isReady(candidate)) return 2;
  return candidate.state.serving ? 1 : 0;
}
