import { isDeepStrictEqual } from 'node:util';
import type { Portal } from '../model/capture.ts';
import { type EndpointSetName, verdictOf } from '../model/service-port.ts';
import type { Target } from './claims.ts';

/*
 * NAT sends traffic that no listener may get to these ports (docs/adr/0010). Nothing listens there, so without the
 * rules of a firewall both reject.
 */
export const REJECT_PORT = 1;
export const DROP_PORT = 9;

/** Each local port of a portal, with the endpoint set that it serves. */
export function localPortsOf({ localPort, localSetPort }: Portal) {
  const own = { port: localPort, set: 'own' } as const;
  return localSetPort === undefined ? [own] : [own, { port: localSetPort, set: 'local' } as const];
}

/** The target of clients that this endpoint set serves. */
export function targetOf({ servicePort, localPort, localSetPort }: Portal, set: EndpointSetName): Target {
  const port = set === 'own' ? localPort : localSetPort;
  const verdict = set === 'local' && servicePort.local === undefined ? 'drop' : verdictOf(servicePort, set);
  if (verdict === 'reject') return { kind: 'reject' };
  // While the listener is not open yet, the client retries.
  return verdict === 'drop' || port === undefined ? { kind: 'drop' } : { kind: 'listener', port, set };
}

/** The port of this node to which NAT sends a packet. */
export function portOf(target: Target): number {
  if (target.kind === 'listener') return target.port;
  return target.kind === 'reject' ? REJECT_PORT : DROP_PORT;
}

/** Whether both claim the same. Of endpoints and waiting, only the verdicts matter; affinity and options never. */
export function samePortal(a: Portal, b: Portal): boolean {
  return isDeepStrictEqual(claimInputs(a), claimInputs(b));
}

function claimInputs({ servicePort, ...localPorts }: Portal) {
  const { endpoints, draining, onlyElsewhere, affinity, options, waitMs, local, ...definition } = servicePort;
  const verdict = verdictOf(servicePort, 'local');
  const localSet = local && { internal: local.internal, external: local.external, verdict };
  return { ...definition, ...localPorts, verdict: verdictOf(servicePort, 'own'), localSet };
}
