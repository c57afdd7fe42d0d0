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
  // A loop without a wait: nothing else of this thread may run before the worker has served the client.
  const deadline = performance.now() + PATIENCE_MS;
  const served = () => rig.stats('a/b').endpoints?.[0]?.counters.connections === 1;
  while (!served()) assert.ok(performance.now() < deadline, 'the worker picked the old endpoint');
});
