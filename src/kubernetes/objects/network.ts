import { type Address, type Cidr, parseAddress, parseCidr, specialAddressReason } from '../../model/address.ts';
import type { Protocol } from '../../model/service.ts';
import type { Field } from '../../util/untrusted.ts';
import type { Warnings } from './decoded.ts';
import { dnsLabel, dnsSubdomain } from './metadata.ts';

const PROTOCOLS: readonly Protocol[] = ['TCP', 'UDP', 'SCTP'];

export function address(field: Field): Address {
  const parsed = parseAddress(field.string());
  if (parsed === undefined) throw field.wrong('expected an IP address');
  const special = specialAddressReason(parsed);
  if (special !== undefined) throw field.wrong(`a ${special} address is never proxied`);
  return parsed;
}

/** The API server lets blanks around it pass, and so does upstream (`pkg/proxy/serviceport.go`). */
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

/** Of an endpoint. A bad one costs the endpoint nothing but its place: it is then on no node that is known. */
export function decodeNodeName(endpoint: Field, warnings: Warnings): string | undefined {
  const nodeName = endpoint.get('nodeName');
  return nodeName.isPresent ? warnings.optional(() => dnsSubdomain(nodeName)) : undefined;
}
