import type { DataPlaneOptions, Limit } from '../model/data-plane.ts';
import { mayTakeMore } from '../services/fair-share.ts';

type FlowLimits = Pick<DataPlaneOptions, 'udpMaxFlows' | 'udpMaxFlowsPerService'>;

/** How many UDP flows there are. */
interface Flows {
  readonly ofPort: number;
  readonly ofNamespace: number;
  readonly all: number;
}

/** The limit that keeps a new UDP flow out, if any (docs/adr/0031). */
export function flowLimit(
  { udpMaxFlows, udpMaxFlowsPerService }: FlowLimits,
  { ofPort, ofNamespace, all }: Flows,
): Limit | undefined {
  if (ofPort >= udpMaxFlowsPerService) return 'flows-per-service';
  if (all >= udpMaxFlows) return 'flows-total';
  return mayTakeMore(ofNamespace, udpMaxFlows - all) ? undefined : 'flows-per-namespace';
}
