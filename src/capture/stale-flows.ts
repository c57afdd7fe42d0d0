import type { IpFamily } from '../model/address.ts';
import type { OriginalDestination, StaleFlows } from '../model/conntrack.ts';
import { sameList } from '../util/same-list.ts';
import type { AddressClaim, Claim, NodePortClaim, Route } from './claims.ts';

/** A claim to which clients send packets. */
type DestinationClaim = AddressClaim | NodePortClaim;

export function isDestination(claim: Claim | undefined): claim is DestinationClaim {
  return claim !== undefined && claim.kind !== 'health check' && claim.kind !== 'local port';
}

export function destinationOf(claim: DestinationClaim, family: IpFamily): OriginalDestination {
  return claim.kind === 'NodePort' ? { family, port: claim.port } : { destination: claim.address, port: claim.port };
}

/** The flows to a claim's destination. Those to the local ports that it leads to are right. */
export function flowsTo(claim: DestinationClaim, family: IpFamily): StaleFlows {
  return { destination: destinationOf(claim, family), keep: localPortsOf(claim) };
}

/**
 * The flows that go on as `before` has sent them, and that `after` would send another way. When the way is chosen in
 * another way, any flow may be wrong. `undefined`: there are none.
 */
export function staleFlows(
  before: Claim | undefined,
  after: Claim | undefined,
  family: IpFamily,
): StaleFlows | undefined {
  if (!isDestination(after)) {
    return isDestination(before) ? { destination: destinationOf(before, family), keep: [] } : undefined;
  }
  const flows = flowsTo(after, family);
  if (!isDestination(before)) return flows;
  if (!sameWays(before, after)) return { ...flows, keep: [] };
  return sameList(localPortsOf(before), flows.keep) ? undefined : flows;
}

function localPortsOf({ routes }: DestinationClaim): readonly number[] {
  const all = [...routes.host, ...routes.container];
  return [...new Set(all.flatMap(({ target }) => (target.kind === 'listener' ? [target.port] : [])))];
}

/** Whether both send each client to the same endpoint set, unless that one refuses it: no flow comes of that. */
function sameWays(before: DestinationClaim, after: DestinationClaim): boolean {
  const spared = (claim: DestinationClaim) => (claim.kind === 'NodePort' ? claim.spared : []);
  return (
    sameList(spared(before), spared(after)) &&
    sameRoutes(before.routes.container, after.routes.container) &&
    sameRoutes(before.routes.host, after.routes.host)
  );
}

function sameRoutes(before: readonly Route[], after: readonly Route[]): boolean {
  return (
    before.length === after.length &&
    before.every(({ target: old, ...origin }, index) => {
      const { target, ...other } = after[index] as Route;
      const isSameSet = old.kind !== 'listener' || target.kind !== 'listener' || old.set === target.set;
      return isSameSet && JSON.stringify(origin) === JSON.stringify(other);
    })
  );
}
