import { familyOf, type IpFamily } from '../model/address.ts';
import { type Endpoint, type EndpointGroup, type EndpointPort, endpointName } from '../model/endpoint.ts';
import type { ServicePortSpec } from '../model/service.ts';
import { type Candidate, isReady } from './categorize-endpoints.ts';

/** What endpoints become candidates of. */
export interface CandidateFacts {
  readonly family: IpFamily;
  /** Whether an operator has taken it out. */
  isDrained(endpoint: Endpoint): boolean;
}

/**
 * Whether the endpoints' port is that of the Service port. The name and the protocol count (upstream
 * `pkg/proxy/endpointslicecache.go`, `endpointInfoByServicePort`). Upstream's userspace mode compared names only, and so
 * gave TCP endpoints to a UDP port.
 */
export function matchesSpec(port: EndpointPort, spec: PortIdentity): boolean {
  return port.name === spec.name && port.protocol === spec.protocol;
}

type PortIdentity = Pick<ServicePortSpec, 'name' | 'protocol'>;

/** The endpoints of one Service port, each once and in an order that does not depend on that of the groups. */
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
 * While an endpoint moves from one slice to another, both may list it, and one of them is old. Believing the one that
 * can do more costs a retry at worst; believing the other could leave a Service without endpoints.
 */
function better(a: Candidate, b: Candidate): boolean {
  const difference = rank(a) - rank(b);
  return difference === 0 ? JSON.stringify(a.state) > JSON.stringify(b.state) : difference > 0;
}

function rank(candidate: Candidate): number {
  if (isReady(candidate)) return 2;
  return candidate.state.serving ? 1 : 0;
}
