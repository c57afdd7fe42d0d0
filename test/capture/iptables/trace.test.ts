import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Table } from '../../../src/capture/iptables/iptables.ts';
import { type Fate, ruleOwner, type TracedPacket, trace } from '../../../src/capture/iptables/trace.ts';
import type { NodeFacts } from '../../../src/model/capture.ts';
import { FakeIptables } from '../../fakes/fake-iptables.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { address } from '../../support/model.ts';
import { nodeFacts, planText, portal, renderPortals } from '../fixtures.ts';

const NODE = '192.168.50.10';
const LOCAL = [NODE, '10.244.1.1', '127.0.0.1', '192.168.50.77', 'fd00:50::10', '::1'];
const isLocal = (text: string) => LOCAL.includes(text);
const clock = new ManualClock();

function packet(
  fields: Partial<Omit<TracedPacket, 'source' | 'address'>> & { source?: string; address?: string } = {},
) {
  const { source = '198.51.100.1', address: to = '10.96.0.100', ...rest } = fields;
  return {
    protocol: 'TCP' as const,
    port: 80,
    isOwn: false,
    inInterface: rest.isOwn ? '' : undefined,
    isFromNat: false,
    ...rest,
    source: address(source),
    address: address(to),
  };
}

/** Tables of one family; other programs' rules are lines of restore text. */
async function tables(portals: Parameters<typeof renderPortals>[0], node: NodeFacts, others: readonly string[] = []) {
  const iptables = new FakeIptables();
  const { rules } = renderPortals(portals, node);
  for (const table of ['nat', 'filter'] as const) {
    await iptables.restore(node.family, planText(table, '', rules) ?? '');
  }
  if (others.length > 0) await iptables.restore(node.family, `${others.join('\n')}\n`);
  const asked: string[] = [];
  const list = (table: Table, chain: string) => {
    asked.push(chain);
    return iptables.list(node.family, table, chain);
  };
  return { iptables, asked, explain: (one: TracedPacket) => trace(one, { list, isLocal, clock }) };
}

const WEB = portal({
  name: 'default/web:http',
  localPort: 40001,
  clusterIPs: ['10.96.0.100'],
  externalIPs: ['203.0.113.77'],
  nodePort: 30080,
});

/** Ahead of our jumps, as an agent's that also wants to be first. */
const first = (...rules: readonly string[]) => [
  '*filter',
  ...rules.toReversed().map((rule) => rule.replace(/^-A (INPUT|OUTPUT) /, '-I $1 1 ')),
  'COMMIT',
];

function sent(fate: Fate): string {
  return fate.kind === 'sent' ? `${fate.address ?? 'here'}:${fate.port}` : fate.kind;
}

