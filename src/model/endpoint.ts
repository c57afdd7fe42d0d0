import { type Address, familyOf, parseAddress } from './address.ts';
import type { Protocol, ServiceKey } from './service.ts';

export interface EndpointAddress {
  readonly address: Address;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** Its object says that a Pod, or the API server, is there. */
  readonly isVouchedFor?: true;
  /** Of the Pod that its object names, in the namespace of that object. */
  readonly podName?: string;
  /** It was on this node before the machine started anew, and nobody has said since that it still is. */
  readonly isDoubtful?: true;
  readonly nodeName?: string;
  readonly zone?: string;
  /** The nodes and zones that should use it, from its topology hints. Absent, never empty, without hints. */
  readonly nodeHints?: readonly string[];
  readonly zoneHints?: readonly string[];
}

export interface EndpointPort {
  /** Empty for the unnamed port. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
}

/** Every address serves every port: one subset of an Endpoints object, or one EndpointSlice. */
export interface EndpointGroup {
  readonly addresses: readonly EndpointAddress[];
  readonly ports: readonly EndpointPort[];
  /** 0…65535, of every address. Absent: 1. */
  readonly weight?: number;
}

/** `Endpoints` (v1). Its Service has the same key. */
export interface Endpoints {
  readonly key: ServiceKey;
  readonly groups: readonly EndpointGroup[];
}

/** `EndpointSlice` (discovery.k8s.io/v1) of one address family. */
export interface EndpointSlice {
  readonly key: ServiceKey;
  /** From the label `kubernetes.io/service-name`. */
  readonly service: ServiceKey;
  readonly group: EndpointGroup;
  /** When its controller saw the change behind this slice: milliseconds since 1970. */
  readonly triggeredAt?: number;
}

export interface Endpoint {
  readonly address: Address;
  readonly port: number;
}

/** An endpoint of a listener. */
export interface NamedEndpoint extends Endpoint {
  /** See {@link endpointName}. It is made once, with the value. */
  readonly name: string;
}

/** An endpoint of a set that gets new connections. */
export interface WeightedEndpoint extends NamedEndpoint {
  /** 1…65535. Absent: 1. */
  readonly weight?: number;
  /** See {@link EndpointAddress}: others are tried first, until it answers. */
  readonly isDoubtful?: true;
}

/** What an operator has set on this node, for every Service. 0: no new connections, the endpoint is drained. */
export interface SetWeight extends Endpoint {
  /** 0…65535. */
  readonly weight: number;
  /** Of a drained endpoint: what had been set before, and comes back when it is undrained. */
  readonly before?: number;
}

/** `address:port`, or `[address]:port` for IPv6. It identifies an endpoint. */
export function endpointName({ address, port }: { readonly address: string; readonly port: number }): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

export function namedEndpoint(address: Address, port: number): NamedEndpoint {
  return { address, port, name: endpointName({ address, port }) };
}

/** As operators get it, in JSON. */
export function withoutName({ address, port }: Endpoint): Endpoint {
  return { address, port };
}

const NAME = /^(?:\[(?<v6>[^\]]*)\]|(?<v4>[^:[\]]*)):(?<port>\d{1,5})$/;

/** Reads {@link endpointName}; `undefined` for any other text. */
export function endpointOf(text: string): Endpoint | undefined {
  const { v6, v4, port } = NAME.exec(text)?.groups ?? {};
  const address = parseAddress(v6 ?? v4 ?? '');
  const isPort = Number(port) >= 1 && Number(port) <= 65_535;
  if (address === undefined || !isPort || (v6 !== undefined) !== (familyOf(address) === 'IPv6')) return undefined;
  return { address, port: Number(port) };
}

/** This node's place in the cluster, for traffic policies and topology hints. */
export interface NodeTopology {
  /** Absent while unknown: then no endpoint is local. */
  readonly nodeName?: string;
  /** The node's label `topology.kubernetes.io/zone`. */
  readonly zone?: string;
}
