import '../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import type { Iptables, Table } from '../../src/contracts/iptables.ts';
import { systemClock } from '../../src/host/system-clock.ts';
import { createExec } from '../../src/iptables/exec.ts';
import { type Flavour, installedFlavours } from '../../src/iptables/flavour.ts';
import { createIptables } from '../../src/iptables/iptables.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { planCleanup } from '../../src/rules/cleanup.ts';
import { parseDump } from '../../src/rules/dump.ts';
import { findRefused } from '../../src/rules/find-refused.ts';
import { iptablesCompliance, probeOf } from '../compliance/iptables.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { nodeFacts, owned, planText, portal, renderPortals } from '../rules/fixtures.ts';
import { readGolden } from '../rules/golden.ts';

const FLAVOURS: readonly Flavour[] = ['nft', 'legacy'];
const RULES = renderPortals([portal({ name: 'default/web', clusterIPs: ['10.96.0.1'] })], nodeFacts()).rules;

const exec = createExec({ clock: systemClock });
const open = (flavour: Flavour | 'auto') => createIptables({ flavour, exec, log: new RecordingLog() });
const run = (program: string, ...args: string[]) =>
  execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
const legacyTables = () => readFileSync('/proc/net/ip_tables_names', 'utf8').split('\n').filter(Boolean);

let temporary: string;

before(() => {
  // The xtables lock is one for all namespaces; other tests on this machine must neither wait nor be waited for.
  temporary = mkdtempSync(join(tmpdir(), 'kup-iptables-'));
  process.env['XTABLES_LOCKFILE'] = join(temporary, 'xtables.lock');
});
after(() => rmSync(temporary, { recursive: true, force: true }));

describe('before any legacy table exists in this namespace', () => {
  test('looking at one shows nothing and does not create it', async () => {
    assert.deepEqual(legacyTables(), []);
    const iptables = await open('legacy');
    for (const table of ['nat', 'filter'] as const) {
      assert.equal(await iptables.save('IPv4', table), '');
      assert.equal(await iptables.save('IPv6', table), '');
    }
    assert.deepEqual(legacyTables(), []);
  });

  test('detecting the flavour does not create it either', async () => {
    await open('auto');
    assert.deepEqual(legacyTables(), []);
  });
});

