import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Iptables, IptablesError, type Table } from '../../src/contracts/iptables.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { planCleanup } from '../../src/rules/cleanup.ts';
import { findRefused } from '../../src/rules/find-refused.ts';
import { planTable } from '../../src/rules/plan.ts';
import { probeCleanupText, probeText } from '../../src/rules/probe.ts';
import { renderPortals } from '../../src/rules/render.ts';
import type { Rule } from '../../src/rules/rule.ts';
import { cidr, IPV6_NODE, nodeFacts, portal, rule } from '../rules/fixtures.ts';
import { comparable, GOLDEN_BINDS, readGolden } from '../rules/golden.ts';

const TABLES: readonly Table[] = ['nat', 'filter'];
const FAMILIES: readonly IpFamily[] = ['IPv4', 'IPv6'];

const GOLDEN_RULES = renderPortals(readGolden('0.0.0.0').portals, nodeFacts()).rules;
const IPV6_RULES = renderPortals(
  [
    portal({
      name: 'default/web:http',
      clusterIPs: ['fd00:96::100'],
      externalIPs: ['2001:db8::77'],
      loadBalancerIPs: ['2001:db8::1:0:0:1'],
      nodePort: 30080,
    }),
    portal({ name: 'default/web:dns', protocol: 'UDP', port: 53, clusterIPs: ['fd00:96::100'], nodePort: 30053 }),
  ],
  { ...IPV6_NODE, nodePortCidrs: ['fd00:50::10/64', '2001:db8::10/128'].map(cidr) },
).rules;

