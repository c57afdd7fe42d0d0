import { type Address, familyOf, type IpFamily } from '../../model/address.ts';
import type { EndpointAddress, EndpointGroup, EndpointPort, EndpointSlice, Endpoints } from '../../model/endpoint.ts';
import { MAX_WEIGHT } from '../../model/scheduler.ts';
import type { ServiceKey } from '../../model/service.ts';
import { type Field, show } from '../../util/untrusted.ts';
import { adviceOn, keysOf, PREFIX, unknownAmong } from './annotations.ts';
import { type FileRules, Skip, type Warnings } from './decoded.ts';
import {
  address,
  decodeNodeName,
  dnsLabel,
  dnsSubdomain,
  isDnsSubdomain,
  keyOf,
  lastChangeTriggered,
  missingServiceOf,
  portName,
  portNumber,
  protocol,
  serviceOfSlice,
  skipByLabel,
} from './fields.ts';

const ADDRESS_TYPES = ['IPv4', 'IPv6', 'FQDN'] as const;
/** One object may not fill the log. */
const MAX_UNKNOWN = 3;
const LABEL_VALUE = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

/**
 * A `discovery.k8s.io/v1` EndpointSlice. An endpoint with a bad address is left out with a warning. A bad optional
 * field costs only itself. A bad port makes the slice invalid.
 */
export function decodeEndpointSlice(root: Field, warnings: Warnings, file?: FileRules): EndpointSlice {
  const key = keyOf(root, dnsSubdomain);
  skipByLabel(root);
  const service = serviceOfSlice(root);
  if (service === undefined) throw new Skip('it belongs to no Service', missingServiceOf(root));
  const family = root.get('addressType').oneOf(ADDRESS_TYPES);
  const triggeredAt = lastChangeTriggered(root);
  if (family === 'FQDN') throw new Skip('it holds host names, which a proxy of addresses cannot serve');
  const endpoints = root.get('endpoints').items();
  const weight = decodeWeight(root, warnings);
  const decoding = { key, warnings, file };
  return {
    key,
    service,
    group: {
      ...(weight !== undefined && { weight }),
      addresses: warnings.keepValid(endpoints, (endpoint) => decodeEndpoint(endpoint, family, decoding)),
      ports: decodePorts(root.get('ports'), warnings),
    },
    ...(triggeredAt !== undefined && { triggeredAt }),
  };
}

const NAMES = ['weight'] as const;

/** The first that the object has counts. */
const WEIGHT_ANNOTATIONS = [`${PREFIX}weight`, 'service.cilium.io/weight'] as const;

/** Of every endpoint of the object. A wrong one is left out with a warning, and 1 serves. */
function decodeWeight(root: Field, warnings: Warnings): number | undefined {
  const annotations = root.get('metadata').get('annotations');
  if (!annotations.isPresent) return undefined;
  for (const key of unknownAmong(keysOf(annotations), NAMES).slice(0, MAX_UNKNOWN)) {
    warnings.add(annotations.error(`has ${show(key)}, which endpoints do not have`, adviceOn(key, NAMES)).problem);
  }
  return warnings.optional(() => {
    const field = WEIGHT_ANNOTATIONS.map((each) => annotations.get(each)).find(({ isPresent }) => isPresent);
    if (field === undefined) return undefined;
    const weight = /^\d{1,5}$/.test(field.string()) ? Number(field.string()) : Number.NaN;
    if (!(weight <= MAX_WEIGHT)) throw field.wrong(`expected a whole number from 0 to ${MAX_WEIGHT}`);
    return weight;
  });
}

interface Decoding {
  /** Of the object. */
  readonly key: ServiceKey;
  readonly warnings: Warnings;
  readonly file: FileRules | undefined;
}

function decodeEndpoint(endpoint: Field, family: IpFamily, decoding: Decoding): EndpointAddress {
  const { warnings, file } = decoding;
  // All addresses are one backend. Upstream uses only the first, too (`pkg/proxy/endpointslicecache.go`).
  const first = endpoint.get('addresses').items()[0];
  if (first === undefined) throw endpoint.get('addresses').error('is empty', 'expected an address');
  const parsed = endpointAddress(first, file);
  if (familyOf(parsed) !== family) throw first.wrong(`expected an ${family} address, as addressType says`);

  const condition = (name: string) =>
    warnings.optional(() => endpoint.get('conditions').get(name).booleanOr(undefined));
  const ready = condition('ready') ?? true;
  const nodeName = decodeNodeName(endpoint, warnings);
  const zone = decodeZone(endpoint);
  const nodeHints = decodeHints(endpoint, 'forNodes', { decodeName: dnsSubdomain, warnings });
  const zoneHints = decodeHints(endpoint, 'forZones', { decodeName: zoneName, warnings });
  return {
    address: parsed,
    ready,
    // The API says to defer to `ready` where it is unknown (`discovery/v1/types.go`); upstream takes it for true.
    serving: condition('serving') ?? ready,
    terminating: condition('terminating') ?? false,
    ...vouchedFor(endpoint, decoding),
    ...(nodeName !== undefined && { nodeName }),
    ...(zone !== undefined && { zone }),
    ...(nodeHints.length > 0 && { nodeHints }),
    ...(zoneHints.length > 0 && { zoneHints }),
  };
}

