import type { Cidr } from '../model/address.ts';
import { type Service, servicePortName } from '../model/service.ts';
import type { RefusedPart, UnservedPort } from '../model/service-port.ts';

/** The most that one Service gets of each. */
export const SERVICE_LIMITS = {
  ports: 4_096,
  externalIPs: 4_096,
  loadBalancerIPs: 1_024,
  sourceRanges: 4_096,
} as const;

/**
 * Of ports times addresses. Rules are a sum, but the kernel (seen with Linux 6.18) follows every jump when it checks a
 * table of nft for loops, at each change by anybody: 15 ns for each rule of a port behind each address.
 */
const MAX_JUMPED = 1 << 20;

export interface LimitedService {
  readonly service: Service;
  readonly unserved: readonly UnservedPort[];
  readonly refused: readonly RefusedPart[];
}

/**
 * The part of a Service within {@link SERVICE_LIMITS}, and what is beyond: whoever may write a Service could otherwise
 * use up what all Services share. Of source ranges the first are kept, so fewer clients are accepted, never more.
 */
export function withinLimits(service: Service): LimitedService {
  const { key, uid, ports, externalIPs, loadBalancerIPs, loadBalancerSourceRanges: ranges } = service;
  const { sourceRanges: maxRanges, ...most } = SERVICE_LIMITS;
  const behindEach = Math.min(ports.length, most.ports);
  const addresses = Math.floor(MAX_JUMPED / Math.max(1, behindEach));
  // Behind a load-balancer IP there are source ranges as well.
  const max = {
    ports: most.ports,
    externalIPs: Math.min(most.externalIPs, addresses),
    loadBalancerIPs: Math.min(most.loadBalancerIPs, addresses >> 2),
  };
  const isWithin =
    ports.length <= max.ports &&
    externalIPs.length <= max.externalIPs &&
    loadBalancerIPs.length <= max.loadBalancerIPs &&
    (ranges?.length ?? 0) <= maxRanges;
  if (isWithin) return { service, unserved: [], refused: [] };

  const ofOwner = uid === undefined ? {} : { uid };
  const refused: RefusedPart[] = [];
  const first = <T extends string | Cidr>(all: readonly T[], limit: number, kind: string): readonly T[] => {
    const more = all.length - limit;
    if (more <= 0) return all;
    const reason = `a Service gets at most ${limit} for ${behindEach} ports; use several Services`;
    refused.push({ name: key, what: `${more} of its ${all.length} ${kind}`, reason, ...ofOwner });
    return all.slice(0, limit);
  };
  const beyond = ports[max.ports];
  return {
    service: {
      ...service,
      ports: ports.slice(0, max.ports),
      externalIPs: first(externalIPs, max.externalIPs, 'external IPs'),
      loadBalancerIPs: first(loadBalancerIPs, max.loadBalancerIPs, 'load-balancer IPs'),
      ...(ranges && { loadBalancerSourceRanges: first(ranges, maxRanges, 'load balancer source ranges') }),
    },
    unserved:
      beyond === undefined
        ? []
        : [
            {
              name: servicePortName(key, beyond.name),
              ...moreThanOne(ports.length - max.ports),
              reason: `a Service gets at most ${max.ports} ports; use several Services`,
              ...ofOwner,
            },
          ],
    refused,
  };
}

/** The field `more` of an {@link UnservedPort} that stands for this many. */
export function moreThanOne(count: number): { readonly more?: number } {
  return count > 1 ? { more: count - 1 } : {};
}
