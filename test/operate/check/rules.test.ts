import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { checkKernelRules, type Offer, sampleRules } from '../../../src/operate/check/kernel-rules.ts';
import { checkLeftovers, type LeftoverFacts } from '../../../src/operate/check/leftovers.ts';
import { of, told } from './levels.ts';

describe('rules that the kernel may lack', () => {
  /** A kernel that knows no rule with this text in it. */
  const kernel =
    (lacks: string | undefined) =>
    async (_family: string, text: string): Promise<Offer> =>
      lacks !== undefined && text.includes(lacks)
        ? { outcome: 'refused', err: 'line 7 failed' }
        : { outcome: 'accepted' };

  test('the sample has every match and target that rules of Services have', () => {
    const text = sampleRules('IPv4', 'nat').text + sampleRules('IPv4', 'filter').text;
    for (const part of ['addrtype', 'comment', 'conntrack', 'DNAT', 'REJECT', '-m udp', '-s 192.0.2.6/32']) {
      assert.ok(text.includes(part), part);
    }
    assert.ok(sampleRules('IPv6', 'nat').text.includes('2001:db8::2/128'));
  });

  test('one that takes all is fine', async () => {
    assert.deepEqual(told(await checkKernelRules(kernel(undefined), ['IPv4', 'IPv6'])), [
      'ok: the kernel takes every kind of rule (IPv4 and IPv6)',
    ]);
  });

  test('a missing match is found by itself', async () => {
    const findings = await checkKernelRules(kernel('-m addrtype'), ['IPv4']);
    const [finding] = of('fail', findings);
    assert.equal(findings.length, 1);
    assert.match(finding!, /refuses 2 kinds of IPv4 nat rules.* → .*modprobe .*xt_addrtype/);
    assert.doesNotMatch(finding!, /xt_DNAT/);
  });

  test('a refusal that no rule explains names the table', async () => {
    const findings = await checkKernelRules(kernel('*filter\n:KUBE-DOORS'), ['IPv6']);
    assert.match(of('fail', findings)[0]!, /refuses the IPv6 filter table: line 7 failed → modprobe ip6table_filter/);
  });

  test('a kernel that cannot be asked is a warning', async () => {
    const findings = await checkKernelRules(
      async () => ({ outcome: 'untold', err: 'unshare: not permitted' }),
      ['IPv4'],
    );
    assert.equal(findings.length, 1);
    assert.match(of('warn', findings)[0]!, /^the kernel was not asked .*: unshare: not permitted → /);
  });
});

describe('other proxies', () => {
  const NOTHING: LeftoverFacts = {
    processes: [],
    serving: undefined,
    flavour: 'nft',
    dumps: [],
    ipvs: undefined,
    interfaces: ['lo'],
    nftTables: '',
  };
  const check = (facts: Partial<LeftoverFacts>) => checkLeftovers({ ...NOTHING, ...facts });
  const dump = (flavour: 'nft' | 'legacy', chains: readonly string[]) => ({
    flavour,
    family: 'IPv4' as const,
    table: 'nat' as const,
    text: ['*nat', ...chains.map((chain) => `:${chain} - [0:0]`), 'COMMIT', ''].join('\n'),
  });

  test('there are none', () => {
    assert.deepEqual(told(check({ dumps: [dump('nft', ['KUBE-MARK-MASQ', 'PREROUTING'])] })), [
      'ok: no other proxy runs here or has left anything',
    ]);
  });

  test('a kube-proxy that runs is a failure', () => {
    const process = { pid: 12, name: 'kube-proxy' };
    assert.match(
      of('fail', check({ processes: [process] }))[0]!,
      /^kube-proxy runs on this node \(process 12\).* --cleanup$/,
    );
    assert.deepEqual(of('fail', check({ processes: [{ ...process, name: 'kube-proxyd' }] })), []);
  });

  test('its chains are told by flavour, with what takes them away', () => {
    const dumps = [dump('legacy', ['KUBE-SERVICES', 'KUBE-SVC-ABCDEFGHIJKLMNOP'])];
    assert.match(
      of('warn', check({ dumps }))[0]!,
      /^the tables of iptables-legacy have 2 chains of kube-proxy.* → kube-userspace-proxy --cleanup/,
    );
  });

  test('our own are taken over in the flavour that is used, and in the way in the other', () => {
    const chains = ['KUBE-PORTALS-HOST', 'KUBE-PORTALS-CONTAINER'];
    assert.match(
      told(check({ dumps: [dump('nft', chains)] }))[0]!,
      /^ok: the tables of iptables-nft have 2 chains of this proxy, which will be taken over$/,
    );
    assert.match(
      of('warn', check({ dumps: [dump('legacy', chains)] }))[0]!,
      /^the tables of iptables-legacy, .* 2 chains of this proxy.* → .*--cleanup/,
    );
  });

  test('a proxy of this program that serves the node is told, wherever it runs', () => {
    assert.deepEqual(told(check({ serving: { pid: 12 } })), [
      'ok: a proxy of this program serves this node (process 12); another would not start beside it',
    ]);
    assert.match(told(check({ serving: { pid: undefined } }))[0]!, /serves this node \(in another container\)/);
  });

  test('tables that cannot be read are not taken for empty', () => {
    const [IPv4, IPv6] = [dump('nft', []), { ...dump('nft', []), family: 'IPv6' as const, text: undefined }];
    assert.deepEqual(of('warn', check({ dumps: [IPv4, IPv6] })), []);
    const dumps = [{ ...IPv4, text: undefined }, IPv6, dump('legacy', [])];
    assert.match(
      of('warn', check({ dumps }))[0]!,
      /^the tables of iptables-nft cannot be read, so what another proxy has/,
    );
  });

  test('what the modes ipvs and nftables leave is told', () => {
    const ipvs =
      'IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\nTCP  0A600001:01BB rr\n';
    assert.match(
      of('warn', check({ ipvs, interfaces: ['lo', 'kube-ipvs0'] }))[0]!,
      /^kube-proxy in ipvs mode has left 1 virtual server of IPVS and the interface kube-ipvs0/,
    );
    assert.deepEqual(of('warn', check({ ipvs: ipvs.split('\n').slice(0, 2).join('\n') })), []);
    assert.match(
      of('warn', check({ nftTables: 'table ip nat\ntable ip kube-proxy\n' }))[0]!,
      /the table ip kube-proxy → nft delete table ip kube-proxy$/,
    );
  });
});
