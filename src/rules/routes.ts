import { type Address, addressBlock, type Cidr, cidrContains, familyOf, type IpFamily } from '../model/address.ts';
import type { Destination } from '../model/service-port.ts';
import { DROP_PORT } from './chains.ts';
import { type Portal, type Target, targetOf } from './portal.ts';

/** Where a packet comes from, as far as rules can tell. What is absent may be anything. */
export interface Origin {
  /** The block that its source address is in. */
  readonly source?: Cidr;
  /** The interface that it came in by, as iptables spells it: `cali+` is every one whose name begins with `cali`. */
  readonly inInterface?: string;
}

/** The target of packets from an origin. */
export interface Route extends Origin {
  readonly target: Target;
}

/** Routes to one destination. The first that matches decides; the last one matches everything. */
export interface Routes {
  /** For packets of pods and from outside. */
  readonly container: readonly Route[];
  /** For packets of the node's own processes. */
  readonly host: readonly Route[];
}

export interface RouteFacts {
  readonly family: IpFamily;
  /** What distinguishes packets of pods from those from outside; empty when that is not known. Of the family. */
  readonly pods: readonly Origin[];
  readonly nodeAddress: Address;
}

/** The clients of a destination that each endpoint set serves (docs/adr/0009), and what becomes of all others. */
export function routesTo({ address, sets, sourceRanges }: Destination, portal: Portal, facts: RouteFacts): Routes {
  const to = (client: keyof typeof sets) => ({ target: targetOf(portal, sets[client]) });
  const pods = facts.pods.map((origin) => ({ ...origin, ...to('pods') }));
  const container = sets.pods === sets.others ? [to('others')] : simplified([...pods, to('others')]);
  const host = [to('node')];
  if (sourceRanges === undefined || address === undefined) return { container, host };
  // Ranges of the other family accept nobody here: when only such are given, everybody is dropped (docs/adr/0009).
  const ranges = sourceRanges.filter(({ network }) => familyOf(network) === facts.family);
  // The node's own processes usually send from the node's address. To a load balancer IP that is also an address of the
  // node, they send from that one; then the node's address decides. As upstream `pkg/proxy/iptables/proxier.go`.
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

/** Two blocks of addresses have nothing in common, or one of them is in the other. */
function intersection(a: Cidr, b: Cidr | undefined): Cidr | undefined {
  if (b === undefined) return a;
  const [outer, inner] = a.prefixLength <= b.prefixLength ? [a, b] : [b, a];
  return cidrContains(outer, inner.network) ? inner : undefined;
}

/** Without routes that no packet reaches, and without those just before the end that have the last one's target. */
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
