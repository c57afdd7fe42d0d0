import type { Cidr } from '../model/address.ts';
import { type EndpointSet, type LocalEndpointSet, verdictOf } from '../model/service-port.ts';
import { sameList } from '../util/same-list.ts';
import type { Portal } from './claims.ts';

/** Whether the two make the same rules. Of endpoints, only whether there are any does; affinity never does. */
export function samePortal(a: Portal, b: Portal): boolean {
  const [before, after] = [a.servicePort, b.servicePort];
  return (
    a.localPort === b.localPort &&
    a.localSetPort === b.localSetPort &&
    before.name === after.name &&
    before.protocol === after.protocol &&
    before.port === after.port &&
    before.nodePort === after.nodePort &&
    before.healthCheckNodePort === after.healthCheckNodePort &&
    sameList(before.clusterIPs, after.clusterIPs) &&
    sameList(before.externalIPs, after.externalIPs) &&
    sameList(before.loadBalancerIPs, after.loadBalancerIPs) &&
    sameRanges(before.loadBalancerSourceRanges, after.loadBalancerSourceRanges) &&
    sameList(before.namedEndpoints ?? [], after.namedEndpoints ?? []) &&
    sameVerdict(before, after) &&
    sameLocalSet(before.local, after.local)
  );
}

function sameLocalSet(a: LocalEndpointSet | undefined, b: LocalEndpointSet | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.internal === b.internal && a.external === b.external && sameVerdict(a, b);
}

function sameVerdict(a: EndpointSet, b: EndpointSet): boolean {
  return verdictOf(a) === verdictOf(b);
}

function sameRanges(a: readonly Cidr[] | undefined, b: readonly Cidr[] | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return sameList(a.map(textOf), b.map(textOf));
}

function textOf({ network, prefixLength }: Cidr): string {
  return `${network}/${prefixLength}`;
}
