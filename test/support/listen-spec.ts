import type { ListenSpec } from '../../src/model/data-plane.ts';
import { type EndpointSetName, listenerId } from '../../src/model/service-port.ts';

/** For the set of that name, in the family of the address. */
export function listenSpec<Spec extends Pick<ListenSpec, 'name' | 'protocol' | 'address' | 'port'>>(
  spec: Spec,
  set: EndpointSetName = 'own',
) {
  const family = spec.address.includes(':') ? ('IPv6' as const) : ('IPv4' as const);
  return { ...spec, id: listenerId(spec.name, family, set), family };
}
