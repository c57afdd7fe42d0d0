import { type Address, addressBlock, type Cidr, cidrContains, familyOf, type IpFamily } from '../model/address.ts';
import type { Destination } from '../model/service-port.ts';
import { DROP_PORT } from './chains.ts';
import { type Portal, type Target, targetOf } from './portal.ts';

/** Where a packet comes from. What is absent may be anything. */
export interface Origin {
  readonly source?: Cidr;
  /** As iptables spells it: `cali+` is every one whose name begins with `cali`. */
  readonly inInterface?: string;
}

export interface Route extends Origin {
  readonly target: Target;
}

/** Routes to one destination. The first that matches decides; the last one matches everything. */
export interface Routes {
  /** For packets from pods and from outside. */
  readonly container: readonly Route[];
  /** For packets from the node's own processes. */
  readonly host: readonly Route[];
}

export interface RouteFacts {
  readonly family: IpFamily;
  /** Of packets from pods, in the family; empty when unknown. */
  readonly pods: readonly Origin[];
  readonly nodeAddress: Address;
}

/** The target of each client of a destination (docs/adr/0009). */
export function routesTo({ address, sets, sourceRanges }: Destination, portal: Portal, facts: RouteFacts): Routes {
  const to = (client: keyof typeof sets) => ({ target: targetOf(portal, sets[client]) });
  const pods = facts.pods.map((origin) => ({ ...origin, ...to('pods') }));
  const container = sets.pods === sets.others ? [to('others')] : simplified([...pods, to('others')]);
  const host = [to('node')];
  if (sourceRanges === undefined || address === undefined) return { container, host };
  // With ranges of the other family only, everybody is dropped (docs/adr/0009).
  const ranges = sourceRanges.filter(({ network }) => familyOf(network) === facts.family);
  // To a load balancer IP that is also an address of the node, the node's processes send from that IP; then the node's
  // address decides, as in upstream `pkg/proxy/iptables/proxier.go`.
  const acceptsNode = ranges.some((range) => cidrContains(range, facts.nodeAddress));
  return {
    container: within(ranges, container),
    host: within(acceptsNode ? [...ranges, addressBlock(address)] : ranges, host),
  };
}

function within(ranges: readonly Cidr[], routes: readonly Route[]): readonly Route[] {
  const accepted = routes.flatMap((route) =>
    ranges.flatMap((range) => {
      const common = intersection(range, route.source);
      return common === undefined ? [] : [{ ...route, source: common }];
    }),
  );
  return simplified([...accepted, { target: { kind: 'refusal', port: DROP_PORT } }]);
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
    const key = `${inInterface ?? ''} ${isFromAnywhere ? '' : `${source.network}/${source.prefixLength}`}`;
    if (!byOrigin.has(key)) byOrigin.set(key, { ...origin, target });
    if (isFromAnywhere && inInterface === undefined) break;
  }
  const kept = [...byOrigin.values()];
  const last = kept.pop();
  while (last !== undefined && kept.at(-1)?.target.port === last.target.port) kept.pop();
  return last === undefined ? [] : [...kept, last];
}
