import type { Address } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';

/** What of this node takes connections that its own processes open. */
export interface CaptureFacts {
  /** Rules lead what this node sends there to a Service port. */
  isServiceAddress(address: Address, port: number, protocol: ProxiedProtocol): boolean;
  isNodePort(port: number, protocol: ProxiedProtocol): boolean;
  /** The proxy listens there for some Service port. */
  isProxyPort(port: number, protocol: ProxiedProtocol): boolean;
  readonly nodeAddresses: ReadonlySet<Address>;
  /** Our rules spare the proxy's own connections (docs/adr/0019), so no NodePort takes them. */
  readonly isMarking: boolean;
}

/**
 * Why a connection to this endpoint would come back to the proxy, where each would open another until descriptors run
 * out; `undefined` when it would not. The API allows no cluster IPs as endpoints either.
 */
export function loopReason(
  { address, port }: Endpoint,
  protocol: ProxiedProtocol,
  facts: CaptureFacts,
): string | undefined {
  if (facts.isServiceAddress(address, port, protocol)) return because('an address of a Service');
  if (!facts.nodeAddresses.has(address)) return undefined;
  if (!facts.isMarking && facts.isNodePort(port, protocol)) return because('a NodePort on this node');
  if (facts.isProxyPort(port, protocol)) return because("one of the proxy's own ports");
  return undefined;
}

function because(what: string): string {
  return `it is ${what}, so connections would come back to the proxy`;
}
