import type { IpFamily } from './address.ts';
import type { ServicePortName } from './service.ts';

/** The two endpoint sets of a Service port: that which it is itself, and `local`. */
export type EndpointSetName = 'own' | 'local';

/**
 * Tells the listeners of one Service port apart, of which there is one for each address family and endpoint set. Names hold
 * one `/` only, so no id is that of another one.
 */
export type ListenerId =
  | ServicePortName
  | `${ServicePortName}/local`
  | `${ServicePortName}/IPv6`
  | `${ServicePortName}/IPv6/local`;

export function listenerId(name: ServicePortName, family: IpFamily, set: EndpointSetName): ListenerId {
  const ofFamily = family === 'IPv4' ? name : (`${name}/IPv6` as const);
  return set === 'own' ? ofFamily : `${ofFamily}/local`;
}
