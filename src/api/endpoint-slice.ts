import { familyOf, type IpFamily } from '../model/address.ts';
import type { EndpointAddress, EndpointPort, EndpointSlice } from '../model/endpoint.ts';
import { type Decoded, decoding, Skip, type Warnings } from './decoded.ts';
import { Field } from './field.ts';
import { dnsSubdomain, keyOf, lastChangeTriggered, serviceOfSlice, skipByLabel } from './metadata.ts';
import { address, portName, portNumber, protocol } from './network.ts';

const ADDRESS_TYPES = ['IPv4', 'IPv6', 'FQDN'] as const;
const ZONE = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

/**
 * A `discovery.k8s.io/v1` EndpointSlice. A bad endpoint is left out with a warning; a bad port makes the slice
 * invalid.
 */
export function decodeEndpointSlice(object: unknown): Decoded<EndpointSlice> {
  return decoding((warnings) => {
    const root = Field.root(object);
    const key = keyOf(root, dnsSubdomain);
    const skip = skipByLabel(root);
    if (skip !== undefined) return skip;
    const service = serviceOfSlice(root);
    if (service === undefined) return new Skip('it belongs to no Service');
    const family = root.get('addressType').oneOf(ADDRESS_TYPES);
    const triggeredAt = lastChangeTriggered(root);
    if (family === 'FQDN') return new Skip('it holds host names, which a proxy of addresses cannot serve');

    return {
      key,
      service,
      group: {
        addresses: warnings.keepValid(root.get('endpoints').items(), (endpoint) =>
          decodeEndpoint(endpoint, family, warnings),
        ),
        ports: decodePorts(root.get('ports'), warnings),
      },
      ...(triggeredAt !== undefined && { triggeredAt }),
    };
  });
}

function decodeEndpoint(endpoint: Field, family: IpFamily, warnings: Warnings): EndpointAddress {
  // Only the first: all of them are one backend, and upstream takes no other (`pkg/proxy/endpointslicecache.go`).
  const first = endpoint.get('addresses').items()[0];
  if (first === undefined) throw endpoint.get('addresses').error('is empty; expected an address');
  const parsed = address(first);
  if (familyOf(parsed) !== family) throw first.wrong(`expected an ${family} address, as addressType says`);

  const conditions = endpoint.get('conditions');
  const ready = conditions.get('ready').booleanOr(true);
  const nodeName = endpoint.get('nodeName');
  const zone = endpoint.get('zone');
  const hints = endpoint.get('hints');
  const nodeHints = decodeHints(hints.get('forNodes'), dnsSubdomain, warnings);
  const zoneHints = decodeHints(hints.get('forZones'), decodeZone, warnings);
  return {
    address: parsed,
    ready,
    // The API says to defer to `ready` where it is unknown (`discovery/v1/types.go`); upstream takes it for true.
    serving: conditions.get('serving').booleanOr(ready),
    terminating: conditions.get('terminating').booleanOr(false),
    ...(nodeName.isPresent && { nodeName: dnsSubdomain(nodeName) }),
    ...(zone.isPresent && { zone: decodeZone(zone) }),
    ...(nodeHints.length > 0 && { nodeHints }),
    ...(zoneHints.length > 0 && { zoneHints }),
  };
}

function decodeZone(zone: Field): string {
  if (!ZONE.test(zone.string())) throw zone.wrong('expected the name of a zone');
  return zone.string();
}

/** Names of nodes or zones. A bad one is left out, not its endpoint: hints only say which endpoints to prefer. */
function decodeHints(hints: Field, decodeName: (name: Field) => string, warnings: Warnings): string[] {
  return warnings.keepValid(hints.items(), (hint) => decodeName(hint.get('name')));
}

function decodePorts(ports: Field, warnings: Warnings): EndpointPort[] {
  const numbered = ports.items().filter((field) => {
    const port = field.get('port');
    // It means "all ports", which says nothing of where to connect to; upstream leaves it out as well.
    if (!port.isPresent) warnings.add({ field: port.path, problem: 'is missing; a proxy needs a number' });
    return port.isPresent;
  });
  return numbered.map((field) => ({
    name: portName(field.get('name')),
    protocol: protocol(field.get('protocol')),
    port: portNumber(field.get('port')),
  }));
}
