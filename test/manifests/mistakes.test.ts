import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Kind } from '../../src/kubernetes/objects/kubernetes-object.ts';
import { mistakenKind, partsWithoutEffect } from '../../src/manifests/mistakes.ts';
import { FieldError } from '../../src/util/untrusted.ts';

const kind = (name: unknown, apiVersion?: unknown) => {
  const mistake = mistakenKind({ kind: name, apiVersion, metadata: { name: 'a' } });
  return mistake && new FieldError(mistake.problem).message;
};

const parts = (spec: unknown) =>
  partsWithoutEffect({ spec }, 'Service').map((problem) => new FieldError(problem).message);

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

test('fields below spec, and of endpoints, are looked at, too', () => {
  const fields = (kind: Kind, object: unknown) =>
    partsWithoutEffect(object, kind).map((problem) => new FieldError(problem).message);
  assert.deepEqual(
    fields('Service', {
      specs: {},
      spec: { ports: [{ port: 1 }, { nodeport: 1 }], sessionAffinityConfig: { clientIP: { timeoutSecond: 1 } } },
    }),
    [
      'specs is not a field of a Service; did you mean spec?',
      'spec.ports[1].nodeport is not a field of a Service; did you mean nodePort?',
      'spec.sessionAffinityConfig.clientIP.timeoutSecond is not a field of a Service; did you mean timeoutSeconds?',
    ],
  );
  assert.deepEqual(
    fields('Endpoints', {
      subset: [],
      subsets: [
        { adresses: [] },
        { addresses: [{ IP: '10.0.0.1' }], notReadyAddresses: [{ ips: 1 }], ports: [{ p: 1 }] },
      ],
    }),
    [
      'subset is not a field of Endpoints; did you mean subsets?',
      'subsets[0].adresses is not a field of Endpoints; did you mean addresses?',
      'subsets[1].addresses[0].IP is not a field of Endpoints; did you mean ip?',
      'subsets[1].notReadyAddresses[0].ips is not a field of Endpoints; did you mean ip?',
      'subsets[1].ports[0].p is not a field of Endpoints; correct or remove it',
    ],
  );
  assert.deepEqual(
    fields('EndpointSlice', {
      endpoint: [],
      endpoints: [{ conditions: { redy: false }, hints: { forZone: [{ name: 'a' }], forNodes: [{ nam: 'b' }] } }],
      ports: [{ prt: 1 }],
    }),
    [
      'endpoint is not a field of an EndpointSlice; did you mean endpoints?',
      'endpoints[0].conditions.redy is not a field of an EndpointSlice; did you mean ready?',
      'endpoints[0].hints.forZone is not a field of an EndpointSlice; did you mean forZones?',
      'endpoints[0].hints.forNodes[0].nam is not a field of an EndpointSlice; did you mean name?',
      'ports[0].prt is not a field of an EndpointSlice; did you mean port?',
    ],
  );
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
    ports: [{ appProtocol: 'http', name: 'a', port: 80, nodePort: 30_080, protocol: 'TCP', targetPort: 80 }],
    publishNotReadyAddresses: false,
    selector: { app: 'web' },
    sessionAffinity: 'None',
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 1 } },
    trafficDistribution: 'PreferClose',
    type: 'LoadBalancer',
  };
  assert.deepEqual(parts(spec), []);
  const object = { apiVersion: 'v1', kind: 'x', metadata: { managedFields: [] } };
  const ports = [{ appProtocol: 'http', name: 'a', port: 1, protocol: 'TCP' }];
  const address = { hostname: 'a', ip: '10.0.0.1', nodeName: 'n', targetRef: { kind: 'Pod' } };
  const whole = { ...object, spec, status: { loadBalancer: {}, conditions: [] } };
  const endpoints = { ...object, subsets: [{ addresses: [address], notReadyAddresses: [address], ports }] };
  const endpoint = {
    addresses: ['10.0.0.1'],
    conditions: { ready: true, serving: true, terminating: false },
    deprecatedTopology: { a: 'b' },
    hints: { forNodes: [{ name: 'n' }], forZones: [{ name: 'z' }] },
    hostname: 'a',
    nodeName: 'n',
    targetRef: {},
    zone: 'z',
  };
  const slice = { ...object, addressType: 'IPv4', endpoints: [endpoint], ports };
  assert.deepEqual(partsWithoutEffect(whole, 'Service'), []);
  assert.deepEqual(partsWithoutEffect(endpoints, 'Endpoints'), []);
  assert.deepEqual(partsWithoutEffect(slice, 'EndpointSlice'), []);
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
  assert.deepEqual(partsWithoutEffect(null, 'Service'), []);
  const many = parts({
    ...Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`x${i}`, 1])),
    ports: [{ nodePort: 1 }],
  });
  assert.equal(many.length, 8);
  const [long] = parts({ ['y'.repeat(1_000_000)]: 1 });
  assert.ok(long && long.length < 200, long);
});
