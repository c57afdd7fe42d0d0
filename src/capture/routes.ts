import { addressBlock, type Cidr, cidrContains, familyOf } from '../model/address.ts';
import type { NodeFacts, Origin, Portal } from '../model/capture.ts';
import type { Destination } from '../model/service-port.ts';
import type { Route, Routes } from './claims.ts';
import { portOf, targetOf } from './portal.ts';

/** The target of each client of a destination (docs/adr/0009). */
export function routesTo({ address, sets, sourceRanges }: Destination, portal: Portal, node: NodeFacts): Routes {
  const to = (client: keyof typeof sets) => ({ target: targetOf(portal, sets[client]) });
  const others = [to('others')];
  const container = sets.pods === sets.others ? others : simplified([...podsOf(node, to('pods')), ...others]);
  // Nearly always the same, and there are thousands.
  const host = sets.node === sets.others && container.length === 1 ? container : [to('node')];
  if (sourceRanges === undefined || address === undefined) return { container, host };
  // With ranges of the other family only, everybody is dropped (docs/adr/0009).
  const ranges = sourceRanges.filter(({ network }) => familyOf(network) === node.family);
  // To a load balancer IP that is also an address of the node, the node's processes send from that IP; then the node's
  // address decides, as in upstream `pkg/proxy/iptables/proxier.go`.
  const acceptsNode = ranges.some((range) => cidrContains(range, node.hostAddress));
  return {
    container: within(ranges, container),
    host: within(acceptsNode ? [...ranges, addressBlock(address)] : ranges, host),
  };
}

/** From packets of pods. With none in the family, clients cannot be told apart. */
function podsOf({ pods, family }: NodeFacts, to: Pick<Route, 'target'>): readonly Route[] {
  return pods
    .filter(({ source }) => source === undefined || familyOf(source.network) === family)
    .map((origin) => ({ ...origin, ...to }));
}

function within(ranges: readonly Cidr[], routes: readonly Route[]): readonly Route[] {
  const accepted = routes.flatMap((route) =>
    ranges.flatMap((range) => {
      const common = intersection(range, route.source);
      return common === undefined ? [] : [{ ...route, source: common }];
    }),
  );
  return simplified([...accepted, { target: { kind: 'drop' } }]);
}

function intersection(a: Cidr, b: Cidr | undefined): Cidr | undefined {
  if (b === undefined) return a;
  const [outer, inner] = a.prefixLength <= b.prefixLength ? [a, b] : [b, a];
  return cidrContains(outer, inner.network) ? inner : undefined;
}

/** Without routes that no packet reaches, and without those before the last one that have its target. */
function simplified(routes: readonly Route[]): readonly Route[] {
  const byOrigin = new Map<string, Route>();
  for (const { source, inInterface, target } of routes) {
    const isFromAnywhere = source === undefined || source.prefixLength === 0;
    const origin: Origin = { ...(!isFromAnywhere && { source }), ...(inInterface !== undefined && { inInterface }) };
    const key = JSON.stringify(origin);
    if (!byOrigin.has(key)) byOrigin.set(key, { ...origin, target });
    if (isFromAnywhere && inInterface === undefined) break;
  }
  const kept = [...byOrigin.values()];
  const last = kept.pop();
  while (last !== undefined && isSame(kept.at(-1), last)) kept.pop();
  return last === undefined ? [] : [...kept, last];
}

function isSame(a: Route | undefined, b: Route): boolean {
  return a !== undefined && portOf(a.target) === portOf(b.target);
}
