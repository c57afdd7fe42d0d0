import { isDeepStrictEqual } from 'node:util';
import type { ServicePortName } from '../model/service.ts';
import { type EndpointSetName, type ServicePort, verdictOf } from '../model/service-port.ts';
import { DROP_PORT, REJECT_PORT } from './chains.ts';

/** A Service port and the local ports of its listeners. */
export interface Portal {
  readonly servicePort: ServicePort;
  readonly localPort: number;
  /** The listener of the endpoint set `servicePort.local`, where there is one. */
  readonly localSetPort?: number;
}

/** A name is in one of the two lists, once. */
export interface PortalDelta {
  /** New, or with other rules than before. */
  readonly upserted: readonly Portal[];
  readonly removed: readonly ServicePortName[];
}

/** Each local port of a portal, with the endpoint set that it serves. */
export function localPortsOf({ localPort, localSetPort }: Portal) {
  const own = { port: localPort, set: 'own' } as const;
  return localSetPort === undefined ? [own] : [own, { port: localSetPort, set: 'local' } as const];
}

/** Where NAT sends a packet: a listener, or a port that rejects or drops it. */
export type Target =
  | { readonly kind: 'listener'; readonly port: number; readonly set: EndpointSetName }
  | { readonly kind: 'refusal'; readonly port: typeof REJECT_PORT | typeof DROP_PORT };

/** The target of clients that this endpoint set serves. */
export function targetOf({ servicePort, localPort, localSetPort }: Portal, set: EndpointSetName): Target {
  const [endpoints, port] = set === 'own' ? [servicePort, localPort] : [servicePort.local, localSetPort];
  const verdict = endpoints === undefined ? 'drop' : verdictOf(endpoints);
  if (verdict === 'reject') return { kind: 'refusal', port: REJECT_PORT };
  // While the listener is not open yet, the client retries.
  return verdict === 'drop' || port === undefined
    ? { kind: 'refusal', port: DROP_PORT }
    : { kind: 'listener', port, set };
}

/** Whether both make the same rules. Of endpoints, only whether there are any matters; affinity and options never. */
export function samePortal(a: Portal, b: Portal): boolean {
  return isDeepStrictEqual(ruleInputs(a), ruleInputs(b));
}

function ruleInputs({ servicePort, ...localPorts }: Portal) {
  const { endpoints, draining, onlyElsewhere, affinity, options, local, ...definition } = servicePort;
  const localSet = local && { internal: local.internal, external: local.external, verdict: verdictOf(local) };
  return { ...definition, ...localPorts, verdict: verdictOf(servicePort), localSet };
}
