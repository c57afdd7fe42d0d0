import assert from 'node:assert/strict';
import { request } from 'node:http';
import { describe, type TestContext, test } from 'node:test';
import { profileRoutes } from '../../src/http/routes.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { until } from '../support/until.ts';
import { ask } from './http-client.ts';
import { serve } from './serve.ts';

const CPU = '/debug/v8/cpu-profile';
const HEAP = '/debug/v8/heap-profile';

async function setUp(t: TestContext) {
  const clock = new ManualClock();
  const { address } = await serve(t, new Map(profileRoutes(clock)));
  /** Asks, and lets the time pass that the profile takes. */
  const record = async (path: string, ms: number) => {
    const reply = ask(address, path);
    await until('the profile is being taken', () => clock.pendingTimers === 1);
    clock.advance(ms - 1);
    assert.equal(clock.pendingTimers, 1);
    clock.advance(1);
    return await reply;
  };
  return { address, clock, record };
}

describe('profiles', () => {
  test('of the processor are what DevTools read, and last as long as asked', async (t) => {
    const { record } = await setUp(t);
    const { status, headers, body } = await record(`${CPU}?seconds=2`, 2_000);
    assert.deepEqual([status, headers['content-type']], [200, 'application/json']);
    assert.equal(headers['content-disposition'], 'attachment; filename="kube-userspace-proxy.cpuprofile"');
    const profile = JSON.parse(body);
    assert.ok(Array.isArray(profile.nodes) && profile.endTime > profile.startTime);
  });

  test('of the heap as well', async (t) => {
    const { record } = await setUp(t);
    const { status, headers, body } = await record(`${HEAP}?seconds=1`, 1_000);
    assert.equal(status, 200);
    assert.equal(headers['content-disposition'], 'attachment; filename="kube-userspace-proxy.heapprofile"');
    assert.ok(JSON.parse(body).head.callFrame);
  });

  test('last 30 seconds by default, as Go’s', async (t) => {
    const { record } = await setUp(t);
    assert.equal((await record(CPU, 30_000)).status, 200);
  });

  test('last from 1 to 60 seconds', async (t) => {
    const { address, clock, record } = await setUp(t);
    for (const seconds of ['0', '61', '1e9', '-1', '', '1.5', 'x']) {
      const { status, body } = await ask(address, `${CPU}?seconds=${seconds}`);
      assert.deepEqual([status, body], [400, 'seconds must be a whole number from 1 to 60.\n'], seconds);
    }
    assert.equal(clock.pendingTimers, 0);
    assert.equal((await record(`${CPU}?seconds=60`, 60_000)).status, 200);
  });

  test('are taken one at a time', async (t) => {
    const { address, clock, record } = await setUp(t);
    const first = ask(address, CPU);
    await until('the profile is being taken', () => clock.pendingTimers === 1);
    for (const path of [CPU, HEAP]) {
      const { status, body } = await ask(address, path);
      assert.deepEqual([status, body], [429, 'Another profile is being taken; ask again within 60 seconds.\n']);
    }
    clock.advance(30_000);
    assert.equal((await first).status, 200);
    assert.equal((await record(HEAP, 30_000)).status, 200);
  });

  test('end when the client leaves', async (t) => {
    const { address, clock, record } = await setUp(t);
    const outgoing = request({ host: address.address, port: address.port, path: CPU, agent: false });
    outgoing.on('error', () => {});
    outgoing.end();
    await until('the profile is being taken', () => clock.pendingTimers === 1);
    outgoing.destroy();
    await until('no profile is being taken', () => clock.pendingTimers === 0);
    assert.equal((await record(`${CPU}?seconds=1`, 1_000)).status, 200);
  });
});

test('who looks for Go’s profiles is told where ours are', async (t) => {
  const { address } = await setUp(t);
  for (const path of ['/debug/pprof', '/debug/pprof/', '/debug/pprof/heap', '/debug/pprof/profile?seconds=5']) {
    const { status, body } = await ask(address, path);
    assert.equal(status, 404, path);
    assert.match(body, /\/debug\/v8\/cpu-profile\?seconds=30 and \/debug\/v8\/heap-profile/);
  }
});
