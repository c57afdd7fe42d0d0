import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import type { Clock } from '../../../src/util/clock.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { waitFor } from '../../netns/wait.ts';
import { ask, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { fastRig, faultyRig, openDescriptors, openPort } from './rig.ts';

/** Time runs four times as fast for the supervision of the workers. */
const hurried: Clock = {
  ...systemClock,
  after: (ms, callback) => systemClock.after(ms / 4, callback),
};

/** As much as a worker needs to start, and not much more: the default is gigabytes. */
const SMALL_HEAP_MB = 64;

for (const [what, order, told] of [
  ['throws', 'throw', /ordered to throw/],
  ['is out of memory', 'hoard', /ERR_WORKER_OUT_OF_MEMORY/],
] as const) {
  test(`a worker that ${what} loses only its own connections, and its successor serves its ports`, async (t) => {
    // Of workers that start from now on.
    if (order === 'hoard') setFlagsFromString(`--max-old-space-size=${SMALL_HEAP_MB}`);
    const rig = await faultyRig(t, { workers: 2 });
    const backend = await TcpBackend.echo(t);
    const first = await openPort(rig, 'a/first', [backend.endpoint]);
    const second = await openPort(rig, 'a/second', [backend.endpoint]);
    const clients = [await connectTcp(first), await connectTcp(second)];
    for (const client of clients) client.send('before ');
    await waitFor('both to be served', () => clients.every(({ text }) => text === 'before '));
    const descriptors = openDescriptors();

    rig.order(order);
    const [lost, kept] = clients;
    assert.equal(await lost?.finished(), 'ECONNRESET', 'not a clean end');
    await waitFor('the error', () => rig.log.of('error').length > 0);
    assert.match(String(rig.log.of('error')[0]?.fields['err']), told);
    kept?.send('after');
    await waitFor('the other one to go on', () => kept?.text === 'before after');

    assert.equal(await exchange(first, 'again'), 'again');
    assert.equal(await exchange(second, 'again'), 'again');
    const { counters, endpoints, localPort } = rig.stats('a/first');
    assert.deepEqual([localPort, counters.connections, counters.receivedBytes], [first, 2, 12]);
    await waitFor('the new one to be over', () => rig.stats('a/first').counters.active === 0);
    assert.equal(endpoints?.[0]?.counters.connections, 2);
    assert.equal(rig.stats('a/second').counters.active, 1);
    lost?.end();
    // The lost connection had two descriptors and both of its peers one each.
    await waitFor('no descriptor to be left behind', () => openDescriptors() <= descriptors - 4);
  });
}

test('a worker is started again later when the system gives no thread', async (t) => {
  const rig = await faultyRig(t);
  const port = await openPort(rig, 'a/b', [(await TcpBackend.named(t, 'here')).endpoint]);
  // A file on another machine: `new Worker` throws, as it does where there can be no more threads.
  rig.entry.host = 'elsewhere';
  rig.order('throw');
  const failed = () => rig.log.of('error').filter(({ message }) => message.endsWith('cannot be started'));
  await waitFor('two tries', () => failed().length >= 2);
  rig.entry.host = '';
  assert.equal(await ask(port), 'here');
});

test('a successor knows all changes, and serves the clients that connected meanwhile', async (t) => {
  const rig = await faultyRig(t);
  const [old, young] = [await TcpBackend.named(t, 'old'), await TcpBackend.named(t, 'young')];
  const port = await openPort(rig, 'a/changes', [old.endpoint]);
  await openPort(rig, 'a/goes', [old.endpoint]);
  rig.order('throw');
  await waitFor('the worker to be gone', () => rig.log.of('error').length === 2);
  rig.plane.update('a/changes', { endpoints: [young.endpoint], affinity: { type: 'None' } });
  await rig.plane.close('a/goes');
  const late = await openPort(rig, 'a/comes', [young.endpoint]);
  assert.equal(await ask(port), 'young');
  assert.equal(await ask(late), 'young');
  assert.deepEqual([...rig.plane.stats()].map(({ name }) => name).toSorted(), ['a/changes', 'a/comes']);
});

test('the next datagram restarts a UDP flow of a worker that throws', async (t) => {
  const rig = await faultyRig(t);
  const port = await openPort(rig, 'a/udp', [(await UdpBackend.echo(t)).endpoint], 'UDP');
  const client = await UdpClient.connect(t, port);
  assert.equal(await client.ask('one'), 'one');
  const descriptors = openDescriptors();
  rig.order('throw');
  await waitFor('the worker to be gone', () => rig.log.of('error').length === 2);
  assert.equal(await client.ask('two'), 'two');
  assert.equal(rig.stats('a/udp').counters.active, 1);
  await waitFor('no descriptor to be left behind', () => openDescriptors() <= descriptors);
});

test('a question to a worker that throws gets no answer, and does not hang', async (t) => {
  const rig = await faultyRig(t);
  const backend = await UdpBackend.echo(t);
  const name = 'a/udp';
  const port = await openPort(rig, name, [backend.endpoint], 'UDP');
  for (let i = 0; i < 200; i++) await (await UdpClient.connect(t, port)).ask('.');
  const listing = rig.plane.connections(name)[Symbol.asyncIterator]();
  assert.ok(((await listing.next()).value?.length ?? 0) > 0);
  rig.order('throw');
  assert.deepEqual(await Promise.all([rig.plane.nextPick(name, backend.endpoint.address), listing.next()]), [
    undefined,
    { done: true, value: undefined },
  ]);
  assert.equal(await rig.plane.nextPick(name, backend.endpoint.address), undefined, 'there is no thread to ask');
  await waitFor('its successor to answer', () => rig.plane.nextPick(name, backend.endpoint.address));
});

test('a worker that hangs is noticed and replaced', async (t) => {
  const rig = await faultyRig(t, { clock: hurried });
  const backend = await TcpBackend.echo(t);
  const port = await openPort(rig, 'a/b', [backend.endpoint]);
  const client = await connectTcp(port);
  client.send('before');
  await waitFor('it to be served', () => client.text === 'before');
  rig.order('hang');
  await client.finished();
  assert.match(rig.log.of('error')[0]?.message ?? '', /stuck/);
  assert.equal(await exchange(port, 'again'), 'again');
  client.end();
});

test('a worker that hangs while starting is replaced, and the start waits for its successor', async (t) => {
  const rig = await faultyRig(t, { clock: hurried, atFirst: 'hang' });
  assert.match(rig.log.of('error')[0]?.message ?? '', /stuck/);
  const port = await openPort(rig, 'a/b', [(await TcpBackend.named(t, 'here')).endpoint]);
  assert.equal(await ask(port), 'here');
});

test('an idle worker does not count as hanging', async (t) => {
  // Twice as fast, and only from the start on, which may take its time.
  let speed = 1;
  const after: Clock['after'] = (ms, callback) => systemClock.after(ms / speed, callback);
  const rig = await faultyRig(t, { clock: { ...systemClock, after } });
  speed = 2;
  await new Promise((resolve) => setTimeout(resolve, 8000));
  assert.deepEqual(rig.log.lines, []);
});

test('a data plane whose workers cannot start says so and leaves nothing behind', async (t) => {
  const descriptors = openDescriptors();
  const entry = pathToFileURL(join(import.meta.dirname, 'programs/no-such-worker.ts'));
  await assert.rejects(fastRig(t, { workers: 2, entry }), /no-such-worker/);
  await waitFor('descriptors to be closed', () => openDescriptors() <= descriptors);
});

async function exchange(port: number, text: string): Promise<string> {
  const client = await connectTcp(port);
  client.end(text);
  await client.finished();
  return client.text;
}
