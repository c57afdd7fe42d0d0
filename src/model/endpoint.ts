import type { Address } from './address.ts';
import type { Protocol, ServiceKey } from './service.ts';

/** One address, with its state from the EndpointSlice. */
export interface EndpointAddress {
  readonly address: Address;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  readonly nodeName?: string;
  readonly zone?: string;
  /** The nodes and zones that should use it, from its topology hints. Absent, never empty, without hints. */
  readonly nodeHints?: readonly string[];
  readonly zoneHints?: readonly string[];
}

export interface EndpointPort {
  /** Matched with the Service port's name; empty for the unnamed port. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
}

/** Every address serves every port: one subset of an Endpoints object, or one EndpointSlice. */
export interface EndpointGroup {
  readonly addresses: readonly EndpointAddress[];
  readonly ports: readonly EndpointPort[];
}

/** An `Endpoints` (v1) object. Its Service has the same key. */
export interface Endpoints {
  readonly key: ServiceKey;
  readonly groups: readonly EndpointGroup[];
}

/** An `EndpointSlice` (discovery.k8s.io/v1) object of one address family. */
export interface EndpointSlice {
  /** `namespace/name` of the slice itself. */
  readonly key: ServiceKey;
  /** From the label `kubernetes.io/service-name`. */
  readonly service: ServiceKey;
  readonly group: EndpointGroup;
  /** When the change behind this slice happened, as its controller says: milliseconds since 1970. */
  readonly triggeredAt?: number;
}

/** Where to connect to: one candidate of one Service port. */
export interface Endpoint {
  readonly address: Address;
  readonly port: number;
}

/** `address:port`, or `[address]:port` for IPv6: an endpoint's identity, and how it is shown. */
export function endpointName(endpoint: { readonly address: string; readonly port: number }): string {
  return endpoint.address.includes(':')
    ? `[${endpoint.address}]:${endpoint.port}`
    : `${endpoint.address}:${endpoint.port}`;
}

/** This node's place in the cluster, for traffic policies and topology hints. */
export interface NodeTopology {
  /** As endpoints name it. Absent while unknown: then no endpoint is local. */
  readonly nodeName?: string;
  /** The node's label `topology.kubernetes.io/zone`. */
  readonly zone?: string;
}