describe('the trace of a packet', () => {
  test('names every rule that matches, in order, through both tables', async () => {
    const { explain } = await tables([WEB], nodeFacts());
    const path = await explain(packet({ address: NODE, port: 30080 }));
    assert.deepEqual(
      path.rules.map(({ table, chain, rule }) => `${table} ${chain} ${rule.replace(/.* -j/, '-j')}`),
      [
        'nat PREROUTING -j KUBE-PORTALS-CONTAINER',
        'nat PREROUTING -j KUBE-NODEPORT-CONTAINER',
        'nat KUBE-NODEPORT-CONTAINER -j DNAT --to-destination :40001',
        'filter INPUT -j KUBE-DOORS',
        'filter INPUT -j KUBE-NODEPORT-NON-LOCAL',
        'filter KUBE-NODEPORT-NON-LOCAL -j ACCEPT',
      ],
    );
    assert.equal(sent(path.nat), `${NODE}:40001`);
    assert.deepEqual(path.filter, { kind: 'passes' });
    assert.ok(path.nat.kind === 'sent');
    assert.deepEqual(ruleOwner(path.nat.by), { name: 'default/web:http', set: 'own', isClosing: false });
  });

  test('of the node itself passes OUTPUT, with the interface that it would use without NAT, then INPUT', async () => {
    const own = { isOwn: true, source: NODE, outInterface: 'eth0' };
    const withRule = async (rule: string, fields: Parameters<typeof packet>[0] = own) => {
      const drop = '-A INPUT -p tcp -m tcp --dport 40001 -j DROP';
      const { explain } = await tables([WEB], nodeFacts(), first(`-A OUTPUT ${rule}`, drop));
      const { filter } = await explain(packet(fields));
      return 'by' in filter ? `${filter.kind} in ${filter.by.chain}` : filter.kind;
    };
    assert.equal(await withRule(`-d ${NODE}/32 -p tcp -m tcp --dport 40001 -j DROP`), 'dropped in OUTPUT');
    assert.equal(await withRule('-d 10.96.0.100/32 -j DROP'), 'dropped in INPUT', 'what NAT has made of it');
    assert.equal(await withRule('-o eth0 -j DROP'), 'dropped in OUTPUT');
    assert.equal(await withRule('-o lo -j DROP'), 'dropped in INPUT');
    assert.equal(await withRule('! -o lo -p tcp -j REJECT'), 'rejected in OUTPUT');
    assert.equal(await withRule('-o eth0 -j DROP', { ...own, outInterface: undefined }), 'unclear in OUTPUT');
    assert.equal(await withRule('-j DROP', { inInterface: 'eth0' }), 'dropped in INPUT', 'it is not its own');
  });

  test('of the node itself arrives by loopback', async () => {
    const accept = first('-A INPUT -i lo -j ACCEPT', '-A INPUT -j DROP');
    const { explain } = await tables([WEB], nodeFacts(), accept);
    const path = await explain(packet({ isOwn: true, source: NODE }));
    assert.deepEqual([sent(path.nat), path.filter.kind], [`${NODE}:40001`, 'passes']);
    assert.equal((await explain(packet({ inInterface: 'eth0' }))).filter.kind, 'dropped');
    // NAT leaves these alone; the second does not come in at all.
    const rules = ['-A OUTPUT -o lo -j ACCEPT', '-A INPUT -p tcp -m conntrack --ctstate DNAT -j ACCEPT'];
    const closed = await tables([WEB], nodeFacts(), first(...rules, '-A INPUT -i lo -j DROP'));
    const own = packet({ isOwn: true, source: NODE, address: NODE, port: 40001, outInterface: 'lo' });
    assert.equal((await closed.explain(own)).filter.kind, 'dropped');
    assert.equal((await closed.explain({ ...own, address: address('203.0.113.5') })).filter.kind, 'passes');
  });

  test('has no output interface in INPUT', async () => {
    const rules = [
      '*filter',
      ':OTHER - [0:0]',
      '-I INPUT 1 -j OTHER',
      '-A OTHER -o eth0 -j ACCEPT',
      '-A OTHER -j DROP',
    ];
    const { explain } = await tables([WEB], nodeFacts(), [...rules, 'COMMIT']);
    assert.equal((await explain(packet())).filter.kind, 'dropped');
    assert.equal((await explain(packet({ isOwn: true, source: NODE, outInterface: 'eth0' }))).filter.kind, 'dropped');
  });

  test('without rules passes', async () => {
    const iptables = new FakeIptables();
    const list = (table: Table, chain: string) => iptables.list('IPv4', table, chain);
    const passes = { kind: 'passes' };
    assert.deepEqual(await trace(packet(), { list, isLocal, clock }), { rules: [], nat: passes, filter: passes });
  });

  test('lists a handful of chains, however many Services there are', async () => {
    const many = Array.from({ length: 3_000 }, (_, i) =>
      portal({
        name: `a/s${i}`,
        clusterIPs: [`10.96.${i >> 8}.${i & 255}`],
        localPort: 20_000 + i,
        nodePort: 25_000 + i,
      }),
    );
    const { asked, explain } = await tables(many, nodeFacts());
    assert.equal(sent((await explain(packet({ address: '10.96.4.4' }))).nat), `${NODE}:${20_000 + 1028}`);
    assert.ok(asked.length <= 12, asked.join());
    assert.ok(asked.some((chain) => chain.startsWith('KUBE-USP-PB-')));
  });
});

