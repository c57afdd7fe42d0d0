import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { FamilyCapture } from '../../../src/capture/family-capture.ts';
import { parseDump } from '../../../src/capture/iptables/dump.ts';
import type { Iptables } from '../../../src/capture/iptables/iptables.ts';
import { createExec, type Exec } from '../../../src/kernel/iptables/exec.ts';
import { InstalledPrograms } from '../../../src/kernel/iptables/flavour.ts';
import { createIptables, neededTools } from '../../../src/kernel/iptables/iptables.ts';
import type { Portal, PortalDelta } from '../../../src/model/capture.ts';
import { MAX_RULES } from '../../../src/services/service-limits.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { nodeFacts, type PortalFields, portal } from '../../capture/fixtures.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { iptablesCapture } from '../../support/capture.ts';
import { address } from '../../support/model.ts';

const SERVICES = 10_000;

/** A ClusterIP each; every tenth has a NodePort. */
const PORTALS = Array.from({ length: SERVICES }, (_, i) =>
  portal({
    name: `namespace-${i % 97}/service-${i}:http`,
    clusterIPs: [`10.96.${i >> 8}.${i & 255}`],
    nodePort: i % 10 === 0 ? 30_000 + i / 10 : 0,
    localPort: 32_768 + i,
  }),
);

const many = <T>(count: number, make: (index: number) => T) => Array.from({ length: count }, (_, i) => make(i));

/** Services with as many rules as one may have. */
const LARGEST: Readonly<Record<string, readonly Portal[]>> = {
  ports: many(MAX_RULES, (i) => ofLargest(i, { clusterIPs: ['10.97.1.1'] })),
  'ports with NodePorts': many(MAX_RULES, (i) =>
    ofLargest(i, { clusterIPs: ['10.97.1.1'], nodePort: 60_000 - i, protocol: 'UDP' }),
  ),
  'external IPs': [ofLargest(0, { externalIPs: many(MAX_RULES, (i) => `198.18.${i >> 8}.${i & 255}`) })],
  'ports and external IPs': many(32, (i) => ofLargest(i, { externalIPs: many(64, (j) => `198.18.7.${j}`) })),
  'source ranges': [
    ofLargest(0, {
      loadBalancerIPs: ['198.18.9.9'],
      loadBalancerSourceRanges: many(MAX_RULES - 1, (i) => `100.64.${i >> 8}.${i & 255}/32`),
    }),
  ],
};

function ofLargest(index: number, fields: Omit<PortalFields, 'name'>): Portal {
  return portal({ name: `tenant/largest:p${index}`, port: 1 + index, localPort: 43_000 + index, ...fields });
}

let temporary: string;

before(() => {
  // The xtables lock is one for all namespaces; other tests on this machine must neither wait nor be waited for.
  temporary = mkdtempSync(join(tmpdir(), 'kup-ten-thousand-'));
  process.env['XTABLES_LOCKFILE'] = join(temporary, 'xtables.lock');
});
after(() => rmSync(temporary, { recursive: true, force: true }));

