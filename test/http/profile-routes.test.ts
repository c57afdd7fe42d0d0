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
  test('have the format of DevTools, and last as long as requested, by default 30 seconds as Go’s', async (t) => {
    const { record } = await setUp(t);
    for (const [path, ms, name] of [
      [`${CPU}?seconds=2`, 2_000, 'cpuprofile'],
      [`${HEAP}?seconds=60`, 60_000, 'heapprofile'],
      [CPU, 30_000, 'cpuprofile'],
    ] as const) {
      const { status, headers, body } = await record(path, ms);
      assert.deepEqual([status, headers['content-type']], [200, 'application/json']);
      assert.equal(headers['content-disposition'], `attachment; filename="kube-userspace-proxy.${name}"`);
      const profile = JSON.parse(body);
      assert.ok(name === 'cpuprofile' ? profile.endTime > profile.startTime : profile.head.callFrame);
    }
  });

  test('last from 1 to 60 seconds', async (t) => {
    const { address, clock } = await setUp(t);
    for (const seconds of ['0', '61', '1e9', '-1', '', '1.5', 'x']) {
      const { status, body } = await ask(address, `${CPU}?seconds=${seconds}`);
      assert.deepEqual([status, body], [400, 'seconds must be a whole number from 1 to 60.\n'], seconds);
    }
    assert.equal(clock.pendingTimers, 0);
  });

  test('are taken one at a time, until the client leaves', async (t) => {
    const { address, clock, record } = await setUp(t);
    const first = request({ host: address.address, port: address.port, path: CPU, agent: false });
    first.on('error', () => {}).end();
    await until('the profile is being taken', () => clock.pendingTimers === 1);
    for (const path of [CPU, HEAP]) {
      const { status, body } = await ask(address, path);
      assert.deepEqual([status, body], [429, 'Another profile is being taken; ask again within 60 seconds.\n']);
    }
    first.destroy();
    await until('no profile is being taken', () => clock.pendingTimers === 0);
    assert.equal((await record(`${HEAP}?seconds=1`, 1_000)).status, 200);
  });
});

test('Go’s paths point to V8’s profiles', async (t) => {
  const { address } = await setUp(t);
  for (const path of ['/debug/pprof', '/debug/pprof/', '/debug/pprof/heap', '/debug/pprof/profile?seconds=5']) {
    const { status, body } = await ask(address, path);
    assert.equal(status, 404, path);
    assert.match(body, /\/debug\/v8\/cpu-profile\?seconds=30 and \/debug\/v8\/heap-profile/);
  }
});