/** `create` yields tables without rules and chains. The suite runs one test at a time. */
export function iptablesCompliance(name: string, create: () => Promise<Iptables>): void {
  describe(`rules on ${name}`, () => {
    for (const bind of GOLDEN_BINDS) {
      test(`what a dump shows is what kube-proxy wrote, bound to ${bind}`, async () => {
        const iptables = await create();
        const golden = readGolden(bind);
        await sync(iptables, renderPortals(golden.portals, nodeFacts({ bindAddress: bind })).rules);
        const dump = (await iptables.save('IPv4', 'nat')) + (await iptables.save('IPv4', 'filter'));
        assert.deepEqual(comparable(dump), golden.rules);
      });
    }

    const spellings: readonly [what: string, rules: readonly Rule[], family: IpFamily][] = [
      ['all forms of rules', GOLDEN_RULES, 'IPv4'],
      ['NodePorts of some addresses', nodePortRules(['192.168.50.10/24', '10.1.2.3/32', '0.0.0.0/0']), 'IPv4'],
      ['IPv6', IPV6_RULES, 'IPv6'],
      ['IPv6 on one address', renderPortals(ipv6Portals(), { ...IPV6_NODE, bindAddress: 'fd00:50::1' }).rules, 'IPv6'],
      ['no Services at all', [], 'IPv4'],
    ];
    for (const [what, rules, family] of spellings) {
      test(`once installed, nothing differs: ${what}`, async () => {
        const iptables = await create();
        assert.notDeepEqual(await sync(iptables, rules, family), []);
        assert.deepEqual(await sync(iptables, rules, family), []);
        assert.equal(ruleLines(await iptables.save(family, 'nat')).length, rules.filter(isNat).length + 4);
      });
    }

    test('a jump that another program has displaced is moved, and nothing else is written', async () => {
      const iptables = await create();
      await sync(iptables, GOLDEN_RULES);
      const foreign = [
        '-A PREROUTING -p tcp -m tcp --dport 8443 -j RETURN',
        '-A PREROUTING -s 10.9.8.7/32 -m comment --comment "of someone\'s" -j ACCEPT',
      ];
      const [first, last] = foreign.map((line) => line.slice('-A PREROUTING '.length));
      await iptables.restore('IPv4', `*nat\n-I PREROUTING 1 ${first}\n-A PREROUTING ${last}\nCOMMIT\n`);
      const [text, ...more] = await sync(iptables, GOLDEN_RULES);
      assert.deepEqual(more, []);
      assert.match(
        text ?? '',
        /^\*nat\n-D PREROUTING .*\n-I PREROUTING 1 .*\n-D PREROUTING .*\n-A PREROUTING .*\nCOMMIT\n$/,
      );
      assert.deepEqual(await targetsOf(iptables, 'nat', 'PREROUTING'), [
        'KUBE-PORTALS-CONTAINER',
        'RETURN',
        'ACCEPT',
        'KUBE-NODEPORT-CONTAINER',
      ]);
      const rest = ruleLines(await iptables.save('IPv4', 'nat'));
      // The tools differ in how they write an apostrophe, so only its presence is looked at.
      assert.ok(rest.includes(foreign[0] ?? ''));
      assert.ok(rest.some((line) => line.includes('10.9.8.7/32') && line.includes('of someone')));
      assert.deepEqual(await sync(iptables, GOLDEN_RULES), []);
    });

    test('a rule ahead of the filter jump is overtaken', async () => {
      const iptables = await create();
      await sync(iptables, GOLDEN_RULES);
      await iptables.restore('IPv4', '*filter\n-I INPUT 1 -s 10.9.8.7/32 -j DROP\nCOMMIT\n');
      await sync(iptables, GOLDEN_RULES);
      assert.deepEqual(await targetsOf(iptables, 'filter', 'INPUT'), ['KUBE-NODEPORT-NON-LOCAL', 'DROP']);
    });

    test('copies of a jump are reduced to one, however they are spelled', async () => {
      const iptables = await create();
      await sync(iptables, GOLDEN_RULES);
      const copy = '-m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j';
      await iptables.restore(
        'IPv4',
        [
          '*nat',
          `-A OUTPUT ${copy} KUBE-PORTALS-HOST`,
          `-I OUTPUT 1 ${copy} KUBE-PORTALS-HOST`,
          '-A OUTPUT -j KUBE-PORTALS-HOST',
          '-A OUTPUT -m addrtype --dst-type LOCAL -j KUBE-NODEPORT-HOST',
          'COMMIT\n',
        ].join('\n'),
      );
      await sync(iptables, GOLDEN_RULES);
      assert.deepEqual(await targetsOf(iptables, 'nat', 'OUTPUT'), ['KUBE-PORTALS-HOST', 'KUBE-NODEPORT-HOST']);
      assert.deepEqual(await sync(iptables, GOLDEN_RULES), []);
    });

    test('a rule that somebody deleted comes back, and only its chain is rewritten', async () => {
      const iptables = await create();
      await sync(iptables, GOLDEN_RULES);
      const before = await iptables.save('IPv4', 'nat');
      const victim = GOLDEN_RULES.find((each) => each.chain === 'KUBE-PORTALS-HOST');
      await iptables.restore('IPv4', `*nat\n-D KUBE-PORTALS-HOST ${victim?.spec}\nCOMMIT\n`);
      const [text, ...more] = await sync(iptables, GOLDEN_RULES);
      assert.deepEqual(more, []);
      assert.deepEqual(text?.match(/^:\S+/gm), [':KUBE-PORTALS-HOST']);
      assert.doesNotMatch(text ?? '', /^-[ID] /m);
      assert.deepEqual(ruleLines(await iptables.save('IPv4', 'nat')), ruleLines(before));
    });

    test('a rule that is not ours, and a wrong order, are put right', async () => {
      const iptables = await create();
      await sync(iptables, GOLDEN_RULES);
      const before = ruleLines(await iptables.save('IPv4', 'nat'));
      const swapped = GOLDEN_RULES.find((each) => each.chain === 'KUBE-NODEPORT-HOST');
      await iptables.restore(
        'IPv4',
        `*nat\n-I KUBE-PORTALS-HOST 1 -j RETURN\n-D KUBE-NODEPORT-HOST ${swapped?.spec}\n-A KUBE-NODEPORT-HOST ${swapped?.spec}\nCOMMIT\n`,
      );
      await sync(iptables, GOLDEN_RULES);
      assert.deepEqual(ruleLines(await iptables.save('IPv4', 'nat')), before);
    });

    test('a chain with all that leads to it comes back', async () => {
      const iptables = await create();
      await sync(iptables, GOLDEN_RULES);
      const before = await iptables.save('IPv4', 'nat');
      await iptables.restore('IPv4', cleanupOf('nat', before));
      assert.equal((await sync(iptables, GOLDEN_RULES)).length, 1);
      assert.deepEqual(ruleLines(await iptables.save('IPv4', 'nat')), ruleLines(before));
    });

    test('Services that are gone leave no rule behind', async () => {
      const iptables = await create();
      await sync(iptables, GOLDEN_RULES);
      await sync(iptables, []);
      assert.equal(ruleLines(await iptables.save('IPv4', 'nat')).length, 4);
      assert.equal(ruleLines(await iptables.save('IPv4', 'filter')).length, 1);
    });

    test('a refused text changes nothing at all, and the error names the line', async () => {
      const iptables = await create();
      const text = '*nat\n:KUBE-PORTALS-HOST - [0:0]\n-A KUBE-PORTALS-HOST -m bogus -j RETURN\nCOMMIT\n';
      const before = comparable(await iptables.save('IPv4', 'nat'));
      await assert.rejects(
        iptables.restore('IPv4', text),
        (error) => error instanceof IptablesError && error.code === 'refused' && error.line === 3,
      );
      assert.deepEqual(comparable(await iptables.save('IPv4', 'nat')), before);
    });

    test('refused rules are found without touching traffic, and all others are installed', async () => {
      const iptables = await create();
      await sync(iptables, GOLDEN_RULES);
      const bad = [
        rule('-p tcp -m bogus --some 1 -j RETURN', { owner: 'shop/odd' }),
        rule('-d 10.96.0.9/32 -p tcp -m comment --comment "shop/odd" -m tcp --dport 99999 -j RETURN'),
      ];
      const wanted = [...bad, ...GOLDEN_RULES, portalRule('10.96.0.200')];
      await assert.rejects(sync(iptables, wanted), { code: 'refused' });

      const hooked = comparable(await iptables.save('IPv4', 'nat'));
      const refused = await findRefused({ rules: wanted.filter(isNat), accepts: probeOf(iptables, 'nat') });
      assert.deepEqual(refused, bad);
      assert.deepEqual(comparable(await iptables.save('IPv4', 'nat')), hooked);

      const accepted = wanted.filter((each) => !refused.includes(each));
      await sync(iptables, accepted);
      assert.deepEqual(await sync(iptables, accepted), []);
    });

    test('cleanup leaves no trace in any table of both families, and all that is not ours', async () => {
      const iptables = await create();
      const foreign = [
        '*nat',
        ':SOMEONES - [0:0]',
        '-A PREROUTING -s 10.9.8.7/32 -j ACCEPT',
        '-A PREROUTING -j SOMEONES',
        'COMMIT',
        '*filter',
        '-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT',
        'COMMIT\n',
      ].join('\n');
      const state = async () =>
        Promise.all(
          FAMILIES.flatMap((family) => TABLES.map(async (table) => comparable(await iptables.save(family, table)))),
        );
      await iptables.restore('IPv4', foreign);
      await iptables.restore('IPv6', foreign.replace('10.9.8.7/32', 'fd00::7/128'));
      const before = await state();

      await sync(iptables, GOLDEN_RULES, 'IPv4');
      await sync(iptables, IPV6_RULES, 'IPv6');
      for (const family of FAMILIES) {
        await iptables.restore(
          family,
          [
            '*nat',
            '-A SOMEONES -p tcp -g KUBE-PORTALS-HOST',
            '-I SOMEONES 1 -m comment --comment "a b" -j KUBE-NODEPORT-HOST',
            '-A PREROUTING -j KUBE-PORTALS-CONTAINER',
            '-A KUBE-PORTALS-HOST -j KUBE-NODEPORT-HOST',
            'COMMIT\n',
          ].join('\n'),
        );
        await iptables.restore(family, probeText('nat', []));
        await iptables.restore(family, probeText('filter', []));
      }

      for (const family of FAMILIES) {
        for (const table of TABLES) {
          await iptables.restore(family, cleanupOf(table, await iptables.save(family, table)));
          assert.equal(planCleanup({ table, dump: await iptables.save(family, table) }), undefined);
        }
      }
      assert.deepEqual(await state(), before);
    });
  });
}

