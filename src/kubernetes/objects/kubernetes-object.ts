import type { EndpointSlice, Endpoints } from '../../model/endpoint.ts';
import type { Service, ServiceKey } from '../../model/service.ts';
import { Field, FieldError, type Problem } from '../../util/untrusted.ts';
import type { Decoded } from './decoded.ts';
import { decodeEndpointSlice, decodeEndpoints } from './endpoints.ts';
import { dnsLabel, dnsSubdomain, keyOf } from './fields.ts';
import { decodeService } from './service.ts';

export type Kind = 'Service' | 'Endpoints' | 'EndpointSlice';

/** An object of one of the kinds that this proxy reads. */
export type KubernetesObject =
  | { readonly kind: 'Service'; readonly key: ServiceKey; readonly value: Service }
  | { readonly kind: 'Endpoints'; readonly key: ServiceKey; readonly value: Endpoints }
  | { readonly kind: 'EndpointSlice'; readonly key: ServiceKey; readonly value: EndpointSlice };

export type Identity =
  /** Of this kind and name, whatever the rest of it looks like. */
  | { readonly status: 'known'; readonly kind: Kind; readonly key: ServiceKey }
  /** Of a kind that this proxy does not read. */
  | { readonly status: 'foreign' }
  /** The object does not say which one it is. */
  | { readonly status: 'unknown'; readonly problem: Problem };

const API_VERSIONS: Readonly<Record<Kind, string>> = {
  Service: 'v1',
  Endpoints: 'v1',
  EndpointSlice: 'discovery.k8s.io/v1',
};

const KINDS = Object.keys(API_VERSIONS) as readonly Kind[];

/**
 * Which object this is. The group of `apiVersion` counts as well as the kind, because other APIs have Services of
 * their own. `assumed` stands in for a kind that is not given, as in the items of a typed list.
 */
export function objectIdentity(object: unknown, assumed?: Kind): Identity {
  try {
    const root = Field.root(object);
    const name = root.get('kind').isPresent || assumed === undefined ? root.get('kind').string() : assumed;
    const kind = KINDS.find((known) => known === name);
    if (kind === undefined) return { status: 'foreign' };
    const apiVersion = root.get('apiVersion').stringOr(API_VERSIONS[kind]);
    if (groupOf(apiVersion) !== groupOf(API_VERSIONS[kind])) return { status: 'foreign' };
    return { status: 'known', kind, key: keyOf(root, kind === 'EndpointSlice' ? dnsSubdomain : dnsLabel) };
  } catch (error) {
    if (error instanceof FieldError) return { status: 'unknown', problem: error.problem };
    throw error;
  }
}

/** Decodes an object that {@link objectIdentity} knows to be of this kind. */
export function decodeObject(object: unknown, kind: Kind): Decoded<KubernetesObject> {
  const apiVersion = Field.root(object).get('apiVersion');
  if (apiVersion.isPresent && apiVersion.value !== API_VERSIONS[kind]) {
    return { status: 'invalid', problem: apiVersion.wrong(`expected ${API_VERSIONS[kind]}`).problem };
  }
  switch (kind) {
    case 'Service':
      return mapValue(decodeService(object), (value) => ({ kind, key: value.key, value }));
    case 'Endpoints':
      return mapValue(decodeEndpoints(object), (value) => ({ kind, key: value.key, value }));
    case 'EndpointSlice':
      return mapValue(decodeEndpointSlice(object), (value) => ({ kind, key: value.key, value }));
  }
}

/** `discovery.k8s.io` of `discovery.k8s.io/v1`; empty for the core group's `v1`. */
function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf('/');
  return slash < 0 ? '' : apiVersion.slice(0, slash);
}

function mapValue<T, U>(decoded: Decoded<T>, convert: (value: T) => U): Decoded<U> {
  return decoded.status === 'ok' ? { ...decoded, value: convert(decoded.value) } : decoded;
}
