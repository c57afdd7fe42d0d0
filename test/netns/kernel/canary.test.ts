import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { type Served, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

/** What is promised is 5 s; a machine that does much else is five times as slow. */
const RESTORED_WITHIN_MS = 25_000;
/** Enough for buckets in every chain. */
const SERVICES = 200;

describe(`rules that another program takes away from iptables-${FLAVOUR}, without a sync period to wait for`, () => {
  const environment = testEnvironment();
  let service: Served;
  let intact: readonly string[];

  before(async () => {
    await environment.startProxy({ args: ['--iptables-sync-period', '1h'] });
    for (let number = 1; number <= SERVICES; number++) {
      environment.write({
        name: `other-${number}`,
        clusterIP: `10.96.3.${number}`,
        ports: [{ port: 80, target: TCP.name, nodePort: 31_000 + number }],
        endpoints: POD_ADDRESSES,
      });
    }
    service = await environment.serve({
      name: 'web',
      ports: [{ name: 'http', port: 80, target: TCP.name, nodePort: 30_080 }],
    });
    const portals = () => environment.iptables.rules('KUBE-PORTALS-CONTAINER');
    const letIn = async () => {
      const rules = await environment.iptables.rules('KUBE-NODEPORT-NON-LOCAL', 'filter');
      return rules.filter((rule) => rule.endsWith('-j ACCEPT'));
    };
    for (const rules of [portals, letIn]) {
      await waitFor('all Services have rules', async () => (await rules()).length === SERVICES + 1);
    }
    intact = await ours();
  });

  async function ours(): Promise<string[]> {
    return (await environment.iptables.dump()).filter((line) => line.includes('KUBE-'));
  }

  const text = (lines: readonly string[]) => lines.toSorted().join('\n');

  for (const [what, lose] of [
    ['iptables -t nat -F', () => environment.iptables.must('-t nat -F')],
    ['iptables -F', () => environment.iptables.must('-F')],
    ['a firewall that starts anew', () => environment.iptables.flush()],
  ] as const) {
    test(`are soon back: ${what}`, async (t) => {
      await lose();
      const begun = performance.now();
      await waitFor('the rules are back', async () => text(await ours()) === text(intact), 2 * RESTORED_WITHIN_MS);
      const ms = performance.now() - begun;
      t.diagnostic(`after ${ms.toFixed(0)} ms`);
      assert.ok(ms < RESTORED_WITHIN_MS, `${ms} ms`);
      for (const [agent, host, port] of [
        [environment.client, service.host, 80],
        [environment.node, service.host, 80],
        [environment.outside, NODE_ADDRESS, 30_080],
      ] as const) {
        assert.match((await agent.call('request', { host, port })).name, /^pod-/);
      }
    });
  }
});
