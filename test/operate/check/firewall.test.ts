import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { IpFamily } from '../../../src/model/address.ts';
import { type Cidr, parseCidr } from '../../../src/model/address.ts';
import { checkFirewall, nftInputChains } from '../../../src/operate/check/firewall.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { of, told } from './levels.ts';

const FINE = ['ok: no firewall is known to drop what the rules of the proxy let in'];

/** With these rules in INPUT, and what other chains there are, as `iptables -S` prints them. */
async function check(
  input: readonly string[],
  {
    chains = {},
    pods = [],
    family = 'IPv4',
  }: { chains?: Record<string, string>; pods?: string[]; family?: IpFamily } = {},
) {
  const texts: Record<string, string> = { INPUT: input.join('\n'), ...chains };
  return await checkFirewall(
    [
      {
        family,
        program: family === 'IPv4' ? 'iptables' : 'ip6tables-legacy',
        clusterCidrs: pods.map((text) => parseCidr(text) as Cidr),
        localPort: 40_000,
        list: async (table, chain) =>
          table === 'filter' ? (texts[chain] ?? '') : assert.fail('nat says nothing here'),
        clock: new ManualClock(),
      },
    ],
    [],
  );
}

const POLICY = '-P INPUT DROP';
const USUAL = ['-A INPUT -i lo -j ACCEPT', '-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT'];

describe('the rules of others in INPUT', () => {
  test('let everybody in by default', async () => {
    assert.deepEqual(told(await check(['-P INPUT ACCEPT', ...USUAL])), FINE);
  });

  test('that let nobody in are told with their policy, and what lets pods in', async () => {
    assert.deepEqual(of('warn', await check([POLICY, ...USUAL, '-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT'])), [
      'TCP and UDP from pods to Services, which comes in at local ports, is dropped by the policy of INPUT (iptables, which the proxy does not use) → ' +
        'iptables -I INPUT -m conntrack --ctstate DNAT -j ACCEPT, and the same in the configuration of that firewall',
    ]);
    assert.match(
      of('warn', await check([POLICY], { family: 'IPv6' }))[0]!,
      /\(ip6tables-legacy, .*\) → ip6tables-legacy -I INPUT /,
    );
  });

  test('are told with the rule that keeps pods out, in whichever chain', async () => {
    const chains = { fw: '-N fw\n-A fw -p udp -j REJECT --reject-with icmp-port-unreachable\n-A fw -p tcp -j DROP' };
    const warnings = of('warn', await check(['-P INPUT ACCEPT', '-A INPUT -j fw'], { chains }));
    assert.equal(warnings.length, 2);
    assert.match(warnings[0]!, /^TCP from .* is dropped by "-p tcp -j DROP" in fw \(iptables, /);
    assert.match(
      warnings[1]!,
      /^UDP from .* is rejected by "-p udp -j REJECT --reject-with [\w-]+" in fw \(iptables, /,
    );
  });

  test('may let in what NAT has sent, or local ports', async () => {
    for (const rule of ['-m conntrack --ctstate DNAT', '-p tcp -m tcp --dport 32768:60999']) {
      const findings = await check([POLICY, `-A INPUT ${rule} -j ACCEPT`, '-A INPUT -p udp -j ACCEPT']);
      assert.deepEqual(told(findings), FINE, rule);
    }
    assert.equal(of('warn', await check([POLICY, '-A INPUT -p tcp -m tcp --dport 30000:32767 -j ACCEPT'])).length, 1);
  });

  test('may let pods in by their addresses or interfaces, which are not known here', async () => {
    for (const rule of ['-s 10.244.0.0/16', '-i cni+', '-s 10.0.0.0/8 -i cbr0', '-m set --match-set pods src']) {
      assert.deepEqual(told(await check([POLICY, ...USUAL, `-A INPUT ${rule} -j ACCEPT`])), FINE, rule);
    }
    const chains = { pods: '-N pods\n-A pods -s 10.244.0.0/16 -j ACCEPT' };
    assert.deepEqual(told(await check([POLICY, '-A INPUT -i cni0 -j pods'], { chains })), FINE);
  });

  test('are judged by where pods are, once that is known', async () => {
    const rules = [POLICY, '-A INPUT -s 10.9.0.0/16 -j ACCEPT'];
    assert.equal(of('warn', await check(rules, { pods: ['10.244.0.0/16', 'fd00::/64'] })).length, 1);
    assert.deepEqual(told(await check(rules, { pods: ['10.9.7.0/24'] })), FINE);
  });

  test('are those of others: what this proxy has given out is not asked for', async () => {
    const chains = { 'KUBE-NODEPORT-NON-LOCAL': '-A KUBE-NODEPORT-NON-LOCAL -p tcp -m tcp --dport 40000 -j ACCEPT' };
    const rules = [POLICY, '-A INPUT -j KUBE-NODEPORT-NON-LOCAL'];
    assert.match(of('warn', await check(rules, { chains }))[0]!, /^TCP and UDP/);
  });

  test('need no word where there are none', async () => {
    assert.deepEqual(told(await checkFirewall([], [])), FINE);
  });

  test('that tell very many clients apart are not judged', async () => {
    const many = Array.from(
      { length: 300 },
      (_, i) => `-A INPUT -s 10.${i >> 8}.${i & 255}.0/24 -p tcp -m tcp --dport 22 -j ACCEPT`,
    );
    assert.deepEqual(told(await check([POLICY, ...many])), FINE);
  });
});

describe("tables of nft's own", () => {
  const chain = (...rules: readonly string[]) => ({
    name: 'inet fw input',
    text: [
      'table inet fw {',
      '\tchain input {',
      '\t\ttype filter hook input priority filter; policy drop;',
      ...rules.map((rule) => `\t\t${rule}`),
      '\t}',
      '}',
      '',
    ].join('\n'),
  });
  const usual = ['iifname "lo" accept', 'ct state established,related accept', 'tcp dport { 22, 10250 } accept'];

  test('are found by their base chains, but for those of iptables', () => {
    const list = [
      'table ip filter {',
      '\tchain INPUT {',
      '\t\ttype filter hook input priority filter; policy drop;',
      '\t}',
      '}',
      'table inet fw {',
      '\tchain output {',
      '\t\ttype filter hook output priority filter; policy accept;',
      '\t}',
      '\tchain input {',
      '\t\ttype filter hook input priority filter; policy drop;',
      '\t}',
      '\tchain helper {',
      '\t}',
      '}',
      '',
    ].join('\n');
    assert.deepEqual(nftInputChains(list), ['inet fw input']);
    assert.deepEqual(nftInputChains(''), []);
  });

  test('that let nobody in are told', async () => {
    const [warning, ...more] = of('warn', await checkFirewall([], [chain(...usual, 'ip protocol icmp accept')]));
    assert.match(
      warning ?? '',
      /^the nft chain inet fw input drops .* → nft insert rule inet fw input ct status dnat acc/,
    );
    assert.deepEqual(more, []);
  });

  test('that may let clients in are not', async () => {
    const rules = [
      'ct status dnat accept',
      'iifname "cni*" accept',
      'ip saddr 10.244.0.0/16 accept',
      'jump input_allow',
    ];
    for (const rule of rules) assert.deepEqual(told(await checkFirewall([], [chain(...usual, rule)])), FINE, rule);
    const open = { ...chain(...usual), text: chain(...usual).text.replace('policy drop', 'policy accept') };
    assert.deepEqual(told(await checkFirewall([], [open])), FINE);
  });
});
