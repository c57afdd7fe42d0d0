import type { EndpointGroup, EndpointPort } from '../model/endpoint.ts';
import type { Protocol, Service, ServiceKey } from '../model/service.ts';
import type { SourceEvent } from '../model/source.ts';
import type { Found } from '../util/found.ts';
import { type FileObject, type ObjectId, serviceIdOf, serviceKeyOf } from './file-state.ts';

interface Port {
  readonly name: string;
  readonly protocol: Protocol;
}

interface Offered {
  readonly id: ObjectId;
  readonly port: EndpointPort;
}

/** The objects of all files. */
interface Objects extends Iterable<Pick<FileObject, 'event'>> {
  get(id: ObjectId): Pick<FileObject, 'event'> | undefined;
  /** Also by an object that is not valid. */
  isNamed(id: ObjectId): boolean;
}

interface OfService {
  readonly id: ObjectId;
  readonly groups: readonly EndpointGroup[];
}

const SHOWN_PORTS = 3;

/**
 * Which Endpoints and EndpointSlices do not fit to a Service, and what to write instead: there is no such Service, or
 * it waits for a port of another name, or names another `targetPort`. A Service without endpoints is none, as they may
 * all be gone; nor is one that is not valid, as its own fault is reported. Work is in proportion to what changes.
 */
export class Mismatches {
  readonly #objects: Objects;
  /** Which endpoints each Service has. */
  readonly #endpoints = new Map<ServiceKey, readonly ObjectId[]>();
  /** Services that have endpoints, and that no file names. */
  readonly #missing = new Set<ServiceKey>();

  constructor(objects: Objects) {
    this.#objects = objects;
  }

  /**
   * Takes up what has changed, each with its state before. Gives every object that this concerns once, with what is
   * wrong with it; `undefined` for nothing.
   */
  *update(changes: Iterable<readonly [ObjectId, SourceEvent | undefined]>): Generator<[ObjectId, Found | undefined]> {
    const touched = new Set<ServiceKey>();
    const names = new Set<string>();
    for (const [id, before] of changes) {
      const key = serviceKeyOf(id);
      if (key !== undefined) {
        touched.add(key);
        names.add(nameOf(key));
        continue;
      }
      const [old, now] = [serviceOf(before), serviceOf(this.#objects.get(id)?.event)];
      if (now === undefined) yield [id, undefined];
      for (const each of [old, now]) if (each !== undefined) touched.add(each);
      if (old !== now) this.#move(id, old, now);
    }
    // The advice about these may name a Service that came or went.
    for (const key of this.#missing) if (names.has(nameOf(key))) touched.add(key);
    let namespaces: ReadonlyMap<string, string> | undefined;
    const elsewhere = (name: string) => {
      namespaces ??= namespacesOf(this.#objects);
      return namespaces.get(name);
    };
    for (const key of touched) {
      const list = this.#endpointsOf(key).flatMap((id) => this.#ofService(id));
      const found = this.#mismatchesOf(key, list, elsewhere);
      for (const { id } of list) yield [id, found.get(id)];
    }
  }

  #mismatchesOf(
    key: ServiceKey,
    list: readonly OfService[],
    elsewhere: (name: string) => string | undefined,
  ): ReadonlyMap<ObjectId, Found> {
    this.#missing.delete(key);
    const id = serviceIdOf(key);
    const event = this.#objects.get(id)?.event;
    if (event?.kind === 'Service' && event.value !== undefined) {
      return new Map([...otherTargets(event.value, list), ...otherNames(event.value, list)]);
    }
    if (list.length === 0 || this.#objects.isNamed(id)) return new Map();
    this.#missing.add(key);
    const problem = noService(key, elsewhere(nameOf(key)));
    return new Map(list.map(({ id: of }) => [of, problem]));
  }

  #move(id: ObjectId, from: ServiceKey | undefined, to: ServiceKey | undefined): void {
    if (from !== undefined) {
      const left = this.#endpointsOf(from).filter((each) => each !== id);
      if (left.length === 0) this.#endpoints.delete(from);
      else this.#endpoints.set(from, left);
    }
    // concat() leaves no spare capacity in thousands of lists.
    if (to !== undefined) this.#endpoints.set(to, this.#endpointsOf(to).concat(id));
  }

  #endpointsOf(key: ServiceKey): readonly ObjectId[] {
    return this.#endpoints.get(key) ?? [];
  }

  #ofService(id: ObjectId): OfService[] {
    const event = this.#objects.get(id)?.event;
    if (event?.value === undefined || event.kind === 'Service') return [];
    return [{ id, groups: event.kind === 'Endpoints' ? event.value.groups : [event.value.group] }];
  }
}

/** The Service that these endpoints are for. */
function serviceOf(event: SourceEvent | undefined): ServiceKey | undefined {
  if (event?.kind === 'Endpoints') return event.value?.key;
  return event?.kind === 'EndpointSlice' ? event.value?.service : undefined;
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
  const services = [...objects].flatMap(({ event }) => (event?.kind === 'Service' ? [event] : []));
  return new Map(services.map(({ key }) => [nameOf(key), key.slice(0, key.indexOf('/'))]));
}

function nameOf(key: ServiceKey): string {
  return key.slice(key.indexOf('/') + 1);
}
