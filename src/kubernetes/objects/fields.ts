import { type Address, type Cidr, parseAddress, parseCidr, specialAddressReason } from '../../model/address.ts';
import type { Protocol, ServiceKey } from '../../model/service.ts';
import type { Field, Problem } from '../../util/untrusted.ts';
import { Skip, type Warnings } from './decoded.ts';

const DEFAULT_NAMESPACE = 'default';
const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';

/** Upstream's watches leave out objects with these labels, whatever their value (`cmd/kube-proxy/app/server.go`). */
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
  if (isDnsSubdomain(name)) return name;
  throw field.wrong('expected a DNS name: at most 253 of a-z, 0-9, "-" and "."');
}

export function isDnsSubdomain(name: string): boolean {
  return name.length <= 253 && name.split('.').every((label) => DNS_LABEL.test(label));
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

/** What to say of a slice for which {@link serviceOfSlice} finds none. */
export function missingServiceOf(slice: Field): Problem {
  const { path } = slice.get('metadata').get('labels').get(SERVICE_NAME_LABEL);
  return { field: path, found: 'is missing', advice: 'write the name of the Service' };
}

/** Distinguishes an object from earlier ones of its name; `undefined` in a file. */
export function uidOf(object: Field): string | undefined {
  const { value } = object.get('metadata').get('uid');
  return typeof value === 'string' && UID.test(value) ? value : undefined;
}

/** When the change happened that its controller reacted to, in ms since 1970; for a metric only. */
export function lastChangeTriggered(object: Field): number | undefined {
  const annotations = object.get('metadata').get('annotations').value;
  const value =
    typeof annotations === 'object' ? (annotations as Record<string, unknown>)[LAST_CHANGE_TRIGGER] : undefined;
  if (typeof value !== 'string' || !TIMESTAMP.test(value)) return undefined;
  // biome-ignore lint/style/noRestrictedGlobals: parses a time, does not read the clock
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : at;
}

function namespaceOf(object: Field): string {
  const namespace = object.get('metadata').get('namespace');
  return namespace.isPresent && namespace.value !== '' ? dnsLabel(namespace) : DEFAULT_NAMESPACE;
}

/** Throws {@link Skip} when the labels give this object to another proxy, or to none. */
export function skipByLabel(object: Field): void {
  const labels = object.get('metadata').get('labels');
  const label = OTHERS_LABELS.find((name) => labels.has(name));
  if (label !== undefined) throw new Skip(`it has the label ${label}`);
}

const PROTOCOLS: readonly Protocol[] = ['TCP', 'UDP', 'SCTP'];

/** `loopback`: whether the operator allows it here, if that is for an operator to say. */
export function address(field: Field, { loopback }: { readonly loopback?: boolean | undefined } = {}): Address {
  const parsed = parseAddress(field.string());
  if (parsed === undefined) throw field.wrong('expected an IP address');
  const special = specialAddressReason(parsed);
  if (special === 'loopback' && loopback === true) return parsed;
  if (special === 'loopback' && loopback === false) {
    throw field.wrong('a loopback address is proxied only with --allow-loopback-endpoints');
  }
  if (special !== undefined) throw field.wrong(`a ${special} address is never proxied`);
  return parsed;
}

/** Blanks around it are accepted, as by the API server and upstream (`pkg/proxy/serviceport.go`). */
export function cidr(field: Field): Cidr {
  const parsed = parseCidr(field.string().trim());
  if (parsed === undefined) throw field.wrong('expected a CIDR, such as 192.0.2.0/24');
  return parsed;
}

export function portNumber(field: Field): number {
  return field.integer(1, 65_535);
}

/** The name that joins a Service port with its endpoints' ports; empty for the unnamed one. */
export function portName(field: Field): string {
  return field.isPresent && field.value !== '' ? dnsLabel(field) : '';
}

export function protocol(field: Field): Protocol {
  return field.isPresent && field.value !== '' ? field.oneOf(PROTOCOLS) : 'TCP';
}

/** The node of an endpoint. With a bad name the endpoint is served, but belongs to no known node. */
export function decodeNodeName(endpoint: Field, warnings: Warnings): string | undefined {
  const nodeName = endpoint.get('nodeName');
  return nodeName.isPresent ? warnings.optional(() => dnsSubdomain(nodeName)) : undefined;
}
