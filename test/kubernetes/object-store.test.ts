import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resourceOf } from '../../src/kubernetes/kubernetes-source.ts';
import { ObjectStore } from '../../src/kubernetes/object-store.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { endpoints, service } from './objects.ts';

function createStore() {
  const log = new RecordingLog();
  const store = new ObjectStore(resourceOf('Service'), log);
  return {
    store,
    log,
    list: (...objects: unknown[]) => {
      const list = store.beginList();
      for (const object of objects) list.add(object);
      const changes = list.finish();
      return changes === 'unconfirmed' ? changes : changes.map(describe).sort();
    },
  };
}

function describe(change: { key: string; value: unknown } | undefined): string | undefined {
  return change && `${change.value === undefined ? '-' : '+'}${change.key}`;
}

const BAD = service('web', { port: 'eighty' });

test('a list gives what is new, different and gone, and nothing else', () => {
  const { list } = createStore();
  assert.deepEqual(list(service('a'), service('b'), service('c')), ['+shop/a', '+shop/b', '+shop/c']);
  assert.deepEqual(list(service('a', { version: '9' }), service('b', { port: 81 }), service('d')), [
    '+shop/b',
    '+shop/d',
    '-shop/c',
  ]);
  assert.deepEqual(list(service('a'), service('b', { port: 81 }), service('d')), []);
});

test('nothing of an unfinished list shows', () => {
  const { store } = createStore();
  store.beginList().add(service('a'));
  assert.deepEqual([...store.keys()], []);
});

test('what was deleted while the list was on its way is not in it', () => {
  const { store } = createStore();
  const list = store.beginList();
  list.add(service('a'));
  list.add(service('b'));
  list.add(service('a'), { isGone: true });
  assert.deepEqual(
    (list.finish() as { key: string }[]).map(({ key }) => key),
    ['shop/b'],
  );
});

test('an event gives a change only if something that we read is different', () => {
  const { store } = createStore();
  assert.equal(describe(store.change(service('a'))), '+shop/a');
  assert.equal(store.change(service('a', { version: '2' })), undefined);
  assert.equal(describe(store.delete(service('a'))), '-shop/a');
  assert.equal(store.delete(service('a')), undefined);
});

test('an object that is no longer for us is taken away', () => {
  const { store } = createStore();
  store.change(service('a'));
  const headless = service('a');
  headless.spec.clusterIP = 'None';
  assert.equal(describe(store.change(headless)), '-shop/a');
});

test('an object that cannot be read keeps its last good state, in events and in lists, and others go on', () => {
  const { store, list } = createStore();
  store.change(service('web'));
  assert.equal(store.change(BAD), undefined);
  assert.deepEqual(list(BAD, service('b')), ['+shop/b']);
  assert.deepEqual([...store.keys()].sort(), ['shop/b', 'shop/web']);
});

test('a broken object can be deleted', () => {
  const { store } = createStore();
  store.change(service('web'));
  assert.equal(describe(store.delete(BAD)), '-shop/web');
});

test('a broken object is reported once, with its field, until something else is wrong with it', () => {
  const { store, list, log } = createStore();
  store.change(BAD);
  store.change(service('web', { port: 'eighty', version: '2' }));
  list(BAD);
  assert.equal(log.lines.length, 1);
  assert.equal(log.lines[0]?.fields['field'], 'spec.ports[0].port');
  assert.match(String(log.lines[0]?.message), /^Service "shop\/web" is not valid/);
  store.change(service('web', { port: -1 }));
  assert.equal(log.lines.length, 2);
});

test('it is reported again after it was fine, or gone, in between', () => {
  const { store, list, log } = createStore();
  store.change(BAD);
  store.change(service('web'));
  store.change(BAD);
  store.delete(BAD);
  store.change(BAD);
  assert.equal(log.lines.length, 3);
  list(service('other'));
  list(BAD);
  assert.equal(log.lines.length, 4);
});

test('objects without a usable name are reported and left out', () => {
  const { list, log } = createStore();
  const nameless = [
    {},
    null,
    'text',
    7,
    { metadata: { name: '../../etc' } },
    { metadata: { name: 'a\nb', namespace: 'c' } },
  ];
  assert.deepEqual(list(...nameless, service('a')), ['+shop/a']);
  assert.ok(log.lines.length >= 1);
});

test('an object of another kind is not taken for one of ours', () => {
  const { store, log } = createStore();
  store.change(service('web'));
  assert.equal(store.change(endpoints('web')), undefined);
  assert.deepEqual([...store.keys()], ['shop/web']);
  assert.equal(log.of('error').length, 1);
});

test('names that mean something to JavaScript are names', () => {
  const { list } = createStore();
  assert.deepEqual(list(service('constructor'), service('tostring')), ['+shop/constructor', '+shop/tostring']);
});

test('an empty list counts only when a second one is empty too', () => {
  const { list, store } = createStore();
  list(service('a'), service('b'));
  assert.equal(list(), 'unconfirmed');
  assert.deepEqual([...store.keys()].length, 2);
  assert.deepEqual(list(), ['-shop/a', '-shop/b']);
});

test('a doubted list that was a mistake leaves no trace: the next empty one is doubted again', () => {
  const { list } = createStore();
  list(service('a'));
  assert.equal(list(), 'unconfirmed');
  assert.deepEqual(list(service('a')), []);
  assert.equal(list(), 'unconfirmed');
});

test('an empty list is nothing special while there is nothing', () => {
  const { list, store } = createStore();
  assert.deepEqual(list(), []);
  store.change(service('a'));
  assert.equal(list(), 'unconfirmed');
});
