import type { Address } from '../model/address.ts';
import { type Cidr, cidrContains } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { ServiceKey } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';

/**
 * What an external IP, which anyone who may write a Service chooses freely, could take away from others: rules for it
 * take packets from everywhere (docs/adr/0017).
 */
export interface ExternalIpFacts {
  /** It is the cluster IP of a Service. */
  isClusterIP(address: Address): boolean;
  /**
   * Another Service has it as an endpoint, ready or not; or `service` itself has, where rules take the proxy's own
   * connections to it, too.
   */
  isEndpoint(endpoint: Endpoint, protocol: ProxiedProtocol, service: ServiceKey): boolean;
  isNodePort(port: number, protocol: ProxiedProtocol): boolean;
  /** A program on this node other than the proxy receives what is sent there. */
  isListening(address: Address, port: number, protocol: ProxiedProtocol): boolean;
  readonly nodeAddresses: ReadonlySet<Address>;
  /** Only addresses in these are taken. Absent: no such limit. */
  readonly allowed?: readonly Cidr[];
  /** Where pods are, those of headless Services among them, whose endpoints are not known here. */
  readonly podCidrs: readonly Cidr[];
}

/** Why no rules may lead this external IP and port to the Service (CVE-2020-8554), or `undefined`. */
export function externalIpRefusal(
  { address, port }: Endpoint,
  { protocol, service }: { readonly protocol: ProxiedProtocol; readonly service: ServiceKey },
  facts: ExternalIpFacts,
): string | undefined {
  if (facts.allowed !== undefined && !facts.allowed.some((cidr) => cidrContains(cidr, address))) {
    return 'it is not among the external IPs that are allowed';
  }
  if (facts.isClusterIP(address)) return 'it is the cluster IP of a Service';
  if (facts.isEndpoint({ address, port }, protocol, service)) return 'it is an endpoint of a Service';
  if (!facts.nodeAddresses.has(address)) {
    const isOfPod = facts.podCidrs.some((cidr) => cidrContains(cidr, address));
    return isOfPod ? 'it is in the range of pod addresses (--cluster-cidr)' : undefined;
  }
  if (facts.isNodePort(port, protocol)) return 'that port of this node is the NodePort of a Service';
  if (facts.isListening(address, port, protocol)) return 'a program on this node listens on that address and port';
  return undefined;
}
