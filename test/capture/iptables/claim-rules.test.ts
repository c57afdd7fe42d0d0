import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { chainsOf } from '../../../src/capture/iptables/chain-layout.ts';
import { address, ENDPOINT } from '../../support/model.ts';
import { IPV6_NODE, lines, nodeFacts, owned, portal, Rules, renderPortals, rulesOf } from '../fixtures.ts';
import { readGolden } from './golden.ts';

/** Where every local port has a rule. */
const OF_LOCAL_PORTS = ['KUBE-LOCAL-PORTS', 'KUBE-NODEPORT-NON-LOCAL'];

describe('the rules of Service ports', () => {
  test('hold only addresses of the family, spelled as ip6tables-save does', () => {
    const both = portal({ name: 'default/web', clusterIPs: ['10.96.0.1', 'fd00:96:0:0::1'], nodePort: 30080 });
    const { rules } = renderPortals([both], { ...IPV6_NODE, bindAddress: address('fd00::5') });
    const match = (port: number, comment = 'default/web') =>
      `-p tcp -m comment --comment "${comment}" -m tcp --dport ${port}`;
    const dnat = (port: number) => `-j DNAT --to-destination [fd00::5]:${port}`;
    assert.deepEqual(lines(owned(rules)), [
      `nat: -A KUBE-PORTALS-CONTAINER -d fd00:96::1/128 ${match(80)} ${dnat(40001)}`,
      `nat: -A KUBE-PORTALS-HOST -d fd00:96::1/128 ${match(80)} ${dnat(40001)}`,
      `nat: -A KUBE-NODEPORT-CONTAINER ${match(30080)} ${dnat(40001)}`,
      `nat: -A KUBE-NODEPORT-HOST ${match(30080)} ${dnat(40001)}`,
      `nat: -A KUBE-LOCAL-PORTS -d fd00::5/128 ${match(40001, 'default/web proxy port')} ${dnat(1)}`,
      `filter: -A KUBE-NODEPORT-NON-LOCAL ${match(40001)} -j ACCEPT`,
    ]);
  });

  test("do not touch packets for an endpoint's own address and port", () => {
    const web = portal({ name: 'default/web', nodePort: 30080, namedEndpoints: ['fd00:50::10'] });
    const { rules } = renderPortals([web], IPV6_NODE);
    const match = '-p tcp -m comment --comment "default/web" -m tcp --dport';
    assert.deepEqual(lines(owned(rules)), [
      `nat: -A KUBE-NODEPORT-CONTAINER -d fd00:50::10/128 ${match} 30080 -j RETURN`,
      `nat: -A KUBE-NODEPORT-CONTAINER ${match} 30080 -j DNAT --to-destination :40001`,
      `nat: -A KUBE-NODEPORT-HOST -d fd00:50::10/128 ${match} 30080 -j RETURN`,
      `nat: -A KUBE-NODEPORT-HOST ${match} 30080 -j DNAT --to-destination [fd00:50::10]:40001`,
      `nat: -A KUBE-LOCAL-PORTS ${match.replace('web"', 'web proxy port"')} 40001 -j DNAT --to-destination :1`,
      `filter: -A KUBE-NODEPORT-NON-LOCAL ${match} 40001 -j ACCEPT`,
      `filter: -A KUBE-LET-IN -d fd00:50::10/128 ${match} 30080 -j ACCEPT`,
    ]);
    const closed = portal({
      ...{ name: 'default/web', nodePort: 30080 },
      ...{ namedEndpoints: ['fd00:50::10'], closedEndpoints: ['fd00:50::10'] },
    });
    const withClosed = renderPortals([closed], IPV6_NODE);
    assert.deepEqual(lines(owned(withClosed.rules)), lines(owned(rules)).slice(0, -1));
  });

  test("do not touch packets with the mark of the proxy's own connections", () => {
    const book = new Rules(nodeFacts(), []);
    const chains = [...chainsOf(book.trees('nat'), { table: 'nat', family: 'IPv4', connectionMark: 0x2000 })];
    const spared = chains.filter(({ rules }) =>
      rules[0]?.spec.endsWith('proxy to endpoints" -m mark --mark 0x2000/0x2000 -j RETURN'),
    );
    assert.deepEqual(
      spared.map(({ name }) => name),
      ['KUBE-PORTALS-HOST', 'KUBE-NODEPORT-HOST'],
    );
  });

  test('name their owner', () => {
    const { rules } = renderPortals(readGolden('0.0.0.0').portals, nodeFacts());
    for (const { spec, owner } of owned(rules)) assert.match(spec, new RegExp(`--comment "${owner}( proxy port)?"`));
  });

  test('do not depend on the order in which Service ports are given', () => {
    const { portals } = readGolden('0.0.0.0');
    assert.deepEqual(renderPortals(portals.toReversed(), nodeFacts()), renderPortals(portals, nodeFacts()));
  });

  test('limit NodePorts to each network once, host bits cleared', () => {
    const web = portal({ name: 'default/web', nodePort: 30080 });
    const nodePortCidrs = ['192.168.50.10/24', 'fd00::/8', '192.168.50.99/24', '10.0.0.0/8'];
    const { rules } = renderPortals([web], nodeFacts({ nodePortCidrs }));
    const destinations = owned(rules).map(({ chain, spec }) => `${chain} ${/^-d \S+/.exec(spec)}`);
    assert.deepEqual(destinations.sort(), [
      'KUBE-LOCAL-PORTS null',
      'KUBE-NODEPORT-CONTAINER -d 10.0.0.0/8',
      'KUBE-NODEPORT-CONTAINER -d 192.168.50.0/24',
      'KUBE-NODEPORT-HOST -d 10.0.0.0/8',
      'KUBE-NODEPORT-HOST -d 192.168.50.0/24',
      'KUBE-NODEPORT-NON-LOCAL null',
    ]);
  });
});

