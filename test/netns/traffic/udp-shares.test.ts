import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { metric, testEnvironment, UDP } from '../harness.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

/** At which a pod listens and stays silent. */
const SILENT = 9055;

/**
 * A sixteenth of the default, so that a sixteenth of 10,000 datagrams a second holds the flood at its bound: the test
 * is of shares of flows, not of processor time.
 */
const MAX_FLOWS = 1_024;
const PER_SECOND = 640;

const QUESTIONS = 200;
const AT_ONCE = 20;

describe('a flood of datagrams to one tenant', () => {
  const environment = testEnvironment({ args: ['--udp-max-flows', String(MAX_FLOWS)] });

  test('at six silent ports leaves the DNS of another its flows', async (t) => {
    const { client } = environment;
    const [silent] = environment.topology.pods;
    const [, , flooder] = environment.pods;
    await silent.output(['iptables', '-w', '-A', 'INPUT', '-p', 'udp', '--dport', String(SILENT), '-j', 'DROP']);
    const ports = [1, 2, 3, 4, 5, 6];
    const hog = await environment.serve({
      name: 'hog',
      namespace: 'hog',
      ports: ports.map((port) => ({ name: `p${port}`, port, target: SILENT, protocol: 'UDP' })),
      endpoints: [POD_ADDRESSES[0]],
    });
    const dns = await environment.serve({
      name: 'dns',
      ports: [{ port: 53, target: UDP['udp-name'], protocol: 'UDP' }],
      endpoints: [POD_ADDRESSES[1]],
    });
    const of = async (name: string, service: string) =>
      metric(await environment.metricsText(), `userspace_proxy_${name}`, `service="${service}"`);

    const flood = await flooder.call('startFlood', { host: hog.host, ports, perSecond: PER_SECOND });
    const begun = performance.now();
    await waitFor('the flood to reach its bound', async () => (await of('limited_total', 'hog')) > 0);
    const flows = await of('connections_total', 'hog');
    // Few at a time and with patience, so that no queue and no deadline loses one on a busy machine.
    const attempts = Array.from(
      { length: AT_ONCE },
      () => ({ protocol: 'udp', host: dns.host, port: dns.port }) as const,
    );
    const outcomes: string[] = [];
    while (outcomes.length < QUESTIONS) {
      outcomes.push(...(await client.call('outcomes', { attempts, timeoutMs: PATIENCE_MS })));
      // A sixteenth of the flows is a share of 164: asked without a pause, on a fast machine it would need more.
      await waitFor('flows of DNS to end', async () => (await of('connections_active', 'dns')) === 0);
    }
    const answered = outcomes.filter((outcome) => outcome === 'pod-2').length;
    const dropped = await of('limited_total', 'hog');
    const { sent } = await flooder.call('stopFlood', { flood });
    const perSecond = Math.round((1000 * sent) / (performance.now() - begun));
    t.diagnostic(`${perSecond}/s: ${flows} flows, ${dropped} dropped; ${answered} of ${QUESTIONS} questions answered`);
    assert.ok(answered >= 0.99 * QUESTIONS, `${outcomes}`);
    assert.ok(flows > MAX_FLOWS / 2, `the flood has had ${flows} flows`);
    assert.equal(await of('limited_total', 'dns'), 0);
    const told = environment.proxy.log.filter(({ msg }) => msg.startsWith('Dropped a new UDP flow: its namespace'));
    assert.ok(told.length > 0);
    assert.ok(told.every(({ svc, svcs }) => String(svc ?? svcs).startsWith('hog/')));

    await waitFor('the flood to be forgotten', async () => (await of('connections_active', 'hog')) === 0);
  });
});
