import type { EndpointGroup } from '../model/endpoint.ts';
import type { Service } from '../model/service.ts';
import type { EndpointSetName } from '../model/service-port.ts';
import { type Candidate, decidingHints, isLastResort, isLocal, isReady } from './categorize-endpoints.ts';
import { chooseEndpoints, type ProxiedPortSpec, type Surroundings } from './derive-service-ports.ts';
import { loopReason } from './loop-reason.ts';

/** What became of one endpoint within one endpoint set. */
export interface EndpointVerdict extends Candidate {
  /** Why it gets no new connections, as a clause ("not ready"). Absent for one that does. */
  readonly reason?: string;
}

/** Every known endpoint of a Service port, judged for one of its endpoint sets. */
export function endpointVerdicts(
  service: Service,
  spec: ProxiedPortSpec,
  set: EndpointSetName,
  groups: readonly EndpointGroup[],
  surroundings: Surroundings,
): readonly EndpointVerdict[] {
  const { known, candidates, categorized } = chooseEndpoints(service, spec, groups, surroundings);
  const { topology, capture } = surroundings;
  const { cluster, local = [] } = categorized;
  const isForNode = set === 'local' || cluster === undefined;
  const chosen = new Set(isForNode ? local : cluster);
  const hints = isForNode ? undefined : decidingHints(candidates.filter(isReady), topology)?.kind;
  const reasonAgainst = (candidate: Candidate) =>
    loopReason(candidate.endpoint, spec.protocol, capture) ??
    (isForNode && !isLocal(candidate, topology)
      ? 'on another node, and the policy is Local'
      : reasonInReach(candidate, hints));
  return known.map((candidate) =>
    chosen.has(candidate) ? candidate : { ...candidate, reason: reasonAgainst(candidate) },
  );
}

/**
 * Why one that traffic might go to was not chosen. What was chosen is decided elsewhere, by the same predicates: given
 * that, its own state leaves one reason only.
 */
function reasonInReach(candidate: Candidate, hints: 'node' | 'zone' | undefined): string {
  const { isDrained, state } = candidate;
  if (isDrained) return 'drained by an operator';
  if (isReady(candidate)) {
    const names = (hints === 'node' ? state.nodeHints : state.zoneHints) ?? [];
    return `its topology hints are for ${hints} ${names.join(', ')}`;
  }
  if (isLastResort(candidate)) return 'terminating, and others are ready';
  return state.terminating ? 'terminating, and no longer serving' : 'not ready';
}
