import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileRules } from '../../../src/kubernetes/objects/decoded.ts';
import { encodeObject } from '../../../src/kubernetes/objects/encode.ts';
import { decodeObject, decodeSaved, type Kind } from '../../../src/kubernetes/objects/kubernetes-object.ts';
import { endpoints, service, slice } from './objects.ts';

const FILE: FileRules = { clusterIpFamilies: ['IPv6', 'IPv4'], loopbackEndpoints: true };

/** What is decoded of `object` must be decoded of its encoding, too. */
function comesBack(kind: Kind, object: object, file?: FileRules): void {
  const decoded = decodeObject(object, kind, file);
  assert.ok(decoded.status === 'ok', JSON.stringify(decoded));
  // As in a file.
  const encoded: unknown = JSON.parse(JSON.stringify(encodeObject(decoded.value)));
  assert.deepEqual(decodeSaved(encoded, file), decoded.value);
}

const annotated = (annotations: object) => ({ annotations });
const services: Readonly<Record<string, object>> = {
  'the least': service(),
  'two families, a UID': service({ clusterIPs: ['10.96.0.1', 'fd00::a'] }, { uid: 'abc-1' }),
  'all policies, affinity, a health check': {
    ...service({
      type: 'LoadBalancer',
      externalIPs: ['192.0.2.7', '2001:db8::1'],
      externalTrafficPolicy: 'Local',
      internalTrafficPolicy: 'Local',
      healthCheckNodePort: 32_000,
      sessionAffinity: 'ClientIP',
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 17 } },
      loadBalancerSourceRanges: ['10.0.0.0/8', 'fd00::/8'],
    }),
    status: { loadBalancer: { ingress: [{ ip: '203.0.113.1' }, { ip: '2001:db8::2' }] } },
  },
  'source ranges of which none can be read': service({ loadBalancerSourceRanges: ['nonsense'] }),
  'several ports': service({
    ports: [
      { name: 'a', port: 80, protocol: 'TCP', nodePort: 30_001 },
      { name: 'b', port: 80, protocol: 'UDP', nodePort: 30_001 },
      { name: 'c', port: 90, protocol: 'SCTP' },
    ],
  }),
  'every annotation': service(
    { ports: [{ port: 53, protocol: 'UDP' }] },
    annotated({
      'kube-userspace-proxy/client-address': 'node',
      'kube-userspace-proxy/proxy-protocol': 'v2',
      'kube-userspace-proxy/udp-replay': '1.23s',
      'service.cilium.io/lb-algorithm': 'maglev',
      'kube-userspace-proxy/slow-start': '90s',
      'kube-userspace-proxy/wait-for-endpoints': '10m',
      'kube-userspace-proxy/max-waiting': '65536',
      'kube-userspace-proxy/max-connections': '1048576',
      'kube-userspace-proxy/queue-timeout': '0',
      'kube-userspace-proxy/max-connection-age': '168h',
      'kube-userspace-proxy/drain-timeout': '0',
      'kube-userspace-proxy/udp-timeout': '1.5s',
      'k8s.ovn.org/idled-at': '2026-11-27T12:00:00Z',
    }),
  ),
};
for (const [what, object] of Object.entries(services)) {
  test(`a Service with ${what} comes back`, () => comesBack('Service', object));
}

test('Services of files come back: without a cluster IP, with a target port', () => {
  comesBack('Service', service({ clusterIP: undefined, type: 'ClusterIP' }), FILE);
  comesBack(
    'Service',
    service({ clusterIP: undefined, ipFamilies: ['IPv4'], ipFamilyPolicy: 'PreferDualStack' }),
    FILE,
  );
  comesBack('Service', service({ ports: [{ port: 80, targetPort: 8080 }] }), FILE);
  comesBack('Endpoints', endpoints([{ addresses: [{ ip: '127.0.0.1' }], ports: [{ port: 80 }] }]), FILE);
});

test('slices come back: conditions, places, hints, targets, weights, and those without endpoints', () => {
  comesBack('EndpointSlice', slice());
  comesBack('EndpointSlice', slice({ endpoints: null, ports: null }));
  const hints = { forNodes: [{ name: 'n1.example' }], forZones: [{ name: 'eu-1a' }] };
  const metadata = { name: 'web-x1', namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } };
  comesBack(
    'EndpointSlice',
    slice({
      metadata: { ...metadata, ...annotated({ 'kube-userspace-proxy/weight': '7' }) },
      endpoints: [
        { addresses: ['10.244.0.1'], conditions: { ready: false, serving: true, terminating: true }, hints },
        { addresses: ['10.244.0.2'], nodeName: 'n1', zone: 'eu-1a', targetRef: { kind: 'Pod', name: 'web-1' } },
        { addresses: ['10.244.0.3'], hints: { forZones: [{ name: 'eu-1b' }] } },
      ],
    }),
  );
  comesBack('EndpointSlice', slice({ addressType: 'IPv6', endpoints: [{ addresses: ['fd00::7'] }] }));
});

test('Endpoints come back: subsets, addresses that are not ready, weights', () => {
  comesBack('Endpoints', endpoints(null));
  comesBack(
    'Endpoints',
    endpoints(
      [
        {
          addresses: [{ ip: '10.244.0.1', nodeName: 'n1', targetRef: { kind: 'Pod' } }],
          notReadyAddresses: [{ ip: 'fd00::7' }],
          ports: [{ name: 'http', port: 8080, protocol: 'UDP' }],
        },
        { notReadyAddresses: [{ ip: '10.244.0.2' }], ports: [{ port: 1 }] },
      ],
      annotated({ 'kube-userspace-proxy/weight': '0' }),
    ),
  );
});

test('what is of no use, or no object, is nothing', () => {
  for (const object of [undefined, null, 7, {}, { kind: 'Pod' }, { kind: 'Service', metadata: { name: '../..' } }]) {
    assert.equal(decodeSaved(object), undefined);
  }
});
