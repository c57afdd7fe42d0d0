import type { EndpointSlice, Endpoints } from '../../model/endpoint.ts';
import type { Service, ServiceKey } from '../../model/service.ts';
import type { SourceEvent } from '../../model/source.ts';
import { Field, FieldError } from '../../util/untrusted.ts';
import { type Decoded, decoding, type FileRules } from './decoded.ts';
import { decodeEndpointSlice, decodeEndpoints } from './endpoints.ts';
import { dnsLabel, dnsSubdomain, keyOf } from './fields.ts';
import { decodeService } from './service.ts';

/** An object of one of the kinds that this proxy reads. */
export type KubernetesObject =
  | { readonly kind: 'Service'; readonly key: ServiceKey; readonly value: Service }
  | { readonly kind: 'Endpoints'; readonly key: ServiceKey; readonly value: Endpoints }
  | { readonly kind: 'EndpointSlice'; readonly key: ServiceKey; readonly value: EndpointSlice };

/** Tells that the object is there. */
export function isPresent(event: SourceEvent): event is KubernetesObject {
  return event.value !== undefined;
}

export type Kind = KubernetesObject['kind'];

/** Of each kind that this proxy reads. */
export const API_VERSIONS: Readonly<Record<Kind, string>> = {
  Service: 'v1',
  Endpoints: 'v1',
  EndpointSlice: 'discovery.k8s.io/v1',
};

const KINDS = Object.keys(API_VERSIONS) as readonly Kind[];

/**
 * Which object this is, whatever the rest of it looks like; `undefined` for a kind that this proxy does not read. The
 * group of `apiVersion` counts as well as the kind, because other APIs have Services of their own. `assumed` stands in
 * for a missing kind, as in the items of a typed list. Throws {@link FieldError} when the object does not say.
 */
export function objectIdentity(
  object: unknown,
  assumed?: Kind,
): { readonly kind: Kind; readonly key: ServiceKey } | undefined {
  const root = Field.root(object);
  const name = root.get('kind').isPresent || assumed === undefined ? root.get('kind').string() : assumed;
  const kind = KINDS.find((known) => known === name);
  if (kind === undefined) return undefined;
  const apiVersion = root.get('apiVersion').stringOr(API_VERSIONS[kind]);
  if (groupOf(apiVersion) !== groupOf(API_VERSIONS[kind])) return undefined;
  return { kind, key: keyOf(root, kind === 'EndpointSlice' ? dnsSubdomain : dnsLabel) };
}

/** Decodes an object that {@link objectIdentity} knows to be of this kind. `file`: unless it is of an API server. */
export function decodeObject(object: unknown, kind: Kind, file?: FileRules): Decoded<KubernetesObject> {
  return decoding((warnings) => {
    const root = Field.root(object);
    const apiVersion = root.get('apiVersion');
    if (apiVersion.stringOr(API_VERSIONS[kind]) !== API_VERSIONS[kind]) {
      throw apiVersion.wrong(`expected ${API_VERSIONS[kind]}`);
    }
    switch (kind) {
      case 'Service':
        return keyed(kind, decodeService(root, warnings, file));
      case 'Endpoints':
        return keyed(kind, decodeEndpoints(root, warnings, file));
      case 'EndpointSlice':
        return keyed(kind, decodeEndpointSlice(root, warnings, file));
    }
  });
}

/** An object as `encodeObject` wrote it, perhaps in another release; `undefined` for one that is of no use any more. */
export function decodeSaved(object: unknown, file?: FileRules): KubernetesObject | undefined {
  try {
    const identity = objectIdentity(object);
    const decoded = identity && decodeObject(object, identity.kind, file);
    return decoded?.status === 'ok' ? decoded.value : undefined;
  } catch (error) {
    if (error instanceof FieldError) return undefined;
    throw error;
  }
}

function keyed<K extends Kind, T extends { readonly key: ServiceKey }>(kind: K, value: T) {
  return { kind, key: value.key, value };
}

/** `discovery.k8s.io` of `discovery.k8s.io/v1`; empty for the core group's `v1`. */
export function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf('/');
  return slash < 0 ? '' : apiVersion.slice(0, slash);
}