/** Written by API servers, without a `targetRef`: what is there is their own addresses. */
const OF_API_SERVERS = 'default/kubernetes';

function vouchedFor(endpoint: Field, { key }: Decoding): Pick<EndpointAddress, 'isVouchedFor' | 'podName'> {
  const target = endpoint.get('targetRef').value as { readonly kind?: unknown; readonly name?: unknown } | undefined;
  if (target?.kind !== 'Pod') return key === OF_API_SERVERS ? { isVouchedFor: true } : {};
  const { name } = target;
  return { isVouchedFor: true, ...(typeof name === 'string' && isDnsSubdomain(name) && { podName: name }) };
}

/**
 * The API server accepts any text. Text that cannot be the value of a label cannot be the zone of a node. It is left
 * out without a warning, because every endpoint of a cluster may have it.
 */
function decodeZone(endpoint: Field): string | undefined {
  const { value } = endpoint.get('zone');
  return typeof value === 'string' && LABEL_VALUE.test(value) ? value : undefined;
}

function zoneName(zone: Field): string {
  if (!LABEL_VALUE.test(zone.string())) throw zone.wrong('expected the name of a zone');
  return zone.string();
}

/** Names of nodes or zones. A bad name is left out, but its endpoint is kept: hints are only preferences. */
function decodeHints(
  endpoint: Field,
  kind: 'forNodes' | 'forZones',
  { decodeName, warnings }: { decodeName(name: Field): string; readonly warnings: Warnings },
): string[] {
  const hints = warnings.optional(() => endpoint.get('hints').get(kind).items()) ?? [];
  return warnings.keepValid(hints, (hint) => decodeName(hint.get('name')));
}

function decodePorts(ports: Field, warnings: Warnings): EndpointPort[] {
  const numbered = ports.items().filter((field) => {
    const port = field.get('port');
    // Without a number it means "all ports", so there is nothing to connect to; upstream leaves it out as well.
    if (!port.isPresent) warnings.add({ field: port.path, found: 'is missing', advice: 'a proxy needs a number' });
    return port.isPresent;
  });
  return numbered.map(decodePort);
}

function decodePort(field: Field): EndpointPort {
  return {
    name: portName(field.get('name')),
    protocol: protocol(field.get('protocol')),
    port: portNumber(field.get('port')),
  };
}

/** A `v1` Endpoints object. A bad address is left out with a warning; a bad port makes the object invalid. */
export function decodeEndpoints(root: Field, warnings: Warnings, file?: FileRules): Endpoints {
  // A label, although the API allows subdomains here: it has the name of its Service.
  const key = keyOf(root, dnsLabel);
  skipByLabel(root);
  const subsets = root.get('subsets').items();
  const weight = decodeWeight(root, warnings);
  const groups = subsets.map((subset) => decodeSubset(subset, { key, warnings, file }));
  return { key, groups: weight === undefined ? groups : groups.map((group) => ({ ...group, weight })) };
}

function decodeSubset(subset: Field, decoding: Decoding): EndpointGroup {
  const addresses = (name: string, ready: boolean): EndpointAddress[] =>
    decoding.warnings.keepValid(subset.get(name).items(), (item) => decodeAddress(item, ready, decoding));
  return {
    addresses: [...addresses('addresses', true), ...addresses('notReadyAddresses', false)],
    ports: subset.get('ports').items().map(decodePort),
  };
}

/** Endpoints have no termination: an address that is not ready does not serve. */
function decodeAddress(item: Field, ready: boolean, decoding: Decoding): EndpointAddress {
  const { warnings, file } = decoding;
  const nodeName = decodeNodeName(item, warnings);
  return {
    address: endpointAddress(item.get('ip'), file),
    ready,
    serving: ready,
    terminating: false,
    ...vouchedFor(item, decoding),
    ...(nodeName !== undefined && { nodeName }),
  };
}

function endpointAddress(field: Field, file: FileRules | undefined): Address {
  return address(field, { loopback: file?.loopbackEndpoints });
}