for (const flavour of FLAVOURS) {
  iptablesCompliance(`the kernel, by iptables-${flavour}`, async () => {
    flush(flavour);
    return open(flavour);
  });

  describe(`iptables-${flavour}`, () => {
    beforeEach(() => flush(flavour));

    test('a newline in the comment of a rule that is not ours does not become a rule of ours', async () => {
      const iptables = await open(flavour);
      const [ours] = RULES;
      run(
        `iptables-${flavour}`,
        ...['-w', '-t', 'nat', '-A', 'POSTROUTING', '-j', 'RETURN', '-m', 'comment', '--comment'],
        `"x\\ '\n-A KUBE-PORTALS-CONTAINER ${ours?.spec.replace(/ -m comment --comment "[^"]*"/, '')}\nCOMMIT\n*filter`,
      );
      const dump = parseDump(await iptables.save('IPv4', 'nat'));
      assert.deepEqual([...dump.keys()], ['nat']);
      assert.equal(dump.get('nat')?.get('POSTROUTING')?.length, 1);
      assert.equal(dump.get('nat')?.has('KUBE-PORTALS-CONTAINER'), false);
      await apply(iptables, 'nat');
      assert.equal(await apply(iptables, 'nat'), false);
    });

    test('a jump to a chain of ours that text cannot name does not keep cleanup from the rest', async () => {
      const iptables = await open(flavour);
      await apply(iptables, 'nat');
      run(
        `iptables-${flavour}`,
        ...['-w', '-t', 'nat', '-A', 'OUTPUT', '-j', 'KUBE-PORTALS-HOST', '-m', 'comment', '--comment', 'x\nCOMMIT'],
      );
      assert.ok(await cleanup(iptables, 'nat'));
      const chains = parseDump(await iptables.save('IPv4', 'nat')).get('nat') ?? new Map();
      assert.deepEqual(
        [...chains.keys()].filter((chain) => chain.startsWith('KUBE-')),
        ['KUBE-PORTALS-HOST'],
      );
      assert.deepEqual(chains.get('KUBE-PORTALS-HOST'), []);
    });

    test("another program's bytes that are no UTF-8 survive", async () => {
      const iptables = await open(flavour);
      await apply(iptables, 'nat');
      const latin1 = ['-w -t nat -A OUTPUT -j KUBE-PORTALS-HOST -m comment --comment', "'caf\\351'"].join(' ');
      run('sh', '-c', `iptables-${flavour} ${latin1.replace("'caf\\351'", '"$(printf "caf\\351")"')}`);
      assert.match(await iptables.save('IPv4', 'nat'), /caf\xe9/);
      assert.ok(await cleanup(iptables, 'nat'));
      assert.doesNotMatch(await iptables.save('IPv4', 'nat'), /KUBE-/);
    });

    test('without the physdev match, exactly the rules that need it are found', async () => {
      const iptables = await open(flavour);
      const rules = owned(renderPortals(readGolden('0.0.0.0').portals, nodeFacts()).rules);
      process.env['XTABLES_LIBDIR'] = extensionsWithout('libxt_physdev.so');
      try {
        const nat = rules.filter((rule) => rule.table === 'nat');
        const refused = await findRefused({ rules: nat, accepts: probeOf(iptables, 'nat') });
        assert.deepEqual(
          refused,
          nat.filter((rule) => rule.spec.includes('-m physdev')),
        );
        assert.equal(refused.length, 2);
      } finally {
        delete process.env['XTABLES_LIBDIR'];
      }
    });

    test('a hint chain in mangle decides the flavour', async () => {
      run(`iptables-${flavour}`, '-w', '-t', 'mangle', '-N', 'KUBE-KUBELET-CANARY');
      try {
        const iptables = await open('auto');
        await apply(iptables, 'nat');
        assert.match(run(`iptables-${flavour}-save`, '-t', 'nat'), /10\.96\.0\.1/);
      } finally {
        run(`iptables-${flavour}`, '-w', '-t', 'mangle', '-X', 'KUBE-KUBELET-CANARY');
      }
    });
  });
}

test('without a hint, rules go where the plain iptables-restore puts them', async () => {
  for (const flavour of FLAVOURS) flush(flavour);
  await apply(await open('auto'), 'nat');
  assert.match(run('iptables-save', '-t', 'nat'), /10\.96\.0\.1/);
});

test('both flavours are found', async () => {
  assert.deepEqual(await installedFlavours(exec), FLAVOURS);
});

test('another holder of the xtables lock is told apart from a refusal', async () => {
  const iptables = await open('legacy');
  const lock = join(temporary, 'xtables.lock');
  const holder = spawn('flock', ['--no-fork', lock, 'sh', '-c', 'echo held; exec sleep 60']);
  try {
    await once(holder.stdout, 'data');
    await assert.rejects(iptables.restore('IPv4', '*nat\nCOMMIT\n'), { name: 'IptablesError', code: 'locked' });
  } finally {
    holder.kill();
  }
});

/** A folder with all of iptables' extensions but one. */
function extensionsWithout(name: string): string {
  const [origin = ''] = globSync('/usr/lib/{*/,}xtables');
  const folder = mkdtempSync(join(temporary, 'extensions-'));
  for (const file of readdirSync(origin)) if (file !== name) symlinkSync(join(origin, file), join(folder, file));
  return folder;
}

function flush(flavour: Flavour): void {
  for (const program of [`iptables-${flavour}`, `ip6tables-${flavour}`]) {
    for (const table of ['nat', 'filter']) {
      run(program, '-w', '-t', table, '-F');
      run(program, '-w', '-t', table, '-X');
    }
  }
}

/** Whether there was something to do. */
async function apply(iptables: Iptables, table: Table, family: IpFamily = 'IPv4'): Promise<boolean> {
  const text = planText(table, await iptables.save(family, table), RULES);
  if (text !== undefined) await iptables.restore(family, text);
  return text !== undefined;
}

async function cleanup(iptables: Iptables, table: Table): Promise<boolean> {
  const text = planCleanup({ table, dump: await iptables.save('IPv4', table) });
  if (text !== undefined) await iptables.restore('IPv4', text);
  return text !== undefined;
}
