import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import { ApiHealth } from '../../src/kubernetes/api-health.ts';
import { resourceOf } from '../../src/kubernetes/kubernetes-source.ts';
import type { KubernetesObject } from '../../src/kubernetes/objects/kubernetes-object.ts';
import { Reflector } from '../../src/kubernetes/reflector.ts';
import { type FakeStream, FakeTransport } from '../fakes/fake-transport.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { settle } from '../support/until.ts';
import { added, bookmark, deleted, errorEvent, initialEventsEnd, listOf, modified, service } from './objects.ts';

function reflect(kind: 'Service' | 'EndpointSlice' = 'Service') {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const transport = new FakeTransport(clock);
  const health = new ApiHealth({ server: () => 'api:6443', lastContactAt: () => undefined, clock, log });
  /** One entry per call of the sink. */
  const told: string[] = [];
  const controller = new AbortController();
  const resourceHealth = health.resource(kind);
  const reflector = new Reflector<KubernetesObject>({
    resource: resourceOf(kind),
    transport,
    clock,
    random: () => 0,
    log,
    sink: {
      ...resourceHealth,
      changed: (changes) =>
        told.push(changes.map(({ key, value }) => `${value === undefined ? '-' : '+'}${key.split('/')[1]}`).join(' ')),
      listed: () => told.push('listed'),
      absent: () => {
        told.push('absent');
        resourceHealth.dismissed();
      },
    },
  });
  const run = reflector.run(controller.signal);
  /** Lets time pass step by step, as real time would. */
  const pass = async (ms: number) => {
    await settle();
    for (let left = ms; left > 0; left -= 1_000) {
      clock.advance(Math.min(1_000, left));
      await settle(4);
    }
    await settle();
  };
  const stop = async () => {
    controller.abort(new Error('stopped'));
    await run;
  };
  /** A streamed list of these, up to its end. */
  const streamList = async (...names: string[]): Promise<FakeStream> => {
    const stream = (await transport.call('watch')).open();
    stream.send(...names.map((name) => added(service(name))), initialEventsEnd('10'));
    await settle();
    return stream;
  };
  return { clock, log, transport, health, told, pass, stop, streamList };
}

test('it asks for a streamed list, which takes effect at its end; changes follow on the same connection', async () => {
  const { transport, told, stop, health } = reflect();
  const call = await transport.call('watch');
  assert.equal(call.path.split('?')[0], '/api/v1/services');
  assert.deepEqual(call.query, {
    watch: '1',
    allowWatchBookmarks: 'true',
    sendInitialEvents: 'true',
    resourceVersionMatch: 'NotOlderThan',
    labelSelector: '!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name',
  });
  const stream = call.open();
  stream.send(added(service('a')));
  stream.send(added(service('b')), deleted(service('a')), added(service('c')));
  await settle();
  assert.deepEqual([told, health.status().connected], [[], false]);
  stream.send(initialEventsEnd('10'));
  await settle();
  assert.deepEqual([told, health.status().connected], [['+b +c', 'listed'], true]);
  // The changes of one chunk come together.
  stream.send(modified(service('b', { port: 81 })), added(service('d')), bookmark('11'));
  await settle();
  stream.send(deleted(service('b')));
  await settle();
  assert.deepEqual(told.slice(2), ['+b +d', '-b']);
  await stop();
});

test('between two chunks other work gets a turn', async () => {
  const { transport, told, stop } = reflect();
  const stream = (await transport.call('watch')).open();
  stream.send(initialEventsEnd('10'));
  for (const name of ['a', 'b', 'c']) stream.send(added(service(name)));
  for (let turn = 0; turn < 3; turn += 1) {
    const before = told.length;
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(told.length <= before + 1);
  }
  await settle();
  assert.deepEqual(told, ['listed', '+a', '+b', '+c']);
  await stop();
});

test('a watch goes on from the last version, bookmarks included, for 5 to 10 minutes', async () => {
  const { transport, streamList, pass, stop } = reflect();
  const stream = await streamList('a');
  stream.send(modified(service('a', { version: '12' })), bookmark('17'));
  await pass(20_000);
  stream.end();
  const { query } = await transport.call('watch');
  assert.deepEqual(
    [query['resourceVersion'], query['timeoutSeconds'], query['sendInitialEvents'], query['allowWatchBookmarks']],
    ['17', '300', undefined, 'true'],
  );
  await stop();
});

test('pages that expire are replaced by one whole list', async () => {
  const { transport, told, stop } = reflect();
  (await transport.call('watch')).fail(new ApiError('status', 'HTTP 400', { status: 400 }));
  (await transport.call('get')).answer(listOf('Service', [service('a')], '20', 'more'));
  (await transport.call('get')).fail(new ApiError('status', 'HTTP 410', { status: 410 }));
  const whole = await transport.call('get');
  assert.deepEqual([whole.query['limit'], whole.query['continue']], [undefined, undefined]);
  whole.answer(listOf('Service', [service('b')], '30'));
  await transport.call('watch');
  assert.deepEqual(told, ['+b', 'listed']);
  await stop();
});

