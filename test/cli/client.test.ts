import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { connectControl } from '../../src/cli/client.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { all, folder, served } from '../operate/control/served.ts';
import { settle, until } from '../support/until.ts';

/** A server that is another program, or does not work. */
async function stranger(t: TestContext, answer: (socket: Socket) => void): Promise<string> {
  const path = join(folder(t), 'control.sock');
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
    answer(socket);
  });
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return path;
}

function node(path: string, clock = new ManualClock()) {
  return all(connectControl(path, clock).ask('node', {}));
}

describe('the reason why there is no answer is clear:', () => {
  test('it does not run', async (t) => {
    await assert.rejects(
      node(join(folder(t), 'none')),
      /no proxy serves \S+none: is it running on this node\? .*--control-socket/,
    );
    const file = join(folder(t), 'file');
    writeFileSync(file, '');
    await assert.rejects(node(join(file, 'none')), /no proxy serves/);
  });

  test('it has ended', async (t) => {
    const path = join(folder(t), 'control.sock');
    spawnSync(process.execPath, [
      '-e',
      `require('node:net').createServer().listen(process.argv[1], () => process.kill(process.pid, 'SIGKILL'))`,
      path,
    ]);
    await assert.rejects(node(path), /nobody listens at \S+control\.sock any more/);
  });

  test('it is for root only', { skip: process.getuid?.() !== 0 && 'needs root' }, async (t) => {
    const directory = folder(t);
    chmodSync(directory, 0o755);
    const path = join(directory, 'control.sock');
    writeFileSync(path, '');
    chmodSync(path, 0o600);
    // The sources are readable for another user.
    const script = `
      const { connectControl } = await import(process.argv[1]);
      const clock = { after: () => ({ cancel() {} }) };
      try { for await (const _ of connectControl(process.argv[2], clock).ask('node', {})); } catch ({ message }) { console.log(message); }`;
    const connect = new URL('../../src/cli/client.ts', import.meta.url).href;
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script, connect, path], {
      ...{ uid: 65_534, gid: 65_534, encoding: 'utf8' },
    });
    assert.match(stdout, /may be opened by root only; run this as root/, stderr);
  });

  test('it ends in the middle of an answer', async (t) => {
    const head = 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n';
    const path = await stranger(t, (socket) => {
      socket.once('data', () => socket.end(`${head}{"pid":1}\n{"pi`));
    });
    const pieces: unknown[] = [];
    await assert.rejects(async () => {
      for await (const piece of connectControl(path, new ManualClock()).ask('node', {})) pieces.push(piece);
    }, /closed the connection before its answer was complete/);
    assert.deepEqual(pieces, [{ pid: 1 }]);
    await assert.rejects(node(await stranger(t, (socket) => socket.destroy())), /closed the connection before/);
  });

  test('it is another program', async (t) => {
    const answers = ['400 Bad Request\r\n\r\n', '404 Not Found\r\n\r\n404 page not found\n'];
    const bodies = ['<html>\n', 'null\n', '[]\n', '7\n'].map((body) => `200 OK\r\n\r\n${body}`);
    for (const answer of [...answers, ...bodies]) {
      const path = await stranger(t, (socket) => void socket.end(`HTTP/1.1 ${answer}`));
      await assert.rejects(node(path), /does not answer as this program does/, answer);
    }
  });

  test('it is of the release before, which answers a line of JSON', async (t) => {
    for (const answer of ['{"error":"the request is not a line of JSON"}\n', 'null\n']) {
      const path = await stranger(t, (socket) => void socket.end(answer));
      await assert.rejects(
        node(path),
        /does not speak HTTP: a proxy of an earlier release, which serves until it is re/,
      );
    }
  });

  test('it is silent', async (t) => {
    const clock = new ManualClock();
    const path = await stranger(t, () => {});
    const asked = node(path, clock);
    const failed = assert.rejects(asked, /has said nothing for 45 s/);
    await until('the client waits', () => clock.pendingTimers === 1);
    clock.advance(45_000);
    await failed;
  });
});

test('time in which the client does not read does not count as silence', async (t) => {
  const view = new FakeView({ services: 5_000 });
  const { path } = await served(t, view);
  const clock = new ManualClock();
  let services = 0;
  for await (const piece of connectControl(path, clock).ask('services', {})) {
    services += piece.length;
    clock.advance(60_000);
    await settle(1);
  }
  assert.equal(services, 5_000);
  assert.equal(clock.pendingTimers, 0);
});
