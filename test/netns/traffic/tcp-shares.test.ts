import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { metric, NAMING, TCP, testEnvironment } from '../harness.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const IDLE = 1_100;
/** Of each protocol. */
const ASKED = 200;
const AT_ONCE = 10;
/** Nobody knows how busy the machine is. */
const TIMEOUT_MS = 20_000;

describe('idle connections of one tenant', () => {
  const environment = testEnvironment({ through: ['prlimit', '--nofile=2000:2000'] });

  test('leave descriptors to all others, and wait for those of their own', async (t) => {
    const { client, node } = environment;
    const hog = await environment.serve({
      name: 'hog',
      namespace: 'hog',
      ports: [{ port: 80, target: TCP.echo }],
      endpoints: [POD_ADDRESSES[0]],
    });
    const other = await environment.serve({ name: 'other', ports: NAMING });
    const of = async (name: string, service: string) =>
      metric(await environment.metricsText(), `userspace_proxy_${name}`, `service="${service}"`);

    const pod = environment.pods[2];
    const idle = await pod.call('openMany', { host: hog.host, port: hog.port, count: IDLE });
    await waitFor('accepting to pause', async () => (await of('accept_pauses_total', 'hog')) > 0);
    const accepted = await of('connections_active', 'hog');

    const begun = performance.now();
    let answered = 0;
    let slowestMs = 0;
    for (let asked = 0; asked < ASKED; asked += AT_ONCE) {
      const attempts = (['tcp', 'udp'] as const).flatMap((protocol) =>
        Array.from({ length: AT_ONCE }, () => ({ protocol, host: other.host, port: 80 })),
      );
      const since = performance.now();
      const outcomes = await client.call('outcomes', { attempts, timeoutMs: TIMEOUT_MS });
      slowestMs = Math.max(slowestMs, performance.now() - since);
      answered += outcomes.filter((outcome) => outcome.startsWith('pod-')).length;
    }
    const tookMs = Math.round(performance.now() - begun);
    t.diagnostic(`${accepted} of ${IDLE} accepted; ${answered} of ${2 * ASKED} others answered in ${tookMs} ms`);
    t.diagnostic(`the slowest ${2 * AT_ONCE} at once took ${Math.round(slowestMs)} ms`);
    assert.ok(accepted > IDLE / 3 && accepted < IDLE, `${accepted} accepted`);
    assert.ok(answered >= 0.99 * 2 * ASKED, `${answered} of ${2 * ASKED} answered`);
    assert.equal(await of('limited_total', 'other'), 0);
    assert.equal((await node.call('httpGet', { url: 'http://127.0.0.1:10256/livez' })).status, 200);
    // That takes a process for iptables and a listener.
    const late = await environment.serve({ name: 'late', ports: NAMING });
    await environment.until(client, late.host, 80, ['pod-1', 'pod-2', 'pod-3']);
    const told = environment.proxy.log.filter(({ msg }) => msg.startsWith('New clients must wait'));
    assert.deepEqual([...new Set(told.map(({ svc }) => svc))], ['hog/hog']);

    const ended = 800;
    for (const connection of idle.slice(0, ended)) await pod.call('reset', { connection });
    await waitFor('all to be accepted', async () => (await of('connections_total', 'hog')) === IDLE);
    await waitFor('the others to stay', async () => (await of('connections_active', 'hog')) === IDLE - ended);
  });
});
