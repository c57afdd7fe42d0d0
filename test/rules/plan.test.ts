import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CHAINS, JUMPS } from '../../src/rules/chains.ts';
import { planCleanup } from '../../src/rules/cleanup.ts';
import { planTable } from '../../src/rules/plan.ts';
import { probeText } from '../../src/rules/probe.ts';
import { renderPortals } from '../../src/rules/render.ts';
import { nodeFacts, portal, rule } from './fixtures.ts';

const RULES = renderPortals([portal({ name: 'default/web', clusterIPs: ['10.96.0.1'] })], nodeFacts()).rules;

describe('the plan for a table', () => {
  test('that does not exist yet is one transaction with all of it', () => {
    assert.equal(
      planTable({ table: 'nat', dump: '', rules: RULES }),
      [
        '*nat',
        ...CHAINS.nat.map((chain) => `:${chain} - [0:0]`),
        `-I PREROUTING 1 ${JUMPS[0]?.spec}`,
        `-A PREROUTING ${JUMPS[1]?.spec}`,
        `-I OUTPUT 1 ${JUMPS[2]?.spec}`,
        `-A OUTPUT ${JUMPS[3]?.spec}`,
        ...RULES.map(({ chain, spec }) => `-A ${chain} ${spec}`),
        'COMMIT\n',
      ].join('\n'),
    );
  });

  test('leaves the rules of the other table to its own plan', () => {
    assert.equal(
      planTable({ table: 'filter', dump: '', rules: RULES }),
      `*filter\n:KUBE-NODEPORT-NON-LOCAL - [0:0]\n-I INPUT 1 ${JUMPS[4]?.spec}\nCOMMIT\n`,
    );
  });

  test('does not try to delete a copy of a jump that text cannot name', () => {
    const [, ...installed] = (planTable({ table: 'filter', dump: '', rules: [] }) ?? '').split('\n');
    const dump = ['*filter', ':INPUT ACCEPT [0:0]', ...installed.map((line) => line.replace(/^-I INPUT 1/, '-A INPUT'))]
      .join('\n')
      .replace('COMMIT', '-A INPUT -m comment --comment "a\nb" -j KUBE-NODEPORT-NON-LOCAL\nCOMMIT');
    assert.equal(planTable({ table: 'filter', dump, rules: [] }), undefined);
  });

  test('is not made from an unsafe rule, nor for a chain that is not ours', () => {
    const unsafe = rule('-j RETURN\nCOMMIT');
    assert.throws(() => planTable({ table: 'nat', dump: '', rules: [unsafe] }), /kept out of the restore text/);
    const astray = rule('-j RETURN', { chain: 'PREROUTING' });
    assert.throws(() => planTable({ table: 'nat', dump: '', rules: [astray] }), /no chain PREROUTING of ours/);
  });
});

test('a probe holds the rules of its table only, in a chain that nothing leads to', () => {
  const rules = [rule('-j RETURN'), rule('-j ACCEPT', { table: 'filter', chain: 'KUBE-NODEPORT-NON-LOCAL' })];
  assert.equal(
    probeText('nat', rules),
    '*nat\n:KUBE-USERSPACE-PROBE - [0:0]\n-A KUBE-USERSPACE-PROBE -j RETURN\nCOMMIT\n',
  );
});

describe('the plan for cleanup', () => {
  test('is empty where there is nothing of ours', () => {
    const dump = '*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n';
    assert.equal(planCleanup({ table: 'nat', dump }), undefined);
    assert.equal(planCleanup({ table: 'nat', dump: '' }), undefined);
  });

  test('leaves alone what only mentions our chains', () => {
    const dump = [
      '*nat',
      ':OUTPUT ACCEPT [0:0]',
      ':KUBE-PORTALS-HOST - [0:0]',
      '-A OUTPUT -m comment --comment "not -j KUBE-PORTALS-HOST" -j RETURN',
      '-A OUTPUT -p udp -j KUBE-PORTALS-HOST',
      'COMMIT\n',
    ].join('\n');
    assert.equal(
      planCleanup({ table: 'nat', dump }),
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