test('pages without end are given up', async () => {
  const { transport, told, stop } = reflect();
  (await transport.call('watch')).fail(new ApiError('status', 'HTTP 400', { status: 400 }));
  for (let page = 0; page < 2_000; page += 1) {
    (await transport.call('get')).answer(listOf('Service', [], '20', 'more'));
  }
  await transport.assertIdle();
  assert.deepEqual(told, []);
  await stop();
});

test('after 410 Gone it lists again and reports only the differences', async () => {
  const { transport, streamList, told, pass, stop, log } = reflect();
  const stream = await streamList('a', 'b', 'c');
  await pass(20_000);
  stream.send(errorEvent(410, 'too old resource version'));
  await pass(800);
  const again = (await transport.call('watch')).open();
  again.send(added(service('a', { version: '40' })), added(service('b', { port: 81 })), added(service('d')));
  again.send(initialEventsEnd('50'));
  await settle();
  assert.deepEqual(told.slice(2), ['-c +b +d', 'listed']);
  // Old versions are no trouble with the server.
  assert.deepEqual(log.of('warn'), []);
  await stop();
});

test('what came before a line that cannot be read has taken effect', async () => {
  const { streamList, told, stop } = reflect();
  const stream = await streamList('a');
  stream.send(added(service('b')), 'this is no JSON', added(service('c')));
  await settle();
  assert.deepEqual(told.slice(2), ['+b']);
  await stop();
});

test('a streamed list may take as long as it likes, while objects come', async () => {
  const { transport, told, pass, stop, health } = reflect();
  const stream = (await transport.call('watch')).open();
  for (let n = 0; n < 10; n += 1) {
    await pass(59_000);
    stream.send(added(service(`s${n}`)));
  }
  stream.send(initialEventsEnd('10'));
  await settle();
  assert.deepEqual(told, ['+s0 +s1 +s2 +s3 +s4 +s5 +s6 +s7 +s8 +s9', 'listed']);
  assert.equal(health.status().connected, true);
  await transport.assertIdle();
  await stop();
});

for (const [how, breakOff] of [
  ['is silent for a minute', async (_, pass) => pass(60_000)],
  ['ends early', async (stream) => stream.end()],
  ['breaks off', async (stream) => stream.fail(new ApiError('unreachable', 'read ECONNRESET'))],
  ['turns out to be a plain watch', async (stream) => stream.send(bookmark('11'))],
] as readonly [string, (stream: FakeStream, pass: (ms: number) => Promise<void>) => Promise<void>][]) {
  test(`a streamed list that ${how} is replaced by pages, and these by another one when they fail`, async () => {
    const { transport, told, pass, stop } = reflect();
    const stream = (await transport.call('watch')).open();
    stream.send(added(service('b')));
    await settle();
    await breakOff(stream, pass);
    await pass(800);
    (await transport.call('get')).fail(new ApiError('incomplete', 'no more of the answer came for 60 s'));
    await pass(1_600);
    assert.equal((await transport.call('watch')).query['sendInitialEvents'], 'true');
    assert.deepEqual(told, []);
    await stop();
  });
}

test('a broken connection is replaced from the last version on, however often that fails', async () => {
  const { transport, streamList, pass, health, stop } = reflect();
  (await streamList('a')).fail(new ApiError('unreachable', 'read ECONNRESET'));
  await settle();
  assert.equal(health.status().connected, false);
  for (const waitMs of [800, 1_600, 3_200, 6_400, 12_800, 15_000]) {
    await pass(waitMs - 1);
    await transport.assertIdle();
    await pass(1);
    const call = await transport.call('watch');
    assert.deepEqual([call.query['resourceVersion'], call.query['sendInitialEvents']], ['10', undefined]);
    call.fail(new ApiError('unreachable', 'connect ECONNREFUSED'));
  }
  await stop();
});

for (const [how, close] of [
  ['ends', (stream: FakeStream) => stream.end()],
  ['breaks', (stream: FakeStream) => stream.fail(new ApiError('unreachable', 'read ECONNRESET'))],
] as const) {
  test(`a watch that ${how} after a second, or after a change, is followed by the next at once, without a line`, async () => {
    const { transport, streamList, told, pass, health, log, stop } = reflect();
    let stream = await streamList('a');
    for (let n = 0; n < 20; n += 1) {
      if (n % 2 === 0) await pass(1_000);
      else stream.send(modified(service('a', { port: 80 + n, version: `${20 + n}` })));
      await settle();
      close(stream);
      stream = (await transport.call('watch')).open();
      await settle();
    }
    assert.equal(told.length, 12);
    assert.equal(health.status().connected, true);
    assert.deepEqual([log.of('warn'), log.of('error')], [[], []]);
    await stop();
  });
}

