import type { ServiceKey } from '../../model/service.ts';
import type { Field } from '../../util/untrusted.ts';
import { Skip } from './decoded.ts';

const DEFAULT_NAMESPACE = 'default';
const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';

/**
 * Objects that upstream keeps out of its watches with the selector
 * `!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name` (`cmd/kube-proxy/app/server.go`): the
 * label counts, whatever its value.
 */
const OTHERS_LABELS = ['service.kubernetes.io/headless', 'service.kubernetes.io/service-proxy-name'] as const;

const LAST_CHANGE_TRIGGER = 'endpoints.kubernetes.io/last-change-trigger-time';

const UID = /^[0-9A-Za-z-]{1,64}$/;

/** RFC 3339, as Go writes it. */
const TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

const DNS_LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;

/** A DNS-1123 label. */
export function dnsLabel(field: Field): string {
  const name = field.string();
  if (name.length > 63 || !DNS_LABEL.test(name)) {
    throw field.wrong('expected a DNS label: at most 63 of a-z, 0-9 and "-", with a letter or digit at both ends');
  }
  return name;
}

/** A DNS-1123 subdomain: labels joined by dots. */
export function dnsSubdomain(field: Field): string {
  const name = field.string();
  if (name.length > 253 || !name.split('.').every((label) => DNS_LABEL.test(label))) {
    throw field.wrong('expected a DNS name: at most 253 of a-z, 0-9, "-" and "."');
  }
  return name;
}

/** `namespace/name`, where `nameOf` says what a name of this kind must look like. */
export function keyOf(object: Field, nameOf: (name: Field) => string): ServiceKey {
  const metadata = object.get('metadata');
  const name = nameOf(metadata.get('name'));
  return `${namespaceOf(object)}/${name}`;
}

/** The Service that an EndpointSlice belongs to; `undefined` for a slice of something else. */
export function serviceOfSlice(slice: Field): ServiceKey | undefined {
  const label = slice.get('metadata').get('labels').get(SERVICE_NAME_LABEL);
  if (!label.isPresent || label.value === '') return undefined;
  return `${namespaceOf(slice)}/${dnsLabel(label)}`;
}

/** What the API server tells an object from its namesakes of other times by; `undefined` without one, as in a file. */
export function uidOf(object: Field): string | undefined {
  const { value } = object.get('metadata').get('uid');
  return typeof value === 'string' && UID.test(value) ? value : undefined;
}

/**
 * When the cluster changed such that this object had to: milliseconds since 1970. `undefined` where its controller does
 * not say, or nothing that can be read: it serves a metric only.
 */
export function lastChangeTriggered(object: Field): number | undefined {
  const annotations = object.get('metadata').get('annotations').value;
  const value =
    typeof annotations === 'object' ? (annotations as Record<string, unknown>)[LAST_CHANGE_TRIGGER] : undefined;
  if (typeof value !== 'string' || !TIMESTAMP.test(value)) return undefined;
  // biome-ignore lint/style/noRestrictedGlobals: reads an instant that is written down; asks for no time
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : at;
}

function namespaceOf(object: Field): string {
  const namespace = object.get('metadata').get('namespace');
  return namespace.isPresent && namespace.value !== '' ? dnsLabel(namespace) : DEFAULT_NAMESPACE;
}

/** Says so when the labels give this object to another proxy or to nobody. */
export function skipByLabel(object: Field): Skip | undefined {
  const labels = object.get('metadata').get('labels');
  const label = OTHERS_LABELS.find((name) => labels.has(name));
  return label === undefined ? undefined : new Skip(`it has the label ${label}`);
}
