import type { Endpoint } from '../../model/endpoint.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { EndpointSetName } from '../../model/service-port.ts';
import { isInUse, isWell, type ServiceView, type View } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { eachInSlices } from '../../util/wait.ts';

/** A Service port that has an endpoint, or has connections to it from before it left. */
export interface EndpointUser {
  readonly name: ServicePortName;
  /** Open connections and flows to the endpoint. */
  readonly connections: number;
  /** It gives the endpoint new connections. */
  readonly isActive: boolean;
  /** The endpoint sets in which no other endpoint gets new connections and answers. */
  readonly onlyOneFor: readonly EndpointSetName[];
}

export interface EndpointUsers {
  readonly users: readonly EndpointUser[];
  /** All connections on the node were read, which is slow. */
  readonly isListed: boolean;
}

/**
 * Counts the connections to an endpoint. It reads the counters of the Services first, which is quick. They lack
 * endpoints that have left their Service, and restart from zero when those come back. So when they are all zero, the
 * connections themselves are counted, unless the endpoint still gets new ones.
 */
export async function endpointUsers(endpoint: Endpoint, view: View, clock: Clock): Promise<EndpointUsers> {
  const users = new Map<ServicePortName, EndpointUser>();
  await eachInSlices(clock, view.services(), (service) => {
    const user = asUser(service, endpoint);
    if (user !== undefined) users.set(user.name, user);
  });
  const isListed = [...users.values()].every(({ connections, isActive }) => connections === 0 && !isActive);
  if (isListed) {
    for await (const connections of view.connections()) {
      for (const { name, endpoint: to } of connections) {
        if (to === undefined || !isSame(to, endpoint)) continue;
        const user = users.get(name) ?? { name, connections: 0, isActive: false, onlyOneFor: [] };
        users.set(name, { ...user, connections: user.connections + 1 });
      }
    }
  }
  return { users: [...users.values()], isListed };
}

function asUser({ name, listeners }: ServiceView, endpoint: Endpoint): EndpointUser | undefined {
  const found = listeners.flatMap(({ set, endpoints }) => {
    const own = endpoints.find((each) => isSame(each.endpoint, endpoint));
    return own === undefined ? [] : [{ set, own, others: endpoints.filter((each) => each !== own) }];
  });
  if (found.length === 0) return undefined;
  const active = found.map(({ own }) => own.counters?.active ?? 0);
  return {
    name,
    connections: active.reduce((sum, each) => sum + each, 0),
    isActive: found.some(({ own }) => isInUse(own)),
    onlyOneFor: found
      .filter(({ own, others }) => isInUse(own) && !others.some((other) => isInUse(other) && isWell(other)))
      .map(({ set }) => set),
  };
}

function isSame(one: Endpoint, other: Endpoint): boolean {
  return one.address === other.address && one.port === other.port;
}
