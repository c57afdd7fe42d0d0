import { familyOf, type IpFamily } from '../model/address.ts';
import {
  type Endpoint,
  type EndpointAddress,
  type EndpointGroup,
  type EndpointPort,
  endpointName,
  type NodeTopology,
} from '../model/endpoint.ts';
import type { ServicePortSpec, TrafficPolicy } from '../model/service.ts';

/** An endpoint of one Service port, with its state. */
export interface Candidate {
  readonly endpoint: Endpoint;
  readonly state: EndpointAddress;
  /** An operator has drained it: it gets no new connections, whatever its state. */
  readonly isDrained?: true;
}

/** How a Service port wants its endpoints chosen. */
export interface EndpointPolicy {
  readonly internal: TrafficPolicy;
  readonly external: TrafficPolicy;
  /** It answers on more than its cluster IP: a NodePort, a load balancer IP or an external IP. */
  readonly isExternallyAccessible: boolean;
}

export interface CategorizedEndpoints {
  /** For traffic under the policy Cluster, topology hints considered. Absent when there is no such traffic. */
  readonly cluster?: readonly Candidate[];
  /** For traffic under the policy Local. Absent when there is no such traffic. */
  readonly local?: readonly Candidate[];
  /** Some endpoint in the cluster can serve, though perhaps not traffic of this node. */
  readonly hasAny: boolean;
}

/**
 * Which endpoints serve which traffic, by upstream's rules (`pkg/proxy/topology.go` CategorizeEndpoints). Ready
 * endpoints serve. If none is ready, endpoints that still serve while they terminate do; the cluster and this node
 * decide this separately. Traffic from inside the cluster to external addresses always has the policy Cluster.
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

export function isReady({ state, isDrained }: Candidate): boolean {
  return state.ready && !isDrained;
}

export function isLocal({ state }: Candidate, { nodeName }: NodeTopology): boolean {
  return nodeName !== undefined && state.nodeName === nodeName;
}

export function isLastResort({ state, isDrained }: Candidate): boolean {
  return state.serving && state.terminating && !isDrained;
}

/** The ready ones; if there are none, those that still serve while they terminate. */
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
 * ready endpoint has some and one of them names this node or zone: a half-written slice, or a node without hints, must
 * not lose endpoints.
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

/** Decides which endpoints become candidates. */
export interface CandidateFacts {
  readonly family: IpFamily;
  /** Whether an operator has drained it. */
  isDrained(endpoint: Endpoint): boolean;
}

/**
 * Whether endpoints with this port belong to the Service port, by name and protocol (upstream
 * `pkg/proxy/endpointslicecache.go`, `endpointInfoByServicePort`). Upstream's userspace mode compared names only, and
 * so gave TCP endpoints to a UDP port.
 */
export function matchesSpec(port: EndpointPort, spec: PortIdentity): boolean {
  return port.name === spec.name && port.protocol === spec.protocol;
}

type PortIdentity = Pick<ServicePortSpec, 'name' | 'protocol'>;

/** The endpoints of one Service port, each once, in an order that does not depend on the order of groups. */
export function candidatesOf(
  groups: readonly EndpointGroup[],
  spec: PortIdentity,
  { family, isDrained }: CandidateFacts,
): readonly Candidate[] {
  const candidates = new Map<string, Candidate>();
  for (const group of groups) {
    for (const { port } of group.ports.filter((each) => matchesSpec(each, spec))) {
      for (const state of group.addresses) {
        if (familyOf(state.address) !== family) continue;
        const endpoint = { address: state.address, port };
        const candidate: Candidate = { endpoint, state, ...(isDrained(endpoint) && { isDrained: true }) };
        const key = endpointName(candidate.endpoint);
        const other = candidates.get(key);
        if (other === undefined || better(candidate, other)) candidates.set(key, candidate);
      }
    }
  }
  return [...candidates.keys()].sort().map((key) => candidates.get(key) as Candidate);
}

/**
 * While an endpoint moves from one slice to another, both may list it, and one of them is outdated. Believing the
 * better state costs a retry at worst; believing the other could leave a Service without endpoints.
 */
function better(a: Candidate, b: Candidate): boolean {
  const difference = rank(a) - rank(b);
  return difference === 0 ? JSON.stringify(a.state) > JSON.stringify(b.state) : difference > 0;
}

function rank(candidate: Candidate): number {
  if (isReady(candidate)) return 2;
  return candidate.state.serving ? 1 : 0;
}
