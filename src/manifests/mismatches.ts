import type { EndpointGroup, EndpointPort } from '../model/endpoint.ts';
import type { Protocol, Service, ServiceKey } from '../model/service.ts';
import type { Found } from '../util/found.ts';
import type { FileObject, ObjectId } from './file-state.ts';

interface Port {
  readonly name: string;
  readonly protocol: Protocol;
}

interface Offered {
  readonly id: ObjectId;
  readonly port: EndpointPort;
}

type Objects = ReadonlyMap<ObjectId, Pick<FileObject, 'event'>>;

interface OfService {
  readonly id: ObjectId;
  readonly groups: readonly EndpointGroup[];
}

const SHOWN_PORTS = 3;

/**
 * Which Endpoints and EndpointSlices do not fit to a Service, and what to write instead: there is no such Service, or
 * it waits for a port of another name, or names another `targetPort`. A Service without endpoints is none, as they may
 * all be gone.
 *
 * `leftOut`: what the files name besides, and is not valid. Its own fault is reported.
 */
export function mismatches(objects: Objects, leftOut: ReadonlySet<ObjectId>): ReadonlyMap<ObjectId, Found> {
  const found = new Map<ObjectId, Found>();
  let namespaces: ReadonlyMap<string, string> | undefined;
  for (const [key, list] of byService(objects)) {
    const id: ObjectId = `Service "${key}"`;
    const event = objects.get(id)?.event;
    if (event?.kind === 'Service' && event.value !== undefined) {
      for (const [of, problem] of otherTargets(event.value, list)) found.set(of, problem);
      for (const [of, problem] of otherNames(event.value, list)) found.set(of, problem);
    } else if (event === undefined && !leftOut.has(id)) {
      namespaces ??= namespacesOf(objects);
      const problem = noService(key, namespaces.get(nameOf(key)));
      for (const { id: of } of list) found.set(of, problem);
    }
  }
  return found;
}

function byService(objects: Objects): Map<ServiceKey, OfService[]> {
  const lists = new Map<ServiceKey, OfService[]>();
  for (const [id, { event }] of objects) {
    if (event?.value === undefined || event.kind === 'Service') continue;
    const { kind, value } = event;
    const [key, groups] = kind === 'Endpoints' ? [value.key, value.groups] : [value.service, [value.group]];
    const list = lists.get(key);
    if (list === undefined) lists.set(key, [{ id, groups }]);
    else list.push({ id, groups });
  }
  return lists;
}

function noService(key: ServiceKey, elsewhere: string | undefined): Found {
  if (elsewhere === undefined)
    return { found: `there is no Service "${key}"`, advice: 'write one, or remove this object' };
  const found = `there is no Service "${key}", but "${elsewhere}/${nameOf(key)}"`;
  return { found, advice: 'write the same namespace in both' };
}

/** Only where a port of the Service gets nothing: more ports of an endpoint than the Service has are normal. */
function* otherNames({ key, ports }: Service, list: readonly OfService[]): Generator<[ObjectId, Found]> {
  const isWanted = (port: Port) => ports.some((wanted) => isSame(wanted, port));
  const isOffered = (port: Port) =>
    list.some(({ groups }) => groups.some((group) => group.ports.some((offered) => isSame(offered, port))));
  // Nearly always nothing is left, so no text is made before.
  const waiting = ports.filter((port) => !isOffered(port));
  if (waiting.length === 0) return;
  for (const { id, groups } of list) {
    const unused = groups.flatMap((group) => group.ports.filter((port) => !isWanted(port)));
    if (unused.length === 0) continue;
    const what = `its port ${some(unused)} is not in Service "${key}", which waits for ${some(waiting)}`;
    yield [id, { found: what, advice: 'write the same name and protocol in both' }];
  }
}

/** A Service port whose author expects another port than all its endpoints have. */
function* otherTargets({ key, ports }: Service, list: readonly OfService[]): Generator<[ObjectId, Found]> {
  for (const wanted of ports) {
    if (wanted.targetPort === undefined) continue;
    const offers = list.flatMap(({ id, groups }): Offered[] =>
      groups.flatMap((group) => group.ports.filter((port) => isSame(port, wanted)).map((port) => ({ id, port }))),
    );
    const [first] = offers;
    if (first === undefined || offers.some(({ port }) => port.port === wanted.targetPort)) continue;
    const { port } = first.port;
    const found = `its port ${print(wanted)} is ${port}, and targetPort of Service "${key}" is ${wanted.targetPort}`;
    yield [first.id, { found, advice: `clients get ${port}, so write the same number in both` }];
  }
}

/** How endpoints are matched to the ports of their Service. */
function isSame(one: Port, other: Port): boolean {
  return one.name === other.name && one.protocol === other.protocol;
}

function print({ name, protocol }: Port): string {
  return `${name === '' ? 'without a name' : JSON.stringify(name)} (${protocol})`;
}

function some(ports: readonly Port[]): string {
  const names = [...new Set(ports.map(print))];
  return `${names.slice(0, SHOWN_PORTS).join(', ')}${names.length > SHOWN_PORTS ? ', …' : ''}`;
}

/** By the name of a Service, a namespace that has it. */
function namespacesOf(objects: Objects): Map<string, string> {
  const services = [...objects.values()].flatMap(({ event }) => (event?.kind === 'Service' ? [event] : []));
  return new Map(services.map(({ key }) => [nameOf(key), key.slice(0, key.indexOf('/'))]));
}

function nameOf(key: ServiceKey): string {
  return key.slice(key.indexOf('/') + 1);
}
