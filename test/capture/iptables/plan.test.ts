import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { JUMPS, ROOT_CHAINS } from '../../../src/capture/iptables/chains.ts';
import { probeText } from '../../../src/capture/iptables/plan.ts';
import { cleanupText, nodeFacts, planText, portal, renderPortals, rule } from '../fixtures.ts';

const RULES = renderPortals([portal({ name: 'default/web', clusterIPs: ['10.96.0.1'] })], nodeFacts()).rules;

describe('the plan for a table', () => {
  for (const [table, jumps] of [
    ['nat', ['-I PREROUTING 1', '-A PREROUTING', '-I OUTPUT 1', '-A OUTPUT']],
    ['filter', ['-I INPUT 1', '-I INPUT 2']],
  ] as const) {
    test(`${table}: all chains, jumps and rules are one transaction where nothing exists yet`, () => {
      const specs = JUMPS.filter((jump) => jump.table === table).map(({ spec }) => spec);
      const rules = RULES.filter((each) => each.table === table);
      assert.equal(
        planText(table, '', RULES),
        [
          `*${table}`,
          ...[...(table === 'filter' ? ['KUBE-DOORS'] : []), ...ROOT_CHAINS[table]].map((chain) => `:${chain} - [0:0]`),
          ...jumps.map((where, i) => `${where} ${specs[i]}`),
          ...rules.map(({ chain, spec }) => `-A ${chain} ${spec}`),
          'COMMIT\n',
        ].join('\n'),
      );
    });
  }

  test('does not try to delete a copy of a jump that text cannot name', () => {
    const [, ...installed] = (planText('filter', '', []) ?? '').split('\n');
    const dump = [
      '*filter',
      ':INPUT ACCEPT [0:0]',
      ...installed.map((line) => line.replace(/^-I INPUT \d/, '-A INPUT')),
    ]
      .join('\n')
      .replace('COMMIT', '-A INPUT -m comment --comment "a\nb" -j KUBE-NODEPORT-NON-LOCAL\nCOMMIT');
    assert.equal(planText('filter', dump, []), undefined);
  });

  test('empties an unwanted chain once, and keeps it while a jump to it cannot be written as text', () => {
    const wanted = (planText('filter', '', []) ?? '').split('\n').slice(1, -2);
    const dumpWith = (...inBucket: readonly string[]) =>
      [
        '*filter',
        ...wanted.map((line) => line.replace(/^-I INPUT \d/, '-A INPUT')),
        '-A SOMEONES -m comment --comment "a\nb" -j KUBE-USP-NL-t80',
        ':KUBE-USP-NL-t80 - [0:0]',
        ':KUBE-USP-NL-t81 - [0:0]',
        ...inBucket,
        'COMMIT\n',
      ].join('\n');
    assert.equal(
      planText('filter', dumpWith('-A KUBE-USP-NL-t80 -j ACCEPT'), []),
      '*filter\n:KUBE-USP-NL-t80 - [0:0]\n:KUBE-USP-NL-t81 - [0:0]\n-X KUBE-USP-NL-t81\nCOMMIT\n',
    );
    assert.equal(planText('filter', dumpWith().replace(/^:.*t81.*\n/m, ''), []), undefined);
  });

  test('is not made from an unsafe rule', () => {
    const unsafe = rule('-j RETURN\nCOMMIT');
    assert.throws(() => planText('nat', '', [unsafe]), /kept out of the restore text/);
  });
});

test('a probe contains the rules of its table only, in a chain without jumps to it', () => {
  const rules = [rule('-j RETURN'), rule('-j ACCEPT', { table: 'filter', chain: 'KUBE-NODEPORT-NON-LOCAL' })];
  assert.equal(
    probeText('nat', rules),
    '*nat\n:KUBE-USERSPACE-PROBE - [0:0]\n-A KUBE-USERSPACE-PROBE -j RETURN\nCOMMIT\n',
  );
});

describe('the plan for cleanup', () => {
  test('is empty where there is nothing of ours', () => {
    const foreign = [
      'KUBE-MARK-DROP',
      'KUBE-MARK-MASQ',
      'KUBE-KUBELET-CANARY',
      'KUBE-SVC-OTHER',
      'KUBE-POD-FW-ABCDEFGHIJKLMNOP',
    ];
    const dump = `*nat\n${foreign.map((chain) => `:${chain} - [0:0]\n-A PREROUTING -j ${chain}\n`).join('')}COMMIT\n`;
    assert.equal(cleanupText('nat', dump), undefined);
    assert.equal(cleanupText('nat', ''), undefined);
  });

  test('keeps rules that only mention our chains in a comment', () => {
    const dump = [
      '*nat',
      ':OUTPUT ACCEPT [0:0]',
      ':KUBE-PORTALS-HOST - [0:0]',
      '-A OUTPUT -m comment --comment "not -j KUBE-PORTALS-HOST" -j RETURN',
      '-A OUTPUT -p udp -j KUBE-PORTALS-HOST',
      'COMMIT\n',
    ].join('\n');
    assert.equal(
      cleanupText('nat', dump),
      [
        '*nat',
        ':KUBE-PORTALS-HOST - [0:0]',
        '-D OUTPUT -p udp -j KUBE-PORTALS-HOST',
        '-X KUBE-PORTALS-HOST',
        'COMMIT\n',
      ].join('\n'),
    );
  });
});
