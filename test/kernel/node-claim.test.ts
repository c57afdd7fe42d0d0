import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { NodeClaim, nodeHolder } from '../../src/kernel/node-claim.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { waitFor } from '../netns/wait.ts';

/** Not the real name: the namespace of the tests has other proxies. */
function rig(t: TestContext) {
  const name = `test-${randomUUID()}`;
  const claims: NodeClaim[] = [];
  t.after(() => Promise.all(claims.map((claim) => claim.close())));
  const make = () => {
    const log = new RecordingLog();
    const claim = new NodeClaim(log, name);
    claims.push(claim);
    return { claim, log };
  };
  return { name, make };
}

test('the second of two proxies is refused, with the process of the first', async (t) => {
  const { name, make } = rig(t);
  assert.equal(await nodeHolder(name), undefined);
  await make().claim.take();
  assert.deepEqual(await nodeHolder(name), { pid: process.pid, uid: process.getuid?.() });
  await assert.rejects(make().claim.take(), {
    message: `another kube-userspace-proxy (process ${process.pid}) serves this node, and two would undo each other's rules; stop that one first (systemctl stop kube-userspace-proxy, or delete its Pod)`,
  });
});

test('a released claim is free at once, and can be taken again', async (t) => {
  const { make } = rig(t);
  const [first, second] = [make().claim, make().claim];
  await first.take();
  void first.close();
  await second.take();
  await second.close();
  await first.take();
});

test('a successor only logs that a third proxy holds the name', async (t) => {
  const { name, make } = rig(t);
  const third = createServer().listen({ path: `\0${name}` });
  await once(third, 'listening');
  t.after(() => third.close());
  const { claim, log } = make();
  claim.start();
  const line = await waitFor('the log line', () => log.of('error')[0]);
  assert.equal(line.message, 'Another proxy has come up on this node');
});

test('a connection to the name is closed without data', async (t) => {
  const { name, make } = rig(t);
  await make().claim.take();
  const socket = connect({ path: `\0${name}` });
  let received = 0;
  socket.on('data', ({ length }) => {
    received += length;
  });
  await once(socket, 'close');
  assert.equal(received, 0);
});
