import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { FakeView } from '../fakes/fake-view.ts';
import { folder, served } from '../operate/control/served.ts';
import { until } from '../support/until.ts';

/** Their list is many times larger than a pipe. */
const SERVICES = 2_000;

/** Forwards requests, and counts the answers that have been read. */
async function relay(t: TestContext, to: string) {
  const state = { path: join(folder(t), 'relay.sock'), done: 0 };
  const server = createServer((client) => {
    const upstream = connect(to);
    for (const socket of [client, upstream]) socket.on('error', () => {});
    client.pipe(upstream).pipe(client);
    client.on('close', () => {
      state.done += 1;
    });
  });
  server.listen(state.path);
  await once(server, 'listening');
  t.after(() => server.close());
  return state;
}

test('a slow reader gets all of a list', async (t) => {
  const { path } = await served(t, new FakeView({ services: SERVICES, endpoints: 1 }));
  const asked = await relay(t, path);
  const argv = ['src/main.ts', 'list', '-o', 'json', '--control-socket', asked.path];
  const list = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => list.kill('SIGKILL'));
  const exited = once(list, 'exit');
  // One request for the node and one for the Services: all that is left is to print and to end.
  await until('the list has all that it prints', () => asked.done === 2);
  let text = '';
  for await (const chunk of list.stdout.setEncoding('utf8')) text += chunk;
  assert.deepEqual(await exited, [0, null]);
  assert.equal(JSON.parse(text).services.length, SERVICES);
});

test('output that cannot be written is an error, and reported', async (t) => {
  const { path } = await served(t, new FakeView());
  const full = openSync('/dev/full', 'w');
  t.after(() => closeSync(full));
  const argv = ['src/main.ts', 'list', '--control-socket', path];
  const list = spawn(process.execPath, argv, { stdio: ['ignore', full, 'pipe'] });
  t.after(() => list.kill('SIGKILL'));
  const exited = once(list, 'exit');
  let said = '';
  for await (const chunk of list.stderr?.setEncoding('utf8') ?? []) said += chunk;
  assert.match(said, /^kube-userspace-proxy: cannot write all of it: ENOSPC/);
  assert.deepEqual(await exited, [1, null]);
});
