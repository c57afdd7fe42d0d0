import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import { type Service, servicePortName } from '../model/service.ts';
import type { RefusedPart, UnservedPort } from '../model/service-port.ts';

/** The most rules that one Service may ask for in one address family (docs/adr/0035). */
export const MAX_RULES = 2_048;

const USE_SEVERAL = 'use several Services';

interface LimitedService {
  readonly service: Service;
  readonly unserved: readonly UnservedPort[];
  readonly refused: readonly RefusedPart[];
}

/**
 * The part of a Service within {@link MAX_RULES}, and what is beyond: whoever may write a Service could otherwise use
 * up what all Services share. Each port has a rule for each address, and at load-balancer IPs for each source range as
 * well. Ports come first, then cluster IPs, load-balancer IPs and external IPs. Of source ranges the first are kept, so
 * fewer clients are accepted, never more.
 */
export function withinLimits(service: Service, family: IpFamily): LimitedService {
  const { key, ports, clusterIPs, externalIPs, loadBalancerIPs, loadBalancerSourceRanges: ranges } = service;
  const ofEach = clusterIPs.length + externalIPs.length + loadBalancerIPs.length * (1 + (ranges?.length ?? 0));
  if (ports.length * Math.max(1, ofEach) <= MAX_RULES) return { service, unserved: [], refused: [] };

  const refused: RefusedPart[] = [];
  const isOfFamily = (address: Address) => familyOf(address) === family;
  const first = <T>(all: readonly T[], most: number, kind: string): readonly T[] => {
    const more = all.length - most;
    if (more <= 0) return all;
    const what = `${more} of its ${all.length} ${family} ${kind}`;
    const found = `a Service gets at most ${MAX_RULES} rules, its ports times addresses`;
    refused.push({ name: key, what, found, advice: USE_SEVERAL, ...ownerOf(service) });
    return all.slice(0, most);
  };
  const served = ports.slice(0, MAX_RULES);
  // Rules of each port.
  const most = Math.floor(MAX_RULES / served.length);
  const left = Math.max(0, most - clusterIPs.filter(isOfFamily).length);
  const balanced = loadBalancerIPs.filter(isOfFamily);
  const rangesHere = ranges?.filter(({ network }) => isOfFamily(network));
  // One rule drops what comes from none of them.
  const mostRanges = balanced.length === 0 ? MAX_RULES : Math.max(0, left - 1);
  const accepted = rangesHere && first(rangesHere, mostRanges, 'load balancer source ranges');
  const cost = 1 + (accepted?.length ?? 0);
  const kept = first(balanced, Math.floor(left / cost), 'load-balancer IPs');
  const beyond = ports[MAX_RULES];
  return {
    service: {
      ...service,
      ports: served,
      externalIPs: first(externalIPs.filter(isOfFamily), left - kept.length * cost, 'external IPs'),
      loadBalancerIPs: kept,
      ...(accepted && { loadBalancerSourceRanges: accepted }),
    },
    unserved:
      beyond === undefined
        ? []
        : [
            {
              name: servicePortName(key, beyond.name),
              ...moreThanOne(ports.length - MAX_RULES),
              found: `a Service gets at most ${MAX_RULES} ports`,
              advice: USE_SEVERAL,
              ...ownerOf(service),
            },
          ],
    refused,
  };
}

/** The field `uid` of what is told to the owner. */
export function ownerOf({ uid }: Service): { readonly uid?: string } {
  return uid === undefined ? {} : { uid };
}

/** The field `more` of an {@link UnservedPort} that stands for this many. */
export function moreThanOne(count: number): { readonly more?: number } {
  return count > 1 ? { more: count - 1 } : {};
}
