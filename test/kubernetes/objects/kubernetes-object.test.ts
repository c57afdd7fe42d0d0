import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeObject, type Kind, objectIdentity } from '../../../src/kubernetes/objects/kubernetes-object.ts';
import { FieldError } from '../../../src/util/untrusted.ts';
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
