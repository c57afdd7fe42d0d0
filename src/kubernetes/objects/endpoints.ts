import type { EndpointAddress, EndpointGroup, EndpointPort, Endpoints } from '../../model/endpoint.ts';
import { Field } from '../../util/untrusted.ts';
import { type Decoded, decoding, type Warnings } from './decoded.ts';
import { dnsLabel, keyOf, skipByLabel } from './metadata.ts';
import { address, decodeNodeName, portName, portNumber, protocol } from './network.ts';

/** A `v1` Endpoints object. A bad address is left out with a warning; a bad port makes the object invalid. */
export function decodeEndpoints(object: unknown): Decoded<Endpoints> {
  return decoding((warnings) => {
    const root = Field.root(object);
    // Although the API allows subdomains here: it has the name of its Service, which may only be a label.
    const key = keyOf(root, dnsLabel);
    return (
      skipByLabel(root) ?? {
        key,
        groups: root
          .get('subsets')
          .items()
          .map((subset) => decodeSubset(subset, warnings)),
      }
    );
  });
}

function decodeSubset(subset: Field, warnings: Warnings): EndpointGroup {
  const addresses = (name: string, ready: boolean): EndpointAddress[] =>
    warnings.keepValid(subset.get(name).items(), (item) => decodeAddress(item, ready, warnings));
  return {
    addresses: [...addresses('addresses', true), ...addresses('notReadyAddresses', false)],
    ports: subset.get('ports').items().map(decodePort),
  };
}

/** Endpoints know no termination: what is not ready does not serve. */
function decodeAddress(item: Field, ready: boolean, warnings: Warnings): EndpointAddress {
  const nodeName = decodeNodeName(item, warnings);
  return {
    address: address(item.get('ip')),
    ready,
    serving: ready,
    terminating: false,
    ...(nodeName !== undefined && { nodeName }),
  };
}

function decodePort(field: Field): EndpointPort {
  return {
    name: portName(field.get('name')),
    protocol: protocol(field.get('protocol')),
    port: portNumber(field.get('port')),
  };
}
