import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mistakenKind, partsWithoutEffect } from '../../src/manifests/mistakes.ts';

const kind = (name: unknown, apiVersion?: unknown) => {
  const mistake = mistakenKind({ kind: name, apiVersion, metadata: { name: 'a' } });
  return mistake && `${mistake.problem.field} ${mistake.problem.problem}`;
};

const parts = (spec: unknown) => partsWithoutEffect({ spec }).map(({ field, problem }) => `${field} ${problem}`);

test('a kind that is nearly ours was meant to be ours', () => {
  assert.equal(kind('Endpoint', 'v1'), 'kind is "Endpoint"; did you mean Endpoints?');
  assert.equal(kind('Endpoint'), 'kind is "Endpoint"; did you mean Endpoints?');
  assert.equal(kind('service', 'v1'), 'kind is "service"; did you mean Service?');
  assert.equal(kind('EndpointSlices', 'discovery.k8s.io/v1'), 'kind is "EndpointSlices"; did you mean EndpointSlice?');
});

test('what was meant is the same object without the mistake', () => {
  assert.deepEqual(mistakenKind({ kind: 'Endpoint', metadata: { name: 'a' } })?.meant, {
    kind: 'Endpoints',
    apiVersion: 'v1',
    metadata: { name: 'a' },
  });
});

test('our kind with the apiVersion of another of our kinds is a mistake', () => {
  assert.equal(kind('EndpointSlice', 'v1'), 'apiVersion is "v1"; write discovery.k8s.io/v1 for kind EndpointSlice');
  assert.equal(
    kind('Endpoints', 'discovery.k8s.io/v1'),
    'apiVersion is "discovery.k8s.io/v1"; write v1 for kind Endpoints',
  );
});

test('objects of other kinds and of other groups are none of our business', () => {
  // biome-ignore format: a table
  const core = [
    'Pod', 'Node', 'Namespace', 'ConfigMap', 'Secret', 'Event', 'ServiceAccount', 'ReplicationController', 'List',
    'LimitRange', 'PersistentVolume', 'PersistentVolumeClaim', 'PodTemplate', 'ResourceQuota', 'Binding',
  ];
  for (const name of core) assert.equal(kind(name, 'v1'), undefined, name);
  assert.equal(kind('Service', 'serving.knative.dev/v1'), undefined);
  assert.equal(kind('Endpoint', 'example.org/v1'), undefined);
  for (const odd of [1, null, {}, 'S'.repeat(100_000)]) assert.equal(kind(odd, 'v1'), undefined);
  assert.equal(kind('Endpoint', {}), undefined);
  for (const odd of [undefined, null, 1, 'Endpoint', ['Endpoint']]) assert.equal(mistakenKind(odd), undefined);
});

test('a field that no Service has is named with the one that was meant', () => {
  assert.deepEqual(parts({ sessionAffinty: 'ClientIP', clusterIp: '10.0.0.1', colour: 'red', type: 'NodePort' }), [
    'spec.sessionAffinty is not a field of a Service; did you mean sessionAffinity?',
    'spec.clusterIp is not a field of a Service; did you mean clusterIP?',
    'spec.colour is not a field of a Service; correct or remove it',
  ]);
});

test('every field that an API server may write is known', () => {
  const spec = {
    allocateLoadBalancerNodePorts: true,
    clusterIP: '10.96.0.1',
    clusterIPs: ['10.96.0.1'],
    externalIPs: [],
    externalName: '',
    externalTrafficPolicy: 'Local',
    healthCheckNodePort: 30_000,
    internalTrafficPolicy: 'Cluster',
    ipFamilies: ['IPv4'],
    ipFamilyPolicy: 'SingleStack',
    loadBalancerClass: 'a/b',
    loadBalancerIP: '',
    loadBalancerSourceRanges: [],
    ports: [{ port: 80, nodePort: 30_080 }],
    publishNotReadyAddresses: false,
    selector: { app: 'web' },
    sessionAffinity: 'None',
    sessionAffinityConfig: {},
    trafficDistribution: 'PreferClose',
    type: 'LoadBalancer',
  };
  assert.deepEqual(parts(spec), []);
});

test('a nodePort needs a type that has one', () => {
  const ports = [{ port: 80 }, { port: 81, nodePort: 30_081 }, { port: 82, nodePort: 0 }];
  const says = [
    'spec.ports[1].nodePort is 30081, but a Service of type ClusterIP has none; write type: NodePort, or remove it',
  ];
  assert.deepEqual(parts({ ports }), says);
  assert.deepEqual(parts({ ports, type: 'ClusterIP' }), says);
  for (const type of ['NodePort', 'LoadBalancer']) assert.deepEqual(parts({ ports, type }), []);
});

test('whatever is in a Service, a few short sentences come out', () => {
  for (const odd of [undefined, null, 1, 'x', [], [1], { ports: 1 }, { ports: [1, null, [], 'x'] }]) parts(odd);
  assert.deepEqual(partsWithoutEffect(null), []);
  const many = parts({
    ...Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`x${i}`, 1])),
    ports: [{ nodePort: 1 }],
  });
  assert.equal(many.length, 8);
  const [long] = parts({ ['y'.repeat(1_000_000)]: 1 });
  assert.ok(long && long.length < 200, long);
});
