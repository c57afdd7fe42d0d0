import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../../netns/wait.ts';
import { ask, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { backends, endpointsOf, type RigFactory } from './harness.ts';

export function pickingTests(makeRig: RigFactory): void {
  test('connections take strict turns at each Service port, also through an update that changes no endpoint', async (t) => {
    const rig = await makeRig(t);
    const endpoints = endpointsOf(await Promise.all(['a', 'b', 'c'].map((name) => TcpBackend.named(t, name))));
    const ports = [await rig.open('TCP', endpoints), await rig.open('TCP', endpoints)];
    const answers: string[][] = [[], []];
    for (let i = 0; i < 9; i++) {
      for (const [index, { name, port }] of ports.entries()) {
        answers[index]?.push(await ask(port));
        if (i >= 6) rig.plane.update(name, backends(endpoints.toReversed().map((endpoint) => ({ ...endpoint }))));
      }
    }
    for (const own of answers) {
      assert.deepEqual(own.slice(0, 3).toSorted(), ['a', 'b', 'c']);
      assert.deepEqual(own.slice(3, 6), own.slice(0, 3));
      assert.deepEqual(own.slice(6).toSorted(), ['a', 'b', 'c']);
    }
  });

  test('an update holds for the next connection and leaves established ones alone', async (t) => {
    const rig = await makeRig(t);
    const [before, after] = [await TcpBackend.echo(t), await TcpBackend.named(t, 'after')];
    const { name, port } = await rig.open('TCP', [before.endpoint]);
    const established = await connectTcp(port);
    established.send('one ');
    await waitFor('it to be established', () => before.sockets.length === 1);
    await rig.update(name, backends([after.endpoint]));
    assert.equal(await ask(port), 'after');
    established.end('two');
    assert.equal(await established.finished(), 'end');
    assert.equal(established.text, 'one two');
  });

  test('with ClientIP affinity each client keeps its endpoint', async (t) => {
    const rig = await makeRig(t);
    const named = await Promise.all(['a', 'b', 'c'].map((name) => TcpBackend.named(t, name)));
    const { port } = await rig.open('TCP', endpointsOf(named), 60);
    const clients = ['127.0.0.1', '127.0.0.2', '127.0.0.3'];
    const first = await Promise.all(clients.map((from) => ask(port, { from })));
    assert.deepEqual(first.toSorted(), ['a', 'b', 'c'], 'different clients take turns');
    for (let i = 0; i < 4; i++) {
      assert.deepEqual(await Promise.all(clients.map((from) => ask(port, { from }))), first);
    }
  });

  test('the client unseen for longest is forgotten where there are too many, and that is counted and told', async (t) => {
    const rig = await makeRig(t, { affinityMaxClients: 2 });
    const backend = await TcpBackend.named(t, 'a');
    const { name, port } = await rig.open('TCP', [backend.endpoint], 60);
    for (const from of ['127.0.0.1', '127.0.0.2', '127.0.0.1', '127.0.0.3']) await ask(port, { from });
    assert.deepEqual(await rig.reported('clientsForgotten', 1), [{ name }]);
    assert.equal(rig.plane.statsOf(name)?.counters.affinityForgotten, 1);
  });

  test('affinity ends after its time without a new connection, and is renewed by each', async (t) => {
    const rig = await makeRig(t);
    const named = await Promise.all(['a', 'b'].map((name) => TcpBackend.named(t, name)));
    const { port } = await rig.open('TCP', endpointsOf(named), 4);
    const first = await ask(port);
    for (let i = 0; i < 3; i++) {
      await sleep(1500);
      assert.equal(await ask(port), first);
    }
    // A hand-over adds the time that it takes.
    await sleep(6000);
    assert.notEqual(await ask(port), first);
  });

  test('affinity moves to the endpoint that answered', async (t) => {
    const rig = await makeRig(t);
    const named = await Promise.all(['a', 'b', 'c'].map((name) => TcpBackend.named(t, name)));
    const { port } = await rig.open('TCP', endpointsOf(named), 60);
    const first = await ask(port);
    const dead = ['a', 'b', 'c'].indexOf(first);
    named[dead]?.stop();
    const second = await ask(port);
    assert.notEqual(second, first);
    for (let i = 0; i < 4; i++) assert.equal(await ask(port), second);
    // The dead endpoint gets no second dial.
    await rig.reported('dialFailed', 1);
  });
}