describe('two Service ports with the same destination', () => {
  const ownersOf = (...portals: Parameters<typeof portal>[0][]) => {
    const apart = portals.map((fields, i) => portal({ ...fields, localPort: 40_001 + i }));
    const { rules, conflicts } = renderPortals(apart, nodeFacts());
    const destinations = owned(rules).filter(({ chain }) => !OF_LOCAL_PORTS.includes(chain));
    return { owners: [...new Set(destinations.map((rule) => rule.owner))], conflicts };
  };

  test('ClusterIP and port: the first name keeps it, the other is reported', () => {
    const clusterIPs = ['10.96.0.1'];
    assert.deepEqual(ownersOf({ name: 'z/late', clusterIPs }, { name: 'a/early', clusterIPs }), {
      owners: ['a/early'],
      conflicts: [{ owner: 'z/late', holder: 'a/early', what: '10.96.0.1:80/TCP' }],
    });
  });

  test('NodePort: the loser keeps its other rules', () => {
    const { owners, conflicts } = ownersOf(
      { name: 'a/web', nodePort: 30080 },
      { name: 'b/web', nodePort: 30080, clusterIPs: ['10.96.0.2'] },
    );
    assert.deepEqual(owners, ['b/web', 'a/web']);
    assert.deepEqual(conflicts, [{ owner: 'b/web', holder: 'a/web', what: 'NodePort 30080/TCP' }]);
  });

  test('an external IP never takes the ClusterIP or load-balancer IP of another Service', () => {
    const { rules, conflicts } = renderPortals(
      [
        portal({ name: 'a/thief', externalIPs: ['10.96.0.1', '203.0.113.10'], localPort: 40666 }),
        portal({ name: 'kube-system/dns', clusterIPs: ['10.96.0.1'] }),
        portal({ name: 'shop/balanced', loadBalancerIPs: ['203.0.113.10'], localPort: 40002 }),
      ],
      nodeFacts(),
    );
    assert.deepEqual(
      rules.filter((rule) => rule.spec.includes('40666')).map(({ chain }) => chain),
      OF_LOCAL_PORTS,
    );
    assert.deepEqual(
      conflicts.map(({ owner, holder, what }) => `${owner} ${holder} ${what}`),
      ['a/thief kube-system/dns 10.96.0.1:80/TCP', 'a/thief shop/balanced 203.0.113.10:80/TCP'],
    );
  });

  test('a load-balancer IP does not take a ClusterIP', () => {
    const { conflicts } = ownersOf(
      { name: 'a/lb', loadBalancerIPs: ['10.96.0.1'] },
      { name: 'b/cluster', clusterIPs: ['10.96.0.1'] },
    );
    assert.deepEqual(conflicts, [{ owner: 'a/lb', holder: 'b/cluster', what: '10.96.0.1:80/TCP' }]);
  });

  test('no conflict: other protocol, other port, other address', () => {
    const { conflicts } = ownersOf(
      { name: 'a/a', clusterIPs: ['10.96.0.1'], nodePort: 30080 },
      { name: 'a/b', clusterIPs: ['10.96.0.1'], nodePort: 30080, protocol: 'UDP' },
      { name: 'a/c', clusterIPs: ['10.96.0.1'], port: 81 },
      { name: 'a/d', clusterIPs: ['10.96.0.2'] },
    );
    assert.deepEqual(conflicts, []);
  });

  test('an address that a Service port has twice gets the stronger rules once', () => {
    const { rules, conflicts } = renderPortals(
      [portal({ name: 'a/a', externalIPs: ['203.0.113.10'], loadBalancerIPs: ['203.0.113.10', '203.0.113.10'] })],
      nodeFacts(),
    );
    assert.deepEqual(conflicts, []);
    assert.equal(owned(rules).length, 4);
  });
});

