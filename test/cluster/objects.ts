import { NAMESPACE } from './admin.ts';

export interface PortOptions {
  readonly name?: string;
  readonly port: number;
  /** Where the endpoints listen. */
  readonly target: number;
  readonly protocol?: 'TCP' | 'UDP';
  readonly nodePort?: number;
}

export interface ServiceOptions {
  readonly name: string;
  readonly type?: 'ClusterIP' | 'NodePort' | 'LoadBalancer';
  readonly ports: readonly PortOptions[];
  /** `None` for a headless one. Chosen by the server otherwise. */
  readonly clusterIP?: string;
  /** ClientIP affinity with this timeout. */
  readonly affinitySeconds?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** Further fields of its `spec`. */
  readonly spec?: object;
}

export interface Endpoint {
  readonly ip: string;
  readonly ready?: boolean;
  /** It terminates, and serves until it has. */
  readonly terminating?: boolean;
  readonly nodeName?: string;
  /** The zone, or the node, that the controller wants it to be used in. */
  readonly zoneHint?: string;
  readonly nodeHint?: string;
}

export function serviceObject(options: ServiceOptions): object {
  const { name, type, ports, clusterIP, affinitySeconds, labels, annotations, spec } = options;
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: NAMESPACE, ...(labels && { labels }), ...(annotations && { annotations }) },
    spec: {
      ...(type && { type }),
      ...(clusterIP && { clusterIP }),
      ...(affinitySeconds !== undefined && affinity(affinitySeconds)),
      ports: ports.map(servicePort),
      ...spec,
    },
  };
}

export function servicePort({ name, port, target, protocol, nodePort }: PortOptions): object {
  return {
    ...(name && { name }),
    port,
    targetPort: target,
    protocol: protocol ?? 'TCP',
    ...(nodePort && { nodePort }),
  };
}

/** The part of a Service's `spec` that switches affinity on, or off without a timeout. */
export function affinity(timeoutSeconds?: number): object {
  return timeoutSeconds === undefined
    ? { sessionAffinity: 'None', sessionAffinityConfig: null }
    : { sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds } } };
}

/** The slice of the Service of this name for one address family, as the endpoint slice controller would write it. */
export function sliceObject(
  { name, ports, labels }: ServiceOptions,
  endpoints: readonly (string | Endpoint)[],
  addressType: 'IPv4' | 'IPv6' = 'IPv4',
): object {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: addressType === 'IPv4' ? name : `${name}-ipv6`,
      namespace: NAMESPACE,
      labels: { ...labels, 'kubernetes.io/service-name': name },
    },
    addressType,
    ports: slicePorts(ports),
    endpoints: sliceEndpoints(endpoints),
  };
}

export function slicePorts(ports: readonly PortOptions[]): object[] {
  return ports.map(({ name, target, protocol }) => ({ name: name ?? '', port: target, protocol: protocol ?? 'TCP' }));
}

export function sliceEndpoints(endpoints: readonly (string | Endpoint)[]): object[] {
  return endpoints.map((endpoint) => sliceEndpoint(typeof endpoint === 'string' ? { ip: endpoint } : endpoint));
}

function sliceEndpoint({ ip, ready = true, terminating, nodeName, zoneHint, nodeHint }: Endpoint): object {
  const hints = {
    ...(zoneHint && { forZones: [{ name: zoneHint }] }),
    ...(nodeHint && { forNodes: [{ name: nodeHint }] }),
  };
  return {
    addresses: [ip],
    conditions: terminating ? { ready: false, serving: true, terminating: true } : { ready },
    targetRef: { kind: 'Pod', namespace: NAMESPACE, name: `at-${ip.replace(/\W/g, '-')}` },
    ...(nodeName && { nodeName }),
    ...((zoneHint || nodeHint) && { hints }),
  };
}