describe("another program's rule", () => {
  /** What becomes of a packet for NodePort 30080, once with this rule between our jumps. */
  async function withRule(rule: string, fields: Parameters<typeof packet>[0] = {}, more: readonly string[] = []) {
    const { rules } = renderPortals([WEB], nodeFacts());
    const lines = (planText('nat', '', rules) ?? '').split('\n');
    const at = lines.findIndex((line) => line.startsWith('-A PREROUTING'));
    const iptables = new FakeIptables();
    await iptables.restore('IPv4', lines.toSpliced(at, 0, ...more, `-A PREROUTING ${rule}`).join('\n'));
    const list = (table: Table, chain: string) => iptables.list('IPv4', table, chain);
    const path = await trace(packet({ address: NODE, port: 30080, ...fields }), { list, isLocal, clock });
    return { outcome: sent(path.nat), path };
  }
  const OURS = `${NODE}:40001`;

  for (const [rule, outcome] of [
    ['-p tcp -m tcp --dport 30080 -j DNAT --to-destination 172.17.0.2:80', '172.17.0.2:80'],
    ['-p tcp -j DNAT --to-destination 172.17.0.2', '172.17.0.2:30080'],
    ['-d 192.168.50.0/24 -j REDIRECT --to-ports 15001', 'here:15001'],
    ['-p tcp -j REDIRECT', 'here:30080'],
    ['-p tcp -j DNAT --to-destination :15001', `${NODE}:15001`],
    ['! -d 10.0.0.0/8 -p tcp -m multiport --dports 22,30000:31000 -j ACCEPT', 'passes'],
    ['! -p udp -m comment --comment "a \\"quoted\\" -j DROP" -j ACCEPT', 'passes'],
    ['-m addrtype --dst-type LOCAL -j ACCEPT', 'passes'],
    ['! -s 198.51.100.1/32 -j ACCEPT', OURS],
    ['-d 192.168.50.11 -j ACCEPT', OURS],
    ['-d fd00::/8 -j ACCEPT', OURS],
    ['-p udp -m mark --mark 0x1 -j ACCEPT', OURS],
    ['-p tcp -m mark --mark 0x1 -j ACCEPT', 'unclear'],
    ['-m mark --mark 0x1 -j RETURN', 'unclear'],
    ['-m mark --mark 0x1 -j LOG', OURS],
    ['-p tcp -j DNAT --to-destination 172.17.0.2-172.17.0.9', 'unclear'],
    ['-p tcp -j DNAT --to-destination 172.17.0.2:80-90', 'unclear'],
    ['-p tcp -j DNAT --to-destination 172.17.0.2:80 --random', 'unclear'],
    ['-p tcp -j REDIRECT --to-ports 80-90', 'unclear'],
    ['-p tcp', OURS],
    ['-m addrtype --dst-type BROADCAST -j ACCEPT', 'unclear'],
    ['-i + -j ACCEPT', 'unclear'],
    ['-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT', OURS],
    ['-m conntrack ! --ctstate NEW -j ACCEPT', OURS],
    ['-m conntrack --ctstate DNAT -j ACCEPT', OURS],
    ['-j RETURN', 'passes'],
  ] as const) {
    test(`${rule}: ${outcome}`, async () => assert.equal((await withRule(rule)).outcome, outcome));
  }

  for (const [comment, outcome] of [
    // What has no character that needs quotes gets none from iptables.
    ['-j', 'dropped'],
    ['-g', 'dropped'],
    ['-x', 'dropped'],
    ['--comment', 'dropped'],
    ['""', 'dropped'],
    ['"!"', 'dropped'],
    ['-j -p udp', 'passes'],
    ['--comment ! -p tcp', 'passes'],
  ] as const) {
    test(`its comment ${comment} is no part of what it does: ${outcome}`, async () => {
      const list = async (_: Table, chain: string) => {
        assert.ok(['PREROUTING', 'INPUT'].includes(chain), chain);
        return `-P ${chain} ACCEPT\n-A ${chain} -m comment --comment ${comment} -j DROP\n`;
      };
      assert.equal((await trace(packet(), { list, isLocal, clock })).nat.kind, outcome);
    });
  }

  test('about an interface is unclear unless the interface is known', async () => {
    const rule = '! -i docker0 -p tcp -j ACCEPT';
    assert.equal((await withRule(rule)).outcome, 'unclear');
    assert.equal((await withRule(rule, { inInterface: 'docker0' })).outcome, OURS);
    assert.equal((await withRule(rule, { inInterface: 'eth0' })).outcome, 'passes');
    assert.equal((await withRule('-i cali+ -j ACCEPT', { inInterface: 'cali12' })).outcome, 'passes');
    assert.equal((await withRule('-i cali+ -j ACCEPT', { inInterface: 'eth0' })).outcome, OURS);
  });

  test('may jump and go to chains of its own', async () => {
    const chains = [':DOCKER - [0:0]', ':DEEPER - [0:0]', '-A DOCKER -p udp -j ACCEPT', '-A DOCKER -j DEEPER'];
    assert.equal((await withRule('-j DOCKER', {}, chains)).outcome, OURS);
    const accept = [...chains, '-A DEEPER -j ACCEPT'];
    const { outcome, path } = await withRule('-j DOCKER', {}, accept);
    assert.equal(outcome, 'passes');
    assert.deepEqual(
      path.rules.map(({ chain }) => chain),
      ['PREROUTING', 'PREROUTING', 'DOCKER', 'DEEPER'],
    );
    assert.equal((await withRule('-g DOCKER', {}, chains)).outcome, 'passes', 'what follows is skipped');
    const leaving = [':DOCKER - [0:0]', ':DEEPER - [0:0]', '-A DOCKER -g DEEPER', '-A DOCKER -j ACCEPT'];
    assert.equal((await withRule('-j DOCKER', {}, leaving)).outcome, OURS);
    const returning = [':DOCKER - [0:0]', '-A DOCKER -j RETURN', '-A DOCKER -j ACCEPT'];
    assert.equal((await withRule('-j DOCKER', {}, returning)).outcome, OURS);
  });

  test('with an undecided match does not matter where it decides nothing', async () => {
    const chains = [':OTHER - [0:0]', '-A OTHER -p udp -j ACCEPT', '-A OTHER -j MARK --set-xmark 0x1/0x1'];
    const { outcome, path } = await withRule('-m set --match-set some src -j OTHER', {}, chains);
    assert.equal(outcome, OURS);
    assert.ok(!path.rules.some(({ rule }) => rule.includes('match-set')));
    const deciding = [...chains, '-A OTHER -j ACCEPT'];
    const stopped = await withRule('-m set --match-set some src -j OTHER', {}, deciding);
    assert.ok(stopped.path.nat.kind === 'unclear');
    assert.match(stopped.path.nat.by.rule, /match-set/);
    assert.equal(stopped.path.rules.at(-1), stopped.path.nat.by);
    assert.equal(ruleOwner(stopped.path.nat.by), undefined);
  });

  test('with an undecided match does not matter where the result is the same', async () => {
    const same = await withRule(`-m mark --mark 0x1 -j DNAT --to-destination ${NODE}:40001`);
    assert.deepEqual([same.outcome, same.path.filter.kind], [OURS, 'passes']);
    for (const target of ['REDIRECT --to-ports 40002', 'DNAT --to-destination 172.17.0.2:40001']) {
      assert.equal((await withRule(`-m mark --mark 0x1 -j ${target}`)).outcome, 'unclear');
    }
    const { path } = await withRule('-m mark --mark 0x1 -j ACCEPT', {}, ['-A PREROUTING -m mark --mark 0x2 -j DROP']);
    assert.deepEqual(
      path.rules.map(({ rule }) => rule.replace(/.*-j/, '-j')),
      ['-j KUBE-PORTALS-CONTAINER', '-j DROP'],
      'it ends at the first that would',
    );
  });

  test('does not block the event loop, however many there are', async () => {
    const banned = Array.from({ length: 10_000 }, (_, i) => `-A PREROUTING -s 10.1.${i >> 8}.${i & 255}/32 -j DROP`);
    const text = ['-P PREROUTING ACCEPT', ...banned, '-A PREROUTING -p tcp -j REDIRECT --to-ports 8080', ''].join('\n');
    let readings = 0;
    let turns = 0;
    // To which everything seems to take a millisecond.
    const slow = {
      now: () => ++readings,
      wallNow: () => 0,
      after: (_: number, callback: () => void) => {
        turns += 1;
        setImmediate(callback);
        return { cancel: () => {} };
      },
    };
    const list = async (table: Table) => (table === 'nat' ? text : '-P INPUT ACCEPT\n');
    const { nat } = await trace(packet(), { list, isLocal, clock: slow });
    assert.equal(sent(nat), 'here:8080');
    assert.ok(turns > banned.length / 10, `${turns} turns of the event loop`);
  });

  test('with an unknown target, or in a loop, ends the trace', async () => {
    const list = async (_: Table, chain: string) =>
      chain === 'TPROXY' ? '' : `-P ${chain} ACCEPT\n-A ${chain} -j ${chain}\n`;
    assert.equal((await trace(packet(), { list, isLocal, clock })).nat.kind, 'unclear');
    const unknown = async (_: Table, chain: string) =>
      chain === 'TPROXY' ? '' : `-P ${chain} ACCEPT\n-A ${chain} -j TPROXY\n`;
    assert.equal((await trace(packet(), { list: unknown, isLocal, clock })).nat.kind, 'unclear');
  });

  test('about the type of a foreign address is understood only for LOCAL', async () => {
    const elsewhere = { address: '203.0.113.5' };
    assert.equal((await withRule('-m addrtype --dst-type LOCAL -j DROP', elsewhere)).outcome, 'passes');
    assert.equal((await withRule('-m addrtype --dst-type UNICAST -j DROP', elsewhere)).outcome, 'unclear');
  });

  test('in filter is matched against the packet after NAT', async () => {
    const redirect = ['*nat', '-A PREROUTING -p tcp -m tcp --dport 82 -j REDIRECT --to-ports 8080', 'COMMIT'];
    const drops = first('-A INPUT -d 192.168.50.10/32 -p tcp -j DROP');
    const { explain, iptables } = await tables([WEB], nodeFacts(), [...drops, ...redirect]);
    assert.equal((await explain(packet())).filter.kind, 'dropped');
    assert.equal((await explain(packet({ port: 82 }))).filter.kind, 'unclear', 'redirected to one of its addresses');
    assert.equal((await explain(packet({ isOwn: true, source: NODE }))).filter.kind, 'dropped');
    const dnat = '-A PREROUTING -p tcp -m tcp --dport 81 -j DNAT --to-destination 172.17.0.2:80';
    await iptables.restore('IPv4', `*filter\n-I INPUT 1 -p tcp -j DROP\nCOMMIT\n*nat\n${dnat}\nCOMMIT\n`);
    const { nat, filter } = await explain(packet({ port: 81 }));
    assert.deepEqual([sent(nat), filter.kind], ['172.17.0.2:80', 'passes']);
  });

  test('is not needed to stop a packet: the policy of a chain can', async () => {
    const redirect = ['*nat', '-A PREROUTING -p tcp -m tcp --dport 82 -j REDIRECT --to-ports 8080', 'COMMIT'];
    const { iptables } = await tables([WEB], nodeFacts(), redirect);
    const list = async (table: Table, chain: string) =>
      (await iptables.list('IPv4', table, chain)).replace('-P INPUT ACCEPT', '-P INPUT DROP');
    const outcome = async (one: TracedPacket) => (await trace(one, { list, isLocal, clock })).filter.kind;
    assert.equal(await outcome(packet({ port: 82 })), 'dropped');
    assert.equal(await outcome(packet()), 'passes', 'our rule accepts what NAT has sent to a local port');
  });
});