describe('who has an address', () => {
  const clusterIPs = ['10.96.0.1'];
  const first = portal({ name: 'a/first', clusterIPs, localPort: 40_001 });
  const last = portal({ name: 'z/last', clusterIPs, nodePort: 30_080, localPort: 40_002 });
  const holder = (book: Rules) => book.conflicts().map((conflict) => conflict.holder);

  test('keeps it for as long as it wants it, however its other fields change', () => {
    const book = new Rules(nodeFacts(), [last]);
    book.settle();
    book.set(first);
    assert.deepEqual(holder(book), ['z/last']);
    assert.deepEqual(book.conflictsOf('a/first'), [{ owner: 'a/first', holder: 'z/last', what: '10.96.0.1:80/TCP' }]);
    assert.deepEqual(book.conflictsOf('z/last'), []);
    book.settle();
    book.set(portal({ name: 'z/last', clusterIPs, localPort: 40_003 }));
    assert.deepEqual(holder(book), ['z/last']);
    book.set(portal({ name: 'z/last', clusterIPs: ['10.96.0.2'], localPort: 40_003 }));
    assert.equal(book.holderOf('10.96.0.1:80/TCP'), 'z/last', 'until rules are installed');
    book.settle();
    assert.equal(book.holderOf('10.96.0.1:80/TCP'), 'a/first');
    book.set(last);
    assert.deepEqual(holder(book), ['a/first'], 'it has lost it');
  });

  test('gets it back when it returns before rules are installed', () => {
    const book = new Rules(nodeFacts(), [last]);
    book.settle();
    book.remove('z/last');
    book.set(first);
    book.set(last);
    assert.deepEqual(holder(book), ['z/last']);
  });

  test('yields to a stronger kind all the same', () => {
    const book = new Rules(nodeFacts(), [portal({ name: 'a/thief', externalIPs: clusterIPs, localPort: 40_003 })]);
    book.settle();
    book.set(last);
    assert.deepEqual(holder(book), ['z/last']);
  });

  test('keeps it when the rules are made anew, or were installed by a previous run', () => {
    const installed = (what: string) => (what.startsWith('NodePort') ? undefined : ('z/last' as const));
    for (const portals of [
      [first, last],
      [last, first],
    ]) {
      const book = new Rules(nodeFacts(), portals, installed);
      assert.deepEqual(holder(book), ['z/last']);
      assert.equal(book.holderOf('NodePort 30080/TCP'), undefined);
      book.settle();
      assert.equal(book.holderOf('NodePort 30080/TCP'), 'z/last');
    }
  });
});

describe('an unsafe name', () => {
  for (const [what, name] of [
    ['a newline', 'default/web\n-A KUBE-PORTALS-HOST -j ACCEPT'],
    ['256 bytes', `default/${'a'.repeat(248)}`],
  ] as const) {
    test(`${what}: its rules alone are left out, with the reason`, () => {
      const { rules, unsafe } = renderPortals(
        [
          portal({ name, clusterIPs: ['10.96.0.1'] }),
          portal({ name: 'default/good', clusterIPs: ['10.96.0.2'], localPort: 40_002 }),
        ],
        nodeFacts(),
      );
      assert.deepEqual(
        owned(rules).map((rule) => rule.owner),
        Array(4).fill('default/good'),
      );
      assert.deepEqual(
        unsafe.map(({ rule }) => rule.owner),
        [name, name, name],
      );
      for (const { reason } of unsafe) assert.match(reason, /^it(s| is| holds) /);
    });
  }
});

test('unsafe rules are forgotten with their Service', () => {
  const bad = portal({ name: 'default/wéb', clusterIPs: ['10.96.0.1'] });
  const book = new Rules(nodeFacts(), [bad]);
  assert.equal(book.unsafe().length, 3);
  book.remove(bad.servicePort.name);
  assert.deepEqual(book.unsafe(), []);
});

test('a Service port whose two local ports share a bucket is removed without a trace', () => {
  const others = Array.from({ length: 200 }, (_, i) =>
    portal({ name: `a/svc-${i}`, nodePort: 30_000 + i, localPort: 1_000 + i }),
  );
  const node = nodeFacts({ clusterCidrs: ['10.244.0.0/16'] });
  const book = new Rules(node, others);
  const both = portal({
    name: 'a/both',
    nodePort: 31_000,
    localPort: 60_000,
    localSetPort: 60_001,
    local: { endpoints: [ENDPOINT], internal: false, external: true },
  });
  book.set(both);
  const letIn = rulesOf(book, node).filter(
    ({ chain, owner }) => chain.startsWith('KUBE-USP-NL-') && owner === 'a/both',
  );
  assert.deepEqual(
    letIn.map(({ spec }) => /--comment "[^"]*"|--dport \d+/g.exec(spec)?.[0]),
    ['--comment "a/both"', '--comment "a/both local"'],
  );
  book.remove(both.servicePort.name);
  assert.deepEqual(rulesOf(book, node), rulesOf(new Rules(node, others), node));
});
