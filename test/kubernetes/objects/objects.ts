import assert from 'node:assert/strict';
import { type Decoded, decoding, type FileRules } from '../../../src/kubernetes/objects/decoded.ts';
import * as decoders from '../../../src/kubernetes/objects/endpoints.ts';
import * as services from '../../../src/kubernetes/objects/service.ts';
import { foundText } from '../../../src/util/found.ts';
import { Field, type Problem } from '../../../src/util/untrusted.ts';

type Json = Record<string, unknown>;

/** A valid NodePort Service, with `spec` on top. */
export function service(spec: Json = {}, metadata: Json = {}): Json {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', namespace: 'shop', ...metadata },
    spec: {
      type: 'NodePort',
      clusterIP: '10.96.0.1',
      ports: [{ name: 'http', port: 80, targetPort: 8080, nodePort: 30080 }],
      ...spec,
    },
  };
}

export function endpoints(subsets: unknown, metadata: Json = {}): Json {
  return { apiVersion: 'v1', kind: 'Endpoints', metadata: { name: 'web', namespace: 'shop', ...metadata }, subsets };
}

/** A valid slice of the Service `shop/web`, with `rest` on top. */
export function slice(rest: Json = {}, labels: Json = { 'kubernetes.io/service-name': 'web' }): Json {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 'web-x1', namespace: 'shop', labels },
    addressType: 'IPv4',
    endpoints: [{ addresses: ['10.244.0.1'] }],
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    ...rest,
  };
}

export function okValue<T>(decoded: Decoded<T>): T {
  if (decoded.status !== 'ok') assert.fail(`expected a value, got ${JSON.stringify(decoded)}`);
  return decoded.value;
}

export function warningsOf(decoded: Decoded<unknown>): readonly Problem[] {
  if (decoded.status !== 'ok') assert.fail(`expected a value, got ${JSON.stringify(decoded)}`);
  return decoded.warnings;
}

/** `field problem` of an invalid object. */
export function problemOf(decoded: Decoded<unknown>): string {
  if (decoded.status !== 'invalid') assert.fail(`expected a problem, got ${JSON.stringify(decoded)}`);
  return `${decoded.problem.field} ${foundText(decoded.problem)}`;
}

export const decodeService = (object: unknown, file?: FileRules) =>
  decoding((w) => services.decodeService(Field.root(object), w, file));
export const decodeEndpoints = (object: unknown, file?: FileRules) =>
  decoding((w) => decoders.decodeEndpoints(Field.root(object), w, file));
export const decodeEndpointSlice = (object: unknown, file?: FileRules) =>
  decoding((w) => decoders.decodeEndpointSlice(Field.root(object), w, file));
