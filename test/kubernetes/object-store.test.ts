import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resourceOf } from '../../src/kubernetes/kubernetes-source.ts';
import { ObjectStore } from '../../src/kubernetes/object-store.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { endpoints, service } from './objects.ts';

function createStore() {
  const log = new RecordingLog();
  const store = new ObjectStore(resourceOf('Service'), log, new ManualClock());
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

test('a list takes effect when it is finished, without the objects that were deleted on its way', () => {
  const { store } = createStore();
  const list = store.beginList();
  list.add(service('a'));
  list.add(service('b'));
  list.add(service('a'), { isGone: true });
  assert.deepEqual([...store.keys()], []);
  assert.deepEqual((list.finish() as { key: string }[]).map(({ key }) => key), ['shop/b']); // biome-ignore format: short
});

test('an event gives a change only if a field that is read has changed', () => {
  const { store } = createStore();
  assert.equal(describe(store.change(service('a'))), '+shop/a');
  assert.equal(store.change(service('a', { version: '2' })), undefined);
  assert.equal(describe(store.delete(service('a'))), '-shop/a');
  assert.equal(store.delete(service('a')), undefined);
  store.change(service('a'));
  const headless = service('a');
  headless.spec.clusterIP = 'None';
  assert.equal(describe(store.change(headless)), '-shop/a', 'an object that is no longer to be served');
});

test('an object that cannot be read keeps its last good state until it is deleted; other objects are served', () => {
  const { store, list } = createStore();
  store.change(service('web'));
  assert.equal(store.change(BAD), undefined);
  assert.deepEqual(list(BAD, service('b')), ['+shop/b']);
  assert.deepEqual([...store.keys()].sort(), ['shop/b', 'shop/web']);
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
  // Again after it was valid, or gone.
  for (const [between, lines] of [
    [() => store.change(service('web')), 3],
    [() => store.delete(BAD), 4],
    [() => list(service('other')), 5],
  ] as const) {
    between();
    store.change(BAD);
    assert.equal(log.lines.length, lines);
  }
});

test('what is left out is what is not valid and never was', () => {
  const { store, list } = createStore();
  const leftOut = () => [...store.leftOut()].map(({ key, problem }) => `${key} ${problem.field}`);
  list(BAD, service('b'), {});
  assert.deepEqual(leftOut(), ['shop/web spec.ports[0].port']);
  store.change(service('web'));
  store.change(BAD);
  assert.deepEqual(leftOut(), []);
});

test('objects of another kind or without a usable name are reported and left out; odd names are names', () => {
  const { list, log } = createStore();
  const nameless = [{}, null, 'text', 7, { metadata: { name: '../../etc' } }, { metadata: { name: 'a\nb' } }];
  const good = [service('web'), service('constructor')];
  assert.deepEqual(list(...nameless, ...good), ['+shop/constructor', '+shop/web']);
  assert.ok(log.lines.length >= 1);
  log.lines.length = 0;
  assert.deepEqual(list(endpoints('web'), ...good), []);
  assert.equal(log.of('error').length, 1);
});

test('an empty list counts only when the next one is empty too, or when there was nothing', () => {
  const { list, store } = createStore();
  assert.deepEqual(list(), []);
  list(service('a'), service('b'));
  assert.equal(list(), 'unconfirmed');
  assert.deepEqual(list(service('a'), service('b')), []);
  assert.equal(list(), 'unconfirmed', 'the list in between has ended the doubt');
  assert.equal([...store.keys()].length, 2);
  assert.deepEqual(list(), ['-shop/a', '-shop/b']);
});

test('an object that changes again and again, and is always wrong in another way, has ten lines', () => {
  const { store, log } = createStore();
  for (let i = 0; i < 100; i++) store.change(service('web', { port: `eighty-${i}` }));
  assert.equal(log.lines.length, 10);
  assert.match(log.lines.at(-1)?.message ?? '', /^More lines about Service "[^"]+" are not shown/);
  store.change(service('other', { port: 'eighty' }));
  assert.equal(log.lines.length, 11);
});