/** Asks the kernel, or what plays it, for its opinion of IPv4 rules. */
export function probeOf(iptables: Iptables, table: Table): (rules: readonly Rule[]) => Promise<boolean> {
  return async (rules) => {
    try {
      await iptables.restore('IPv4', probeText(table, rules));
      return true;
    } catch (error) {
      if (error instanceof IptablesError && error.code === 'refused') return false;
      throw error;
    } finally {
      await iptables.restore('IPv4', probeCleanupText(table));
    }
  };
}

/** The texts that had to be restored. */
async function sync(iptables: Iptables, rules: readonly Rule[], family: IpFamily = 'IPv4'): Promise<readonly string[]> {
  const texts: string[] = [];
  for (const table of TABLES) {
    const text = planTable({ table, dump: await iptables.save(family, table), rules });
    if (text === undefined) continue;
    await iptables.restore(family, text);
    texts.push(text);
  }
  return texts;
}

function cleanupOf(table: Table, dump: string): string {
  const text = planCleanup({ table, dump });
  assert.ok(text !== undefined, `there is something to clean in ${table}`);
  return text;
}

function ruleLines(dump: string): readonly string[] {
  return dump.split('\n').filter((line) => line.startsWith('-A '));
}

async function targetsOf(iptables: Iptables, table: Table, chain: string): Promise<readonly (string | undefined)[]> {
  return ruleLines(await iptables.save('IPv4', table))
    .filter((line) => line.startsWith(`-A ${chain} `))
    .map((line) => / -j (\S+)$/.exec(line)?.[1]);
}

function isNat(each: Rule): boolean {
  return each.table === 'nat';
}

function portalRule(clusterIP: string): Rule {
  const [first] = renderPortals([portal({ name: 'shop/late', clusterIPs: [clusterIP] })], nodeFacts()).rules;
  assert.ok(first !== undefined);
  return first;
}

function nodePortRules(nodePortCidrs: readonly string[]): readonly Rule[] {
  const portals = [
    portal({ name: 'default/web:http', nodePort: 30080 }),
    portal({ name: 'default/web:dns', protocol: 'UDP', nodePort: 30053 }),
  ];
  return renderPortals(portals, nodeFacts({ nodePortCidrs })).rules;
}

function ipv6Portals() {
  return [portal({ name: 'default/web:http', clusterIPs: ['fd00:96::1'], externalIPs: ['fd00::5'], nodePort: 30080 })];
}
