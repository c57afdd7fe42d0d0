import type { ServicePortName } from '../model/service.ts';
import type { EndpointSetName } from '../model/service-port.ts';

/** Whom a local port serves. Names hold no blanks, so what follows one in a comment tells its local ports apart. */
export interface ServedSet {
  readonly name: ServicePortName;
  readonly set: EndpointSetName;
}

/** The comment of rules that lead to a local port: upstream's, which is the name alone, for the Service port's own set. */
export function portComment({ name, set }: ServedSet): string {
  return set === 'own' ? name : `${name} local`;
}

/** The comment of the rule that closes a local port to whoever asks for it directly. */
export function closedPortComment(owner: ServedSet): string {
  return `${portComment(owner)} proxy port`;
}

/** The comment of the rule that lets in who asks a health check node port, kube-proxy's (`pkg/proxy/iptables/proxier.go`). */
export function healthCheckComment(name: ServicePortName): string {
  return `${name} health check node port`;
}

/** The comment of the rule that remembers a local port. `seconds` since 1970. */
export function retiredComment(owner: ServedSet, seconds: number): string {
  return `${portComment(owner)} retired at ${seconds}`;
}
