import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface PortOptions {
  readonly name?: string;
  readonly port: number;
  readonly target: number;
  readonly protocol?: 'TCP' | 'UDP';
  readonly nodePort?: number;
}

export interface ServiceOptions {
  readonly name: string;
  /** `test` without it. */
  readonly namespace?: string;
  readonly clusterIP: string;
  readonly ports: readonly PortOptions[];
  readonly externalIPs?: readonly string[];
  readonly loadBalancerIPs?: readonly string[];
  /** ClientIP affinity with this timeout. */
  readonly affinitySeconds?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** Addresses of the backends; no `Endpoints` object without them. */
  readonly endpoints?: readonly string[];
  /** More fields of its spec, or others. */
  readonly spec?: object;
}

export interface SliceEndpoint {
  readonly address: string;
  readonly nodeName?: string;
  readonly targetRef?: { readonly kind: string; readonly name: string };
  readonly conditions?: { readonly ready?: boolean; readonly serving?: boolean; readonly terminating?: boolean };
}

/** A Service and its Endpoints, as the API server would show them. */
export function serviceObjects(options: ServiceOptions): object[] {
  const {
    name,
    namespace = 'test',
    clusterIP,
    ports,
    externalIPs,
    loadBalancerIPs = [],
    affinitySeconds,
    labels,
    annotations,
    endpoints,
    spec,
  } = options;
  const metadata = { name, namespace };
  const portName = (port: PortOptions) => (port.name === undefined ? {} : { name: port.name });
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { ...metadata, ...(labels && { labels }), ...(annotations && { annotations }) },
    spec: {
      type:
        loadBalancerIPs.length > 0 ? 'LoadBalancer' : ports.some((port) => port.nodePort) ? 'NodePort' : 'ClusterIP',
      clusterIP,
      ...(externalIPs && { externalIPs }),
      ...(affinitySeconds !== undefined && {
        sessionAffinity: 'ClientIP',
        sessionAffinityConfig: { clientIP: { timeoutSeconds: affinitySeconds } },
      }),
      ports: ports.map((port) => ({
        ...portName(port),
        port: port.port,
        targetPort: port.target,
        protocol: port.protocol ?? 'TCP',
        ...(port.nodePort && { nodePort: port.nodePort }),
      })),
      ...spec,
    },
    status: { loadBalancer: { ingress: loadBalancerIPs.map((ip) => ({ ip })) } },
  };
  if (endpoints === undefined) return [service];
  const subset = {
    addresses: endpoints.map((ip) => ({ ip })),
    ports: ports.map((port) => ({ ...portName(port), port: port.target, protocol: port.protocol ?? 'TCP' })),
  };
  return [service, { apiVersion: 'v1', kind: 'Endpoints', metadata, subsets: endpoints.length > 0 ? [subset] : [] }];
}

/** An EndpointSlice of a Service; there is one for each family. */
export function sliceObject(
  service: string,
  ports: readonly Omit<PortOptions, 'port'>[],
  endpoints: readonly SliceEndpoint[],
  addressType: 'IPv4' | 'IPv6' = 'IPv4',
) {
  const name = `${service}-${addressType.toLowerCase()}`;
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, namespace: 'test', labels: { 'kubernetes.io/service-name': service } },
    addressType,
    endpoints: endpoints.map(({ address, ...more }) => ({ addresses: [address], ...more })),
    ports: ports.map(({ name, protocol = 'TCP', target }) => ({ name, protocol, port: target })),
  };
}

/** An EndpointSlice of one endpoint, which has a weight. */
export function weightedSliceObject(
  service: string,
  ports: readonly Omit<PortOptions, 'port'>[],
  address: string,
  weight: number,
): object {
  const { metadata, ...object } = sliceObject(service, ports, [{ address }]);
  const annotations = { 'kube-userspace-proxy/weight': String(weight) };
  return { ...object, metadata: { ...metadata, name: `${service}-${address}`, annotations } };
}

/** A directory of manifests that a proxy watches. */
export class Manifests {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
    mkdirSync(directory, { recursive: true });
  }

  /** Replaces the file in one step, as editors and kubelet's volumes do. */
  write(file: string, content: string | readonly object[]): void {
    const path = join(this.directory, file);
    // JSON is YAML; the dot hides the temporary file.
    const text =
      typeof content === 'string' ? content : content.map((object) => JSON.stringify(object)).join('\n---\n');
    writeFileSync(join(this.directory, `.${file}.tmp`), text);
    renameSync(join(this.directory, `.${file}.tmp`), path);
  }

  remove(file: string): void {
    rmSync(join(this.directory, file));
  }

  clear(): void {
    rmSync(this.directory, { recursive: true, force: true });
    mkdirSync(this.directory);
  }
}