test('watches that end at once are taken up ever more slowly; the second one is logged, and when they last again', async () => {
  const { transport, streamList, pass, log, stop } = reflect();
  (await streamList('a')).end();
  for (const waitMs of [800, 1_600, 3_200, 6_400, 12_800, 15_000]) {
    await pass(waitMs - 1);
    await transport.assertIdle();
    await pass(1);
    const stream = (await transport.call('watch')).open();
    stream.send(bookmark('11'), modified(service('a')));
    await settle();
    stream.end();
  }
  const [fault, ...more] = log.of('error');
  assert.match(String(fault?.message), /ends each watch at once/);
  assert.deepEqual(fault?.fields, { resource: '/api/v1/services', err: 'it ended within 1 s without a change' });
  assert.deepEqual(more, []);
  await pass(15_000);
  const stream = (await transport.call('watch')).open();
  await pass(1_000);
  assert.doesNotMatch(String(log.of('info').at(-1)?.message), /last again/);
  stream.send(bookmark('12'));
  await settle();
  assert.match(String(log.of('info').at(-1)?.message), /^Watches of the API server last again$/);
  await stop();
});

test('a silent watch is dropped when the server does not answer a probe, within 45 s', async () => {
  const { transport, streamList, pass, health, stop } = reflect();
  await streamList('a');
  transport.onProbe = () => Promise.reject(new ApiError('unreachable', 'no answer to a probe within 10 s'));
  await pass(25_000);
  assert.deepEqual([health.status().connected, health.status().staleForMs], [false, 25_000]);
  await pass(800);
  assert.equal((await transport.call('watch')).query['resourceVersion'], '10');
  await stop();
});

test('a silent watch of a server that answers stays for 150 s; then another takes its place', async () => {
  const { transport, streamList, pass, health, stop } = reflect();
  await streamList('a');
  await pass(149_000);
  await transport.assertIdle();
  await pass(1_000);
  assert.equal((await transport.call('watch')).query['resourceVersion'], '10');
  assert.equal(health.status().connected, true);
  await stop();
});

test('bytes on any other connection show, too, that the server is there', async () => {
  const { transport, streamList, clock, pass, stop } = reflect();
  await streamList('a');
  await pass(20_000);
  transport.lastContactAt = clock.now();
  await pass(24_999);
  assert.equal(transport.probes, 0);
  await pass(1);
  assert.equal(transport.probes, 1);
  await stop();
});

test('a resource that an old server lacks is asked for again, and does not count as lost', async () => {
  const { transport, told, pass, health, stop } = reflect('EndpointSlice');
  (await transport.call('watch')).fail(new ApiError('status', 'HTTP 404', { status: 404 }));
  await settle();
  assert.deepEqual(told, ['absent']);
  assert.equal(health.status().connected, true);
  await pass(299_000);
  await transport.assertIdle();
  await pass(1_000);
  await transport.call('watch');
  await stop();
});

test('a resource that was there once is not believed to be gone', async () => {
  const { transport, streamList, told, pass, stop } = reflect('EndpointSlice');
  (await streamList()).fail(new ApiError('unreachable', 'read ECONNRESET'));
  await pass(800);
  (await transport.call('watch')).fail(new ApiError('status', 'HTTP 404', { status: 404 }));
  await pass(800);
  await transport.call('watch');
  assert.deepEqual(told, ['listed']);
  await stop();
});

test('a defect of ours does not end the loop', async () => {
  const { transport, told, pass, stop, log } = reflect();
  (await transport.call('watch')).fail(new TypeError('x is not a function'));
  await settle();
  assert.match(String(log.of('error')[0]?.fields['err']), /x is not a function/);
  await pass(800);
  (await transport.call('watch')).open().send(initialEventsEnd('1'));
  await settle();
  assert.deepEqual(told, ['listed']);
  await stop();
});

test('stopping ends it wherever it is, and leaves no timer', async () => {
  const waiting = reflect();
  (await waiting.transport.call('watch')).fail(new ApiError('unreachable', 'connect ECONNREFUSED'));
  await settle();
  await waiting.stop();
  const connecting = reflect();
  await connecting.transport.call('watch');
  await connecting.stop();
  const following = reflect();
  await following.streamList('a');
  await following.stop();
  for (const { clock, health } of [waiting, connecting, following]) {
    health.stop();
    assert.equal(clock.pendingTimers, 0);
  }
});

test('objects are not kept in their raw form', async () => {
  const { transport, told, stop } = reflect();
  const stream = (await transport.call('watch')).open();
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const heapAfterGc = () => {
    collectGarbage();
    return process.memoryUsage().heapUsed;
  };
  const before = heapAfterGc();
  // 10,000 objects of 20 kB each would be 200 MB.
  const ballast = 'x'.repeat(20_000);
  for (let n = 0; n < 10_000; n += 50) {
    const objects = Array.from({ length: 50 }, (_, k) => {
      const object = service(`s${n + k}`);
      return added({ ...object, metadata: { ...object.metadata, annotations: { ballast: `${ballast}${n + k}` } } });
    });
    stream.send(...objects);
    await settle(4);
  }
  stream.send(initialEventsEnd('10'));
  await settle();
  assert.equal(told.length, 2);
  assert.ok(heapAfterGc() - before < 60e6, `${(heapAfterGc() - before) / 1e6} MB`);
  await stop();
});
