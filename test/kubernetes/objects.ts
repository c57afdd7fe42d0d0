/** A Service as the API server sends it, with more in it than we read. */
export function service(name: string, { version = '1', port = 80 }: { version?: string; port?: unknown } = {}) {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      name,
      namespace: 'shop',
      uid: `uid-${name}`,
      resourceVersion: version,
      managedFields: [{ manager: 'kubectl', fieldsV1: { 'f:spec': {} } }],
    },
    spec: { type: 'ClusterIP', clusterIP: '10.96.0.10', ports: [{ name: 'http', port, targetPort: 8080 }] },
    status: { loadBalancer: {} },
  };
}

export function slice(name: string, { version = '1', ip = '10.244.1.7' }: { version?: string; ip?: string } = {}) {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name,
      namespace: 'shop',
      resourceVersion: version,
      labels: { 'kubernetes.io/service-name': name.split('-')[0] },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: [{ addresses: [ip], conditions: { ready: true } }],
  };
}

export function endpoints(name: string, { version = '1', ip = '10.244.1.7' }: { version?: string; ip?: string } = {}) {
  return {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { name, namespace: 'shop', resourceVersion: version },
    subsets: [{ addresses: [{ ip }], ports: [{ name: 'http', port: 8080 }] }],
  };
}

export function added(object: object) {
  return { type: 'ADDED', object };
}

export function modified(object: object) {
  return { type: 'MODIFIED', object };
}

export function deleted(object: object) {
  return { type: 'DELETED', object };
}

export function bookmark(version: string) {
  return { type: 'BOOKMARK', object: { kind: 'Service', apiVersion: 'v1', metadata: { resourceVersion: version } } };
}

/** A streamed list is complete. */
export function initialEventsEnd(version: string) {
  const metadata = { resourceVersion: version, annotations: { 'k8s.io/initial-events-end': 'true' } };
  return { type: 'BOOKMARK', object: { kind: 'Service', apiVersion: 'v1', metadata } };
}

export function statusObject(code: number, message: string, details: object = {}) {
  return { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Failure', message, code, details };
}

export function errorEvent(code: number, message: string, details: object = {}) {
  return { type: 'ERROR', object: statusObject(code, message, details) };
}

export function listOf(kind: string, items: object[], version: string, next = '') {
  // As servers do: the items do not say what they are.
  const bare = items.map((item) => ({ ...item, kind: undefined, apiVersion: undefined }));
  return { kind: `${kind}List`, apiVersion: 'v1', metadata: { resourceVersion: version, continue: next }, items: bare };
}
