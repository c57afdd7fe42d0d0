import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Clock } from '../../../src/util/clock.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { waitFor } from '../../netns/wait.ts';
import { ask, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { giveOrder } from './give-order.ts';
import { type FastRig, fastRig, openDescriptors, openPort } from './rig.ts';

/** Time runs four times as fast for whoever looks after the workers. */
const hurried: Clock = {
  ...systemClock,
  after: (ms, callback) => systemClock.after(ms / 4, callback),
};

async function faultyRig(
  t: TestContext,
  { atFirst, ...options }: Parameters<typeof fastRig>[1] & { atFirst?: 'hang' } = {},
): Promise<FastRig & { entry: URL; order(index: number, what: 'throw' | 'hang'): void }> {
  const folder = mkdtempSync(join(tmpdir(), 'faulty-worker-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'order');
  const entry = pathToFileURL(join(import.meta.dirname, 'programs/faulty-worker.ts'));
  const order = (index: number, what: 'throw' | 'hang') => giveOrder(`${file}.${index}`, what);
  if (atFirst !== undefined) order(0, atFirst);
  // A worker gets a copy when it starts.
  process.env['KUP_TEST_ORDER'] = file;
  const rig = await fastRig(t, { workers: 2, entry, ...options });
  return { ...rig, entry, order };
}

test('a worker that throws loses only its own connections, and its ports go on where they were', async (t) => {
  const rig = await faultyRig(t);
  const backend = await TcpBackend.echo(t);
  const first = await openPort(rig, 'a/first', [backend.endpoint]);
  const second = await openPort(rig, 'a/second', [backend.endpoint]);
  const clients = [await connectTcp(first), await connectTcp(second)];
  for (const client of clients) client.send('before ');
  await waitFor('both to be served', () => clients.every(({ text }) => text === 'before '));
  const descriptors = openDescriptors();

  rig.order(0, 'throw');
  const [lost, kept] = clients;
  assert.equal(await lost?.finished(), 'ECONNRESET', 'nobody takes it for a clean end');
  await waitFor('it to be told of', () => rig.log.of('error').length > 0);
  assert.match(String(rig.log.of('error')[0]?.fields['err']), /told to throw/);
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

test('clients that connect while a worker is away wait for its successor', async (t) => {
  const rig = await faultyRig(t, { workers: 1 });
  const port = await openPort(rig, 'a/b', [(await TcpBackend.named(t, 'here')).endpoint]);
  rig.order(0, 'throw');
  await waitFor('the worker to be gone', () => rig.log.of('error').length === 2);
  assert.equal(await ask(port), 'here');
});

test('a worker is started again later when the system gives no thread', async (t) => {
  const rig = await faultyRig(t, { workers: 1 });
  const port = await openPort(rig, 'a/b', [(await TcpBackend.named(t, 'here')).endpoint]);
  // A file on another machine: `new Worker` throws, as it does where there can be no more threads.
  rig.entry.host = 'elsewhere';
  rig.order(0, 'throw');
  const failed = () => rig.log.of('error').filter(({ message }) => message.endsWith('cannot be started'));
  await waitFor('two tries', () => failed().length >= 2);
  rig.entry.host = '';
  assert.equal(await ask(port), 'here');
});

test('what changes while a worker is away holds for its successor', async (t) => {
  const rig = await faultyRig(t, { workers: 1 });
  const [old, young] = [await TcpBackend.named(t, 'old'), await TcpBackend.named(t, 'young')];
  const port = await openPort(rig, 'a/changes', [old.endpoint]);
  await openPort(rig, 'a/goes', [old.endpoint]);
  rig.order(0, 'throw');
  await waitFor('the worker to be gone', () => rig.log.of('error').length === 2);
  rig.plane.update('a/changes', { endpoints: [young.endpoint], affinity: { type: 'None' } });
  await rig.plane.close('a/goes');
  const late = await openPort(rig, 'a/comes', [young.endpoint]);
  assert.equal(await ask(port), 'young');
  assert.equal(await ask(late), 'young');
  assert.deepEqual([...rig.plane.stats()].map(({ name }) => name).toSorted(), ['a/changes', 'a/comes']);
});

test('UDP flows of a worker that throws are restarted by the next datagram', async (t) => {
  const rig = await faultyRig(t, { workers: 1 });
  const port = await openPort(rig, 'a/udp', [(await UdpBackend.echo(t)).endpoint], 'UDP');
  const client = await UdpClient.connect(t, port);
  assert.equal(await client.ask('one'), 'one');
  const descriptors = openDescriptors();
  rig.order(0, 'throw');
  await waitFor('the worker to be gone', () => rig.log.of('error').length === 2);
  assert.equal(await client.ask('two'), 'two');
  assert.equal(rig.stats('a/udp').counters.active, 1);
  await waitFor('no descriptor to be left behind', () => openDescriptors() <= descriptors);
});

test('a question to a worker that throws gets no answer, and does not hang', async (t) => {
  const rig = await faultyRig(t, { workers: 1 });
  const backend = await UdpBackend.echo(t);
  const name = 'a/udp';
  const port = await openPort(rig, name, [backend.endpoint], 'UDP');
  for (let i = 0; i < 200; i++) await (await UdpClient.connect(t, port)).ask('.');
  const listing = rig.plane.connections(name)[Symbol.asyncIterator]();
  assert.ok(((await listing.next()).value?.length ?? 0) > 0);
  rig.order(0, 'throw');
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
  rig.order(0, 'hang');
  await client.finished();
  assert.match(rig.log.of('error')[0]?.message ?? '', /stuck/);
  assert.equal(await exchange(port, 'again'), 'again');
  client.end();
});

test('a worker that hangs while starting is replaced, and the start waits for that', async (t) => {
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
