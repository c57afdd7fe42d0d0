import { type Address, type Cidr, parseAddress, parseCidr } from '../../src/model/address.ts';
import { type EndpointAddress, namedEndpoint } from '../../src/model/endpoint.ts';
import type { Service } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';

export function address(text: string): Address {
  const parsed = parseAddress(text);
  if (parsed === undefined) throw new Error(`${text} is not an address`);
  return parsed;
}

export function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  if (parsed === undefined) throw new Error(`${text} is not a CIDR`);
  return parsed;
}

export const ENDPOINT = namedEndpoint(address('10.244.1.11'), 8080);

/** Of a slice or a subset: ready, unless the fields say otherwise. */
export function endpointAddress(text: string, fields: Partial<EndpointAddress> = {}): EndpointAddress {
  return { address: address(text), ready: true, serving: true, terminating: false, ...fields };
}

/** shop/web at 10.96.0.1:80/TCP, unless the fields say otherwise. */
export function service(fields: Partial<Service> = {}): Service {
  return {
    key: 'shop/web',
    clusterIPs: [address('10.96.0.1')],
    externalIPs: [],
    loadBalancerIPs: [],
    ports: [{ name: '', protocol: 'TCP', port: 80, nodePort: 0 }],
    affinity: { type: 'None' },
    ...fields,
  };
}

/** A port of shop/web with one endpoint, unless the fields say otherwise. */
export function servicePort(fields: Partial<ServicePort> = {}): ServicePort {
  return {
    name: 'shop/web',
    protocol: 'TCP',
    port: 80,
    nodePort: 0,
    clusterIPs: [address('10.96.0.1')],
    externalIPs: [],
    loadBalancerIPs: [],
    affinity: { type: 'None' },
    endpoints: [ENDPOINT],
    ...fields,
  };
}
