import type { ServicePortName } from '../model/service.ts';
import type { ServicePort, SnapshotDelta } from '../model/service-port.ts';
import type { TrafficPolicy } from './kube-proxy-metrics.ts';

/**
 * Counts the Service ports whose clients find nobody because of a Local policy: their endpoints are on other nodes
 * (upstream `pkg/proxy/iptables/proxier.go`, serviceNoLocalEndpoints). Keeps up with deltas.
 */
export class NoLocalEndpoints {
  readonly #names: Readonly<Record<TrafficPolicy, Set<ServicePortName>>> = { internal: new Set(), external: new Set() };

  apply({ upserted, removed }: Pick<SnapshotDelta, 'upserted' | 'removed'>): void {
    for (const name of removed) {
      this.#names.internal.delete(name);
      this.#names.external.delete(name);
    }
    for (const port of upserted) {
      this.#set('internal', port.name, lacks(port, 'internal'));
      this.#set('external', port.name, hasExternalTraffic(port) && lacks(port, 'external'));
    }
  }

  count(policy: TrafficPolicy): number {
    return this.#names[policy].size;
  }

  #set(policy: TrafficPolicy, name: ServicePortName, isLacking: boolean): void {
    if (isLacking) this.#names[policy].add(name);
    else this.#names[policy].delete(name);
  }
}

/** Whether the set that takes this traffic is empty only for its policy. */
function lacks(port: ServicePort, policy: TrafficPolicy): boolean {
  const set = port.local?.[policy] ? port.local : port;
  return set.onlyElsewhere === true;
}

function hasExternalTraffic({ nodePort, externalIPs, loadBalancerIPs }: ServicePort): boolean {
  return nodePort > 0 || externalIPs.length > 0 || loadBalancerIPs.length > 0;
}
