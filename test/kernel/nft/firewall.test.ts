import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { afterEach, describe, test } from 'node:test';
import { createExec, type Exec } from '../../../src/kernel/iptables/exec.ts';
import { InstalledPrograms } from '../../../src/kernel/iptables/flavour.ts';
import { createFirewall } from '../../../src/kernel/nft/firewall.ts';
import type { IpFamily } from '../../../src/model/address.ts';
import { systemClock as clock } from '../../../src/util/system-clock.ts';

const OURS =
  '-A INPUT -m mark --mark 0x2000/0x2000 -m comment --comment "kube-userspace-proxy: what its nft table has marked" -j ACCEPT';

const firewallBy = (exec: Exec, mark: number | undefined) =>
  createFirewall({ exec, programs: new InstalledPrograms(exec), mark });

for (const flavour of ['nft', 'legacy'] as const) {
  for (const family of ['IPv4', 'IPv6'] as const satisfies readonly IpFamily[]) {
    describe(`beside a firewall in ${family} iptables-${flavour}`, () => {
      const program = `${family === 'IPv4' ? 'iptables' : 'ip6tables'}-${flavour}`;
      const iptables = (...args: readonly string[]) => execFileSync(program, ['-w', ...args], { encoding: 'utf8' });
      const input = () => iptables('-S', 'INPUT').trimEnd().split('\n');
      const firewall = firewallBy(createExec({ clock }), 0x2000);

      afterEach(() => {
        iptables('-P', 'INPUT', 'ACCEPT');
        iptables('-F', 'INPUT');
      });

      test('what our table has marked is accepted before anything else, once', async () => {
        iptables('-P', 'INPUT', 'DROP');
        iptables('-A', 'INPUT', '-i', 'lo', '-j', 'ACCEPT');
        assert.equal(await firewall.isIntact(family), false);
        await firewall.letIn(family);
        await firewall.letIn(family);
        assert.deepEqual(input(), ['-P INPUT DROP', OURS, '-A INPUT -i lo -j ACCEPT']);
        assert.equal(await firewall.isIntact(family), true);
      });

      test('a rule that was flushed, doubled or moved is put back', async () => {
        iptables('-A', 'INPUT', '-j', 'DROP');
        await firewall.letIn(family);
        iptables('-F', 'INPUT');
        iptables('-P', 'INPUT', 'DROP');
        assert.equal(await firewall.isIntact(family), false);
        await firewall.letIn(family);
        assert.deepEqual(input(), ['-P INPUT DROP', OURS]);
        iptables('-I', 'INPUT', '-p', 'tcp', '-j', 'DROP');
        await firewall.letIn(family);
        assert.deepEqual(input(), ['-P INPUT DROP', OURS, '-A INPUT -p tcp -j DROP']);
      });

      test('nothing is written where nothing can drop, and our rule goes on its own', async () => {
        await firewall.letIn(family);
        assert.deepEqual(input(), ['-P INPUT ACCEPT']);
        assert.equal(await firewall.isIntact(family), true);
        iptables('-A', 'INPUT', '-p', 'tcp', '-j', 'DROP');
        await firewall.letIn(family);
        assert.equal(input()[1], OURS);
        await firewall.remove(family);
        assert.deepEqual(input(), ['-P INPUT ACCEPT', '-A INPUT -p tcp -j DROP']);
      });

      test('our rule goes when what needed it is gone', async () => {
        iptables('-A', 'INPUT', '-p', 'tcp', '-j', 'DROP');
        await firewall.letIn(family);
        iptables('-D', 'INPUT', '-p', 'tcp', '-j', 'DROP');
        await firewall.letIn(family);
        assert.deepEqual(input(), ['-P INPUT ACCEPT']);
      });
    });
  }
}

test('without iptables nothing is asked of it', async () => {
  const asked: string[] = [];
  const firewall = firewallBy(async ({ program }) => {
    asked.push(program);
    return { outcome: 'missing' };
  }, 0x2000);
  await firewall.letIn('IPv4');
  assert.equal(await firewall.isIntact('IPv4'), true);
  await firewall.remove('IPv4');
  assert.deepEqual(
    asked.filter((program) => !program.endsWith('-restore')),
    [],
  );
});

test('without a mark there is nothing to tell packets apart by', async () => {
  const firewall = firewallBy(() => assert.fail('a program was started'), undefined);
  await firewall.letIn('IPv4');
  await firewall.remove('IPv4');
  assert.equal(await firewall.isIntact('IPv4'), true);
});
