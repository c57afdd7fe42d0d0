import assert from 'node:assert/strict';
import { test } from 'node:test';
import { close } from '../../../src/sys/descriptor.ts';
import { AF_INET, connect, SOCK_STREAM, socket } from '../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../src/sys/socket-address.ts';
import { must } from '../../../src/sys/sys-error.ts';
import { PATIENCE_MS } from '../../netns/wait.ts';
import { ask, TcpBackend } from '../../support/tcp.ts';
import { fastRig, openPort } from './rig.ts';

test('an update holds for the next client, before this thread has turned', async (t) => {
  const rig = await fastRig(t);
  const [old, young] = [await TcpBackend.named(t, 'old'), await TcpBackend.named(t, 'young')];
  const port = await openPort(rig, 'a/b', [old.endpoint]);
  assert.equal(await ask(port), 'old');

  rig.plane.update('a/b', { endpoints: [young.endpoint], affinity: { type: 'None' } });
  const client = must('socket', socket(AF_INET, SOCK_STREAM));
  t.after(() => close(client));
  connect(client, encodeSocketAddress('127.0.0.1', port));
  // Nothing else of this thread may run before the worker has served the client: so it is watched without a wait.
  const deadline = performance.now() + PATIENCE_MS;
  const served = () => rig.stats('a/b').endpoints?.[0]?.counters.connections === 1;
  while (!served()) assert.ok(performance.now() < deadline, 'the worker picked an endpoint that had gone');
});

test('many ports are opened, changed and closed in one turn, each in its order', async (t) => {
  const rig = await fastRig(t, { workers: 2 });
  const [old, young] = [await TcpBackend.named(t, 'old'), await TcpBackend.named(t, 'young')];
  const names = Array.from({ length: 100 }, (_, i) => `a/${i}` as const);
  const opening = names.map((name) => openPort(rig, name, [old.endpoint]));
  for (const name of names.slice(0, 50)) {
    rig.plane.update(name, { endpoints: [young.endpoint], affinity: { type: 'None' } });
  }
  const ports = await Promise.all(opening);
  assert.deepEqual(await Promise.all([0, 49, 50, 99].map((index) => ask(ports[index] as number))), [
    'young',
    'young',
    'old',
    'old',
  ]);
  await Promise.all(names.map((name) => rig.plane.close(name)));
  assert.deepEqual([...rig.plane.stats()], []);
  await assert.rejects(ask(ports[0] as number));
});
