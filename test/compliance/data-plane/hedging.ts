import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../../netns/wait.ts';
import { ask, TcpBackend } from '../../support/tcp.ts';
import { backends, endpointAt, endpointsOf, type RigFactory } from './harness.ts';
import { BLACK_HOLE, drop } from './network.ts';

/** Far below the 250 ms of a try. */
const HEDGE_MS = 20;

export function hedgingTests(makeRig: RigFactory): void {
  test('a second endpoint is dialled when the first is silent, and its answer is used', async (t) => {
    const rig = await makeRig(t, { dialHedgeMs: HEDGE_MS });
    const alive = await TcpBackend.named(t, 'alive');
    const { name, port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80), alive.endpoint]);
    // One of two in a row meets the silent one first.
    for (let i = 0; i < 2 && rig.counters(name).hedges === 0; i++) assert.equal(await ask(port), 'alive');
    await waitFor('all to be over', () => rig.counters(name).active === 0);
    if (rig.dialsBeginAnew) return;
    const { hedges, failedTimeout, retries, connects, connections } = rig.counters(name);
    assert.deepEqual({ hedges, failedTimeout, retries }, { hedges: 1, failedTimeout: 0, retries: 0 });
    assert.equal(connects, connections, 'the one that lost is no connect');
  });

  test('the endpoint that loses hears nothing, although it is back a moment later', async (t) => {
    const rig = await makeRig(t, { dialHedgeMs: HEDGE_MS });
    const [slow, quick] = [await TcpBackend.echo(t), await TcpBackend.named(t, 'quick')];
    const { name, port } = await rig.open('TCP', endpointsOf([slow, quick]));
    await rig.update(name, { ...backends(endpointsOf([slow, quick])), proxyProtocol: 'v1' });
    const admit = drop(t, 'OUTPUT', '-p', 'tcp', '--dport', String(slow.endpoint.port));
    for (let i = 0; i < 2; i++) assert.match(await ask(port), /^quick/);
    admit();
    // The kernel would send the first packet again after a second.
    await sleep(1500);
    assert.equal(slow.sockets.length, 0);
  });

  test('no more than one in twenty connections is dialled twice', async (t) => {
    const rig = await makeRig(t, { dialHedgeMs: HEDGE_MS });
    if (rig.dialsBeginAnew) return t.skip('a successor has another allowance');
    const alive = await TcpBackend.named(t, 'alive');
    const { name, port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80), alive.endpoint]);
    await Promise.all(Array.from({ length: 100 }, () => ask(port)));
    const { hedges, failedTimeout } = rig.counters(name);
    // One in advance.
    assert.ok(hedges >= 1 && hedges <= 1 + 100 / 20, `${hedges} were`);
    assert.ok(failedTimeout >= 20, 'the others have waited');
  });

  for (const [title, options, affinity] of [
    ['where it is turned off', { dialHedgeMs: 0 }, undefined],
    ['with ClientIP affinity, which a slow endpoint must not cost', { dialHedgeMs: HEDGE_MS }, 60],
  ] as const) {
    test(`nothing is dialled twice ${title}`, async (t) => {
      const rig = await makeRig(t, options);
      const alive = await TcpBackend.named(t, 'alive');
      const { name, port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80), alive.endpoint], affinity);
      for (let i = 0; i < 3; i++) assert.equal(await ask(port, { from: `127.0.0.${i + 1}` }), 'alive');
      const { hedges, failedTimeout } = rig.counters(name);
      assert.equal(hedges, 0);
      assert.ok(failedTimeout > 0 || rig.dialsBeginAnew);
    });
  }

  test('when both are silent each has its time, and then the next is tried', async (t) => {
    const rig = await makeRig(t, { dialHedgeMs: HEDGE_MS });
    if (rig.dialsBeginAnew) return t.skip('a hand-over gives each dial another turn');
    const alive = await TcpBackend.named(t, 'alive');
    const holes = [81, 82].map((port) => endpointAt(BLACK_HOLE, port));
    const { name, port } = await rig.open('TCP', holes);
    const answer = ask(port);
    await waitFor('the second dial', () => rig.counters(name).hedges === 1);
    await rig.update(name, backends([...holes, alive.endpoint]));
    assert.equal(await answer, 'alive');
    const { hedges, failedTimeout, retries } = rig.counters(name);
    assert.equal(hedges, 1);
    assert.ok(failedTimeout >= 2 && retries >= 1, `${failedTimeout} ${retries}`);
  });

  test('a lone endpoint is not dialled twice', async (t) => {
    const rig = await makeRig(t, { dialHedgeMs: HEDGE_MS });
    const { name, port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80)]);
    const answer = ask(port);
    await waitFor('a failed try', () => rig.counters(name).failedTimeout > 0);
    assert.equal(rig.counters(name).hedges, 0);
    await rig.update(name, backends([(await TcpBackend.named(t, 'alive')).endpoint]));
    assert.equal(await answer, 'alive');
  });
}
