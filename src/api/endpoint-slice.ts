import { familyOf, type IpFamily } from '../model/address.ts';
import type { EndpointAddress, EndpointPort, EndpointSlice } from '../model/endpoint.ts';
import { type Decoded, decoding, Skip, type Warnings } from './decoded.ts';
import { Field } from './field.ts';
import { dnsSubdomain, keyOf, serviceOfSlice, skipByLabel } from './metadata.ts';
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
    if (family === 'FQDN') return new Skip('it holds host names, which a proxy of addresses cannot serve');

    return {
      key,
      service,
      group: {
        addresses: warnings.keepValid(root.get('endpoints').items(), (endpoint) => decodeEndpoint(endpoint, family)),
        ports: decodePorts(root.get('ports'), warnings),
      },
    };
  });
}

function decodeEndpoint(endpoint: Field, family: IpFamily): EndpointAddress {
  // Only the first: all of them are one backend, and upstream takes no other (`pkg/proxy/endpointslicecache.go`).
  const first = endpoint.get('addresses').items()[0];
  if (first === undefined) throw endpoint.get('addresses').error('is empty; expected an address');
  const parsed = address(first);
  if (familyOf(parsed) !== family) throw first.wrong(`expected an ${family} address, as addressType says`);

  const conditions = endpoint.get('conditions');
  const ready = conditions.get('ready').booleanOr(true);
  const nodeName = endpoint.get('nodeName');
  const zone = endpoint.get('zone');
  return {
    address: parsed,
    ready,
    // The API says to defer to `ready` where it is unknown (`discovery/v1/types.go`); upstream takes it for true.
    serving: conditions.get('serving').booleanOr(ready),
    terminating: conditions.get('terminating').booleanOr(false),
    ...(nodeName.isPresent && { nodeName: dnsSubdomain(nodeName) }),
    ...(zone.isPresent && { zone: decodeZone(zone) }),
  };
}

function decodeZone(zone: Field): string {
  if (!ZONE.test(zone.string())) throw zone.wrong('expected the name of a zone');
  return zone.string();
}

function decodePorts(ports: Field, warnings: Warnings): EndpointPort[] {
  const decoded: EndpointPort[] = [];
  for (const field of ports.items()) {
    const port = field.get('port');
    if (!port.isPresent) {
      // It means "all ports", which says nothing of where to connect to; upstream leaves it out as well.
      warnings.add({ field: port.path, problem: 'is missing; a proxy needs a number' });
      continue;
    }
    decoded.push({
      name: portName(field.get('name')),
      protocol: protocol(field.get('protocol')),
      port: portNumber(port),
    });
  }
  return decoded;
}
