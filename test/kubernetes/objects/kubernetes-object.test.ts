import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeObject, type Kind, objectIdentity } from '../../../src/kubernetes/objects/kubernetes-object.ts';
import { FieldError } from '../../../src/util/untrusted.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { endpoints, okValue, problemOf, service, slice } from './objects.ts';

test('an object is known by kind, group and name, however broken the rest is', () => {
  const known = (kind: Kind, key: string) => ({ kind, key });
  assert.deepEqual(objectIdentity({ ...service(), spec: 'x' }), known('Service', 'shop/web'));
  assert.deepEqual(objectIdentity(endpoints('x')), known('Endpoints', 'shop/web'));
  assert.deepEqual(objectIdentity(slice({ addressType: 5 })), known('EndpointSlice', 'shop/web-x1'));
  assert.deepEqual(objectIdentity({ kind: 'Service', metadata: { name: 'a' } }), known('Service', 'default/a'));
});

test('other kinds, and the same kinds of other APIs, are foreign', () => {
  assert.deepEqual(objectIdentity({ apiVersion: 'apps/v1', kind: 'Deployment' }), undefined);
  assert.deepEqual(objectIdentity({ kind: 'constructor' }), undefined);
  assert.deepEqual(objectIdentity({ ...service(), apiVersion: 'serving.knative.dev/v1' }), undefined);
});

test('without kind or valid name it cannot be identified', () => {
  for (const [object, field] of [
    [{}, 'kind'],
    [{ kind: 5 }, 'kind'],
    ['text', ''],
    [[], ''],
    [undefined, 'kind'],
    [service({}, { name: 'a\nb' }), 'metadata.name'],
    [service({}, { namespace: 5 }), 'metadata.namespace'],
    [{ ...service(), apiVersion: 5 }, 'apiVersion'],
  ] as const) {
    assert.throws(
      () => objectIdentity(object),
      (error) => error instanceof FieldError && error.problem.field === field,
    );
  }
});

test('a kind that is not given may be assumed', () => {
  const { kind: _, apiVersion: __, ...item } = service();
  assert.deepEqual(objectIdentity(item, 'Service'), { kind: 'Service', key: 'shop/web' });
  assert.equal(okValue(decodeObject(item, 'Service')).kind, 'Service');
});

test('another version of the API is invalid rather than guessed at', () => {
  const object = { ...slice(), apiVersion: 'discovery.k8s.io/v1beta1' };
  assert.equal(objectIdentity(object)?.kind, 'EndpointSlice');
  assert.equal(
    problemOf(decodeObject(object, 'EndpointSlice')),
    'apiVersion is "discovery.k8s.io/v1beta1"; expected discovery.k8s.io/v1',
  );
});

test('decoding carries the kind to the value', () => {
  const decoded = okValue(decodeObject(endpoints([]), 'Endpoints'));
  assert.deepEqual(decoded, { kind: 'Endpoints', key: 'shop/web', value: { key: 'shop/web', groups: [] } });
});

test('whatever is put in place of any part of an object, decoding answers and what it yields is clean', () => {
  const random = seededRandom(20260807);
  const below = (n: number) => Math.floor(random() * n);
  const hostile = [
    null, undefined, true, 0, -1, 1e308, Number.NaN, 10n ** 300n, '', 'a\nb', '\u0000', 'constructor', '__proto__', [], {},
    [null], [[]], 'x'.repeat(1e4), JSON.parse('{"__proto__": {"name": "x"}}'), () => 1, Symbol('s'), new Date(0),
  ]; // biome-ignore format: a table
  const status = { loadBalancer: { ingress: [{ ip: '203.0.113.1', ipMode: 'VIP' }] } };
  const spec = {
    ...{ type: 'LoadBalancer', clusterIPs: ['10.96.0.1', 'fd00::1'], externalIPs: ['192.0.2.1'] },
    ...{ sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 5 } } },
    ...{ internalTrafficPolicy: 'Local', externalTrafficPolicy: 'Local', healthCheckNodePort: 32_000 },
    loadBalancerSourceRanges: ['192.0.2.0/24'],
  };
  const subset = { addresses: [{ ip: '10.0.0.1' }], notReadyAddresses: [{ ip: '10.0.0.2' }], ports: [{ port: 80 }] };
  const hints = { forNodes: [{ name: 'a' }], forZones: [{ name: 'b' }] };
  const endpoint = { addresses: ['10.0.0.1'], conditions: { ready: true }, nodeName: 'a', zone: 'b', hints };
  const templates: [Kind, unknown][] = [
    ['Service', { ...service(), status }],
    ['Service', { ...service(spec), status }],
    ['Endpoints', endpoints([subset])],
    ['EndpointSlice', slice({ endpoints: [endpoint] })],
  ];
  const outcomes = { ok: 0, skipped: 0, invalid: 0 };
  for (let round = 0; round < 10_000; round += 1) {
    const [kind, template] = templates[below(templates.length)] ?? assert.fail();
    const object = structuredClone(template);
    for (let count = 1 + below(2); count > 0; count -= 1) mutate(object, hostile[below(hostile.length)], below);
    const decoded = decodeObject(object, kind);
    try {
      objectIdentity(object);
    } catch (error) {
      assert.ok(error instanceof FieldError);
    }
    outcomes[decoded.status] += 1;
    if (decoded.status !== 'ok') continue;
    const text = JSON.stringify(decoded.value);
    assert.doesNotMatch(text, /[^\w."{}[\]:,/-]/, 'only what rules and logs can carry');
  }
  assert.ok(outcomes.ok > 50 && outcomes.invalid > 50, JSON.stringify(outcomes));
});

/** Replaces a random part of `object`. */
function mutate(object: unknown, replacement: unknown, below: (n: number) => number): void {
  let at = object as Record<string, unknown>;
  for (;;) {
    const keys = Object.keys(at);
    const key = keys[below(keys.length)];
    if (key === undefined) return;
    const next = at[key];
    if (typeof next !== 'object' || next === null || below(4) === 0) {
      at[key] = replacement;
      return;
    }
    at = next as Record<string, unknown>;
  }
}
