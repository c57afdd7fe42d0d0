import type { Backends } from '../../src/model/data-plane.ts';
import { type NamedEndpoint, namedEndpoint } from '../../src/model/endpoint.ts';
import { AffinityMemory } from '../../src/services/affinity-memory.ts';
import type { AffinityOptions } from '../../src/services/client-affinity.ts';
import { Member } from '../../src/services/member.ts';
import type { Pick } from '../../src/services/picker.ts';
import type { CreateMember } from '../../src/services/pool.ts';
import type { Random } from '../../src/util/clock.ts';
import { address } from '../support/model.ts';

/** Always the last element stays in place: Fisher–Yates leaves the list as it was. */
export const NO_SHUFFLE: Random = () => 1 - Number.EPSILON;

/** A new object each time, as every update from the control plane brings new ones. */
export function endpoint(host: number): NamedEndpoint {
  return namedEndpoint(address(`10.0.0.${host}`), 80);
}

export function backends(hosts: readonly number[], timeoutSeconds?: number): Backends {
  return {
    endpoints: hosts.map(endpoint),
    affinity: timeoutSeconds === undefined ? { type: 'None' } : { type: 'ClientIP', timeoutSeconds },
  };
}

export const create: CreateMember<Member> = (endpoint) => new Member(endpoint);

/** So many clients for one Service port, with memory of its own. */
export function remembering(maxClients: number, more: Partial<AffinityOptions> = {}): AffinityOptions {
  return { maxClients, namespace: 'a', memory: new AffinityMemory(maxClients), ...more };
}

/** The last octet of a pick's next candidate: short to write down. */
export function host(pick: Pick): number | undefined {
  const next = pick.next();
  return next && Number(next.name.split(/[.:]/)[3]);
}

/** Every candidate of a pick, as if all of them failed. */
export function allHosts(pick: Pick): number[] {
  const hosts: number[] = [];
  for (let next = host(pick); next !== undefined; next = host(pick)) hosts.push(next);
  return hosts;
}
