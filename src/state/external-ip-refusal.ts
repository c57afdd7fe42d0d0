import type { Address } from '../model/address.ts';
import { type Cidr, cidrContains } from '../model/cidr.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';

/** What an external IP, which anyone who may write a Service chooses freely, could take away from others. */
export interface ExternalIpFacts {
  /** It is the cluster IP of a Service. */
  isClusterIP(address: Address): boolean;
  /** A program on this node other than the proxy receives what is sent there. */
  isListening(address: Address, port: number, protocol: ProxiedProtocol): boolean;
  readonly nodeAddresses: ReadonlySet<Address>;
  /** Only addresses in these are taken. Absent: no such limit. */
  readonly allowed?: readonly Cidr[];
}

/** Why no rules may lead this external IP and port to a Service (CVE-2020-8554), or `undefined`. */
export function externalIpRefusal(
  { address, port }: Endpoint,
  protocol: ProxiedProtocol,
  facts: ExternalIpFacts,
): string | undefined {
  if (facts.allowed !== undefined && !facts.allowed.some((cidr) => cidrContains(cidr, address))) {
    return 'it is not among the external IPs that are allowed';
  }
  if (facts.isClusterIP(address)) return 'it is the cluster IP of a Service';
  if (facts.nodeAddresses.has(address) && facts.isListening(address, port, protocol)) {
    return 'a program on this node listens on that address and port';
  }
  return undefined;
}
