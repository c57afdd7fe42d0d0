import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Exec } from '../../../src/kernel/iptables/exec.ts';
import { InstalledPrograms } from '../../../src/kernel/iptables/flavour.ts';
import { createIptables, neededTools } from '../../../src/kernel/iptables/iptables.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

const NFT = 'iptables-restore v1.8.9 (nf_tables)\n';
const LEGACY = 'iptables-restore v1.8.9 (legacy)\n';

/** A machine on which these programs exist and print this. */
function machine(programs: Readonly<Record<string, string>>) {
  const calls: string[] = [];
  const known = new Map(Object.entries(programs));
  const exec: Exec = async ({ program, args }) => {
    calls.push([program, ...args].join(' '));
    const stdout = known.get(program);
    return stdout === undefined ? { outcome: 'missing' } : { outcome: 'exited', code: 0, stdout, stderr: '' };
  };
  return { exec, calls, programs: new InstalledPrograms(exec) };
}

const BOTH = {
  'iptables-restore': NFT,
  'iptables-nft-restore': NFT,
  'iptables-legacy-restore': LEGACY,
  'iptables-nft-save': '*mangle\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n',
  'ip6tables-nft-save': '',
  'iptables-legacy-save': '',
  'ip6tables-legacy-save': '',
};
const HINT = '*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n';
const CANARY = '*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n';

describe('the flavour of iptables', () => {
  test("is the one with kubelet's hint in either family, whatever the machine's default", async () => {
    const nft = { flavour: 'nft', infix: '-nft' };
    const legacy = { flavour: 'legacy', infix: '-legacy' };
    for (const [place, expected] of [
      ['iptables-nft-save', nft],
      ['ip6tables-nft-save', nft],
      ['iptables-legacy-save', legacy],
      ['ip6tables-legacy-save', legacy],
    ] as const) {
      for (const hint of [HINT, CANARY]) {
        for (const standard of [NFT, LEGACY]) {
          const { programs } = machine({ ...BOTH, 'iptables-restore': standard, [place]: hint });
          assert.deepEqual(await programs.choose('auto'), expected, place);
        }
      }
    }
  });

  test("is the machine's own without a hint", async () => {
    for (const [version, flavour] of [
      [NFT, 'nft'],
      [LEGACY, 'legacy'],
      ['iptables-restore v1.6.1\n', 'legacy'],
    ] as const) {
      const { programs } = machine({ ...BOTH, 'iptables-restore': version });
      assert.deepEqual(await programs.choose('auto'), { flavour, infix: '' });
    }
  });

  test('is not taken from a chain that only has a similar name', async () => {
    const { programs } = machine({ ...BOTH, 'iptables-legacy-save': ':KUBE-KUBELET-CANARY-2 - [0:0]\n' });
    assert.deepEqual(await programs.choose('auto'), { flavour: 'nft', infix: '' });
  });

  test('is sought in legacy tables without naming one, which would create it', async () => {
    const { programs, calls } = machine(BOTH);
    await programs.choose('auto');
    assert.deepEqual(
      calls.filter((call) => call.includes('legacy-save')),
      ['iptables-legacy-save', 'ip6tables-legacy-save'],
    );
  });

  test('is found under the plain names where there are no others', async () => {
    const { programs } = machine({ 'iptables-restore': LEGACY });
    assert.deepEqual(await programs.find('legacy'), { flavour: 'legacy', infix: '' });
    assert.equal(await programs.find('nft'), undefined);
    assert.deepEqual(await programs.all(), [{ flavour: 'legacy', infix: '' }]);
  });

  test('is asked for once, however often somebody wants to know', async () => {
    const { programs, calls } = machine({ 'iptables-restore': LEGACY });
    await Promise.all([programs.choose('auto'), programs.all(), programs.find('nft'), programs.choose('auto')]);
    assert.deepEqual(calls.toSorted(), [...new Set(calls)].sort());
  });
});

describe('a machine without iptables', () => {
  test('gets an error with the name of the package', async () => {
    const { programs } = machine({});
    for (const flavour of ['auto', 'nft', 'legacy'] as const) {
      await assert.rejects(neededTools(flavour, programs), {
        code: 'missing',
        message: /^iptables-(nft-|legacy-)?restore is not on PATH: install Debian's package "iptables"$/,
      });
    }
  });

  test('or with the tools of one family only, gets an error for the other only', async () => {
    const { exec } = machine({ ...BOTH, 'iptables-nft-save': '*nat\nCOMMIT\n' });
    const tools = { flavour: 'nft', infix: '-nft' } as const;
    const iptables = await createIptables(tools, { exec, log: new RecordingLog() });
    assert.equal(await iptables.save('IPv4', 'nat'), '*nat\nCOMMIT\n');
    await assert.rejects(iptables.restore('IPv6', '*nat\nCOMMIT\n'), {
      code: 'missing',
      message: /^ip6tables-nft-restore /,
    });
  });
});

test('a restore is one program, which flushes nothing by itself and waits for the lock', async () => {
  const { exec, calls } = machine(BOTH);
  const tools = { flavour: 'legacy', infix: '-legacy' } as const;
  const iptables = await createIptables(tools, { exec, log: new RecordingLog() });
  await iptables.restore('IPv4', '*nat\nCOMMIT\n');
  assert.deepEqual(calls, ['iptables-legacy-restore -w 5 --noflush']);
});