for (const flavour of ['nft', 'legacy'] as const) {
  describe(`${SERVICES} Services through iptables-${flavour}`, () => {
    let iptables: Iptables;
    const restored: string[] = [];
    let rules: FamilyCapture;

    before(async () => {
      const run = createExec({ clock: systemClock });
      const exec: Exec = (request) => {
        if (request.program.endsWith('-restore') && request.input !== undefined) restored.push(request.input);
        return run(request);
      };
      const tools = await neededTools(flavour, new InstalledPrograms(exec));
      iptables = await createIptables(tools, { exec, log: new RecordingLog() });
      rules = open();
    });

    function open(): FamilyCapture {
      const node = nodeFacts({ hostAddress: address('192.168.50.10') });
      return iptablesCapture({ iptables, clock: systemClock, log: new RecordingLog(), node: () => node });
    }

    test('are installed, verified, and restored after a flush', async () => {
      rules.apply({ upserted: PORTALS, removed: [] });
      await rules.sync({ verify: false });
      const owned = ruleLines(await iptables.save('IPv4', 'nat')).filter((line) => line.includes('--to-'));
      assert.equal(owned.length, 2 * SERVICES + (2 * SERVICES) / 10);

      restored.length = 0;
      await rules.sync({ verify: true });
      assert.deepEqual(restored, [], 'nothing differed');
      assert.ok(await rules.isIntact());

      await iptables.restore('IPv4', '*nat\n-F\nCOMMIT\n');
      assert.equal(await rules.isIntact(), false);
      await rules.sync({ verify: true });
      assert.deepEqual(
        ruleLines(await iptables.save('IPv4', 'nat')).filter((line) => line.includes('--to-')),
        owned,
      );
    });

    test('are adopted by the next run without a write', async () => {
      restored.length = 0;
      rules = open();
      const ports = await rules.installedPorts();
      assert.equal(ports.length, SERVICES);
      assert.deepEqual(
        new Set(ports.map(({ name, localPort }) => `${name} ${localPort}`)),
        new Set(PORTALS.map(({ servicePort, localPort }) => `${servicePort.name} ${localPort}`)),
      );
      rules.apply({ upserted: PORTALS, removed: [] });
      await rules.sync({ verify: false });
      assert.deepEqual(restored, []);
    });

    test('the change of one Service writes a few lines', async () => {
      const fresh = portal({ name: 'late/service', clusterIPs: ['10.97.1.2'], nodePort: 32_000, localPort: 60_000 });
      for (const [what, delta] of [
        ['one more', { upserted: [fresh], removed: [] }],
        ['one less', { upserted: [], removed: [fresh.servicePort.name] }],
        [
          'another local port',
          { upserted: PORTALS.slice(500, 501).map((old) => ({ ...old, localPort: 60_001 })), removed: [] },
        ],
      ] as const) {
        restored.length = 0;
        rules.apply(delta);
        await rules.sync({ verify: false });
        const lines = restored.reduce((sum, text) => sum + text.split('\n').length, 0);
        assert.ok(lines > 3 && lines < 300, `${what}: ${lines} lines`);
      }
      restored.length = 0;
      await rules.sync({ verify: true });
      assert.deepEqual(restored, [], 'the changes were all there was to do');
    });

    test('wait for a Service with all the rules that it may have, in one transaction of each table', async (t) => {
      const timed = async (what: string, delta: PortalDelta) => {
        restored.length = 0;
        rules.apply(delta);
        const begun = performance.now();
        await rules.sync({ verify: false });
        const took = Math.round(performance.now() - begun);
        const lines = restored.reduce((sum, text) => sum + text.split('\n').length, 0);
        t.diagnostic(`${flavour}, ${what}: ${took} ms, ${restored.length} transactions of ${lines} lines`);
        assert.ok(restored.length <= 2 && lines < 6 * MAX_RULES, what);
      };
      const other = portal({ name: 'late/service', clusterIPs: ['10.97.1.2'], localPort: 60_000 });
      for (const [what, portals] of Object.entries({ 'an ordinary Service': [other], ...LARGEST })) {
        await timed(`${what} come`, { upserted: portals, removed: [] });
        await timed(`${what} go`, { upserted: [], removed: portals.map(({ servicePort }) => servicePort.name) });
      }
    });

    test('are all removed with their chains', async () => {
      rules.apply({ upserted: [], removed: PORTALS.map(({ servicePort }) => servicePort.name) });
      await rules.sync({ verify: false });
      const chains = parseDump(await iptables.save('IPv4', 'nat')).get('nat') ?? new Map<string, string[]>();
      assert.deepEqual(
        [...chains.keys()].filter((name) => name.startsWith('KUBE-USP-')),
        [],
      );
      assert.equal(chains.get('KUBE-USERSPACE-RETIRED')?.length, 4096);
      restored.length = 0;
      await rules.sync({ verify: true });
      assert.ok(restored.length <= 1, 'at most the oldest retired ports go');
    });
  });
}

function ruleLines(dump: string): readonly string[] {
  return dump.split('\n').filter((line) => line.startsWith('-A '));
}
