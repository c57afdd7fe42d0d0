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
}

export interface Endpoint {
  readonly ip: string;
  readonly ready?: boolean;
}

export function serviceObject({ name, type, ports, clusterIP, affinitySeconds, labels }: ServiceOptions): object {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: NAMESPACE, ...(labels && { labels }) },
    spec: {
      ...(type && { type }),
      ...(clusterIP && { clusterIP }),
      ...(affinitySeconds !== undefined && affinity(affinitySeconds)),
      ports: ports.map(servicePort),
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

/** The slice of the Service of this name, as the endpoint slice controller would write it. */
export function sliceObject(
  { name, ports, labels }: ServiceOptions,
  endpoints: readonly (string | Endpoint)[],
): object {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, namespace: NAMESPACE, labels: { ...labels, 'kubernetes.io/service-name': name } },
    addressType: 'IPv4',
    ports: slicePorts(ports),
    endpoints: sliceEndpoints(endpoints),
  };
}

export function slicePorts(ports: readonly PortOptions[]): object[] {
  return ports.map(({ name, target, protocol }) => ({ name: name ?? '', port: target, protocol: protocol ?? 'TCP' }));
}

export function sliceEndpoints(endpoints: readonly (string | Endpoint)[]): object[] {
  return endpoints.map((endpoint) => {
    const { ip, ready } = typeof endpoint === 'string' ? { ip: endpoint, ready: true } : endpoint;
    return { addresses: [ip], conditions: { ready: ready ?? true } };
  });
}
