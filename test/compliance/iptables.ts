import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { layoutChange } from '../../src/capture/iptables/chain-layout.ts';
import { findRefused } from '../../src/capture/iptables/find-refused.ts';
import { retiredSpec } from '../../src/capture/iptables/installed.ts';
import { type Iptables, IptablesError, type Table } from '../../src/capture/iptables/iptables.ts';
import { planChange, probeCleanupText, probeText, textOf } from '../../src/capture/iptables/plan.ts';
import type { Rule } from '../../src/capture/iptables/rule.ts';
import type { IpFamily } from '../../src/model/address.ts';
import type { NodeFacts, Portal } from '../../src/model/capture.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import {
  cleanupText,
  IPV6_NODE,
  nodeFacts,
  planText,
  portal,
  Rules,
  renderPortals,
  rule,
  rulesOf,
} from '../capture/fixtures.ts';
import { comparable, GOLDEN_BINDS, readGolden } from '../capture/iptables/golden.ts';
import { address, cidr, ENDPOINT } from '../support/model.ts';

const TABLES = ['nat', 'filter'] as const;
const FAMILIES: readonly IpFamily[] = ['IPv4', 'IPv6'];

const NOTHING = renderPortals([], nodeFacts()).rules;
const PODS = ['10.244.0.0/16', 'fd00:244::/56'];
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
  const installed = async () => {
    const iptables = await create();
    await sync(iptables, GOLDEN_RULES);
    return iptables;
  };

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
      [
        'IPv6 on one address',
        renderPortals(ipv6Portals(), { ...IPV6_NODE, bindAddress: address('fd00:50::1') }).rules,
        'IPv6',
      ],
      ['no Services at all', NOTHING, 'IPv4'],
      ['what is refused or dropped', refusals('IPv4', nodeFacts({ clusterCidrs: PODS })), 'IPv4'],
      ['what is refused or dropped in IPv6', refusals('IPv6', ipv6Node()), 'IPv6'],
      [
        'pods by their interface',
        refusals('IPv4', { ...nodeFacts(), pods: [{ inInterface: { name: 'cali', isPrefix: true } }] }),
        'IPv4',
      ],
      [
        'what is refused on one address',
        refusals('IPv6', { ...ipv6Node(), bindAddress: address('fd00:50::1') }),
        'IPv6',
      ],
      ['buckets', manyPortals('IPv4', 600), 'IPv4'],
      ['buckets of IPv6', manyPortals('IPv6', 600), 'IPv6'],
      ['buckets of single ports of one address', oneAddress(), 'IPv4'],
    ];
    for (const [what, rules, family] of spellings) {
      test(`once installed, nothing differs: ${what}`, async () => {
        const iptables = await create();
        assert.notDeepEqual(await sync(iptables, rules, family), []);
        assert.deepEqual(await sync(iptables, rules, family), []);
        assert.equal(ruleLines(await iptables.save(family, 'nat')).length, rules.filter(isNat).length + 4);
        assert.equal(
          ruleLines(await iptables.save(family, 'filter')).length,
          rules.filter((each) => !isNat(each)).length + 2,
        );
      });
    }

    test('the rules of one chain are listed as a dump has them; of none there are none', async () => {
      const iptables = await installed();
      const dump = await iptables.save('IPv4', 'nat');
      for (const chain of ['PREROUTING', 'KUBE-PORTALS-HOST']) {
        const listed = ruleLines(await iptables.list('IPv4', 'nat', chain));
        assert.ok(listed.length > 1);
        assert.deepEqual(
          listed,
          ruleLines(dump).filter((line) => line.startsWith(`-A ${chain} `)),
        );
      }
      assert.equal(await iptables.list('IPv4', 'nat', 'KUBE-USP-PC-0a60'), '');
      assert.deepEqual(ruleLines(await iptables.list('IPv6', 'nat', 'PREROUTING')), []);
    });

    test('rules that come and go one at a time come to the same as all at once', async () => {
      const iptables = await create();
      const node = nodeFacts();
      const book = new Rules(node, []);
      await sync(iptables, NOTHING);
      let trees = { nat: book.trees('nat'), filter: book.trees('filter') };
      const all = manyList('IPv4', 200);
      const put = (portals: readonly Portal[]) => {
        for (const each of portals) book.set(each);
      };
      const drop = (portals: readonly Portal[]) => {
        for (const each of portals) book.remove(each.servicePort.name);
      };
      for (const act of [
        () => put(all.slice(0, 100)),
        () => put(all.slice(100)),
        () => put([portal({ name: 'far/off', clusterIPs: ['203.0.113.7'], nodePort: 30_000 })]),
        () => drop(all.slice(10, 20)),
        () => drop([...all.slice(0, 10), ...all.slice(20, 150)]),
        () => drop(all),
      ]) {
        act();
        for (const table of TABLES) {
          const changes = [...layoutChange(trees[table], book.trees(table), { table, family: 'IPv4' })];
          const deleted = changes.flatMap((change) => ('deleted' in change ? [change.deleted] : []));
          const filled = changes.flatMap((change) => {
            if ('deleted' in change) return [];
            const { name, rules, jumps } = change.written;
            return [{ name, specs: [...rules.map((each) => each.spec), ...jumps] }];
          });
          const lines = planChange(table, { written: filled, deleted });
          if (lines !== undefined) await iptables.restore('IPv4', textOf(lines));
        }
        trees = { nat: book.trees('nat'), filter: book.trees('filter') };
        assert.deepEqual(await sync(iptables, rulesOf(book, node)), [], 'nothing differs');
      }
    });

    test('buckets that nobody wants any more go, with jumps of others that lead there', async () => {
      const iptables = await create();
      await sync(iptables, manyPortals('IPv4', 600));
      const bucket = /^:(KUBE-USP-PB-\S+)/m.exec(await iptables.save('IPv4', 'nat'))?.[1];
      await iptables.restore(
        'IPv4',
        `*nat\n:SOMEONES - [0:0]\n-A SOMEONES -p tcp -j ${bucket}\n-A SOMEONES -j RETURN\n` +
          ':KUBE-USERSPACE-RETIRED - [0:0]\nCOMMIT\n',
      );
      assert.equal((await sync(iptables, GOLDEN_RULES)).length, 2);
      const dump = await iptables.save('IPv4', 'nat');
      assert.doesNotMatch(dump, /KUBE-USP-|RETIRED/);
      assert.deepEqual(
        ruleLines(dump).filter((line) => line.startsWith('-A SOMEONES')),
        ['-A SOMEONES -j RETURN'],
      );
      assert.deepEqual(await sync(iptables, GOLDEN_RULES), []);
    });

    test('a rule at the end of a chain is all that is written for a port that retired', async () => {
      const iptables = await create();
      const chain = 'KUBE-USERSPACE-RETIRED';
      const specs = [1, 2].map((second) =>
        retiredSpec(
          { name: 'shop/web:http' as ServicePortName, set: 'own', protocol: 'TCP', localPort: 40_000 + second },
          second * 1000,
        ),
      );
      const first = [{ name: chain, specs: specs.slice(0, 1) }];
      await iptables.restore('IPv4', textOf(planChange('nat', { written: first, deleted: [] }) ?? []));
      const more = [{ name: chain, specs: specs.slice(1) }];
      await iptables.restore('IPv4', textOf(planChange('nat', { written: [], appended: more, deleted: [] }) ?? []));
      assert.deepEqual(
        ruleLines(await iptables.list('IPv4', 'nat', chain)),
        specs.map((spec) => `-A ${chain} ${spec}`),
      );
    });

    test('a jump that another program has displaced is moved, and nothing else is written', async () => {
      const iptables = await installed();
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

    test('a rule ahead of the filter jumps, or between them, is overtaken', async () => {
      const iptables = await installed();
      for (const place of [1, 2]) {
        await iptables.restore('IPv4', `*filter\n-I INPUT ${place} -s 10.9.8.7/32 -j DROP\nCOMMIT\n`);
        await sync(iptables, GOLDEN_RULES);
        const targets = await targetsOf(iptables, 'filter', 'INPUT');
        assert.deepEqual(targets.slice(0, 3), ['KUBE-DOORS', 'KUBE-NODEPORT-NON-LOCAL', 'DROP']);
        assert.deepEqual(await sync(iptables, GOLDEN_RULES), []);
      }
    });

    test('copies of a jump are reduced to one, however they are spelled', async () => {
      const iptables = await installed();
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
      const iptables = await installed();
      const before = await iptables.save('IPv4', 'nat');
      const victim = GOLDEN_RULES.find((each) => each.chain === 'KUBE-PORTALS-HOST');
      await iptables.restore('IPv4', `*nat\n-D KUBE-PORTALS-HOST ${victim?.spec}\nCOMMIT\n`);
      const [text, ...more] = await sync(iptables, GOLDEN_RULES);
      assert.deepEqual(more, []);
      assert.deepEqual(text?.match(/^:\S+/gm), [':KUBE-PORTALS-HOST']);
      assert.doesNotMatch(text ?? '', /^-[ID] /m);
      assert.deepEqual(ruleLines(await iptables.save('IPv4', 'nat')), ruleLines(before));
    });

    const swapped = GOLDEN_RULES.find((each) => each.chain === 'KUBE-NODEPORT-HOST')?.spec;
    const damages: readonly [what: string, text: (dump: string) => string][] = [
      ['a rule that is not ours', () => '*nat\n-I KUBE-PORTALS-HOST 1 -j RETURN\nCOMMIT\n'],
      ['a wrong order', () => `*nat\n-D KUBE-NODEPORT-HOST ${swapped}\n-A KUBE-NODEPORT-HOST ${swapped}\nCOMMIT\n`],
      ['chains that are gone, with all that led to them', (dump) => cleanupOf('nat', dump)],
    ];
    for (const [what, text] of damages) {
      test(`repaired in one transaction: ${what}`, async () => {
        const iptables = await installed();
        const before = await iptables.save('IPv4', 'nat');
        await iptables.restore('IPv4', text(before));
        assert.equal((await sync(iptables, GOLDEN_RULES)).length, 1);
        assert.deepEqual(ruleLines(await iptables.save('IPv4', 'nat')), ruleLines(before));
      });
    }

    test('Services that are gone leave no rule behind', async () => {
      const iptables = await installed();
      await sync(iptables, NOTHING);
      assert.equal(ruleLines(await iptables.save('IPv4', 'nat')).length, 5);
      assert.equal(ruleLines(await iptables.save('IPv4', 'filter')).length, 9);
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
      const iptables = await installed();
      const bad = [
        rule('-p tcp -m bogus --some 1 -j RETURN', { owner: 'shop/odd' }),
        rule('-d 10.96.0.9/32 -p tcp -m comment --comment "shop/odd" -m tcp --dport 99999 -j RETURN'),
      ];
      const wanted = [...bad, ...GOLDEN_RULES, portalRule('10.96.0.200')];
      await assert.rejects(sync(iptables, wanted), { code: 'refused' });

      const hooked = comparable(await iptables.save('IPv4', 'nat'));
      const refused = await findRefused(wanted.filter(isNat), probeOf(iptables, 'nat'));
      assert.deepEqual(refused, bad);
      assert.deepEqual(comparable(await iptables.save('IPv4', 'nat')), hooked);

      const accepted = wanted.filter((each) => !refused.includes(each));
      await sync(iptables, accepted);
      assert.deepEqual(await sync(iptables, accepted), []);
    });

    for (const when of ['before ours', 'after ours'] as const) {
      test(`rules of Cilium and kube-router that came ${when} stay as they are, in their order`, async () => {
        const iptables = await create();
        const theirs = async () =>
          Promise.all(
            TABLES.map(async (table) =>
              (await iptables.save('IPv4', table))
                .split('\n')
                .filter((line) => /CILIUM|KUBE-(ROUTER|POD-FW|NWPLCY)/.test(line)),
            ),
          );
        if (when === 'after ours') await sync(iptables, GOLDEN_RULES);
        await iptables.restore('IPv4', NEIGHBOURS);
        const before = await theirs();
        assert.deepEqual(
          before.map((lines) => lines.length),
          [9, 8],
        );
        for (const rules of [GOLDEN_RULES, manyPortals('IPv4', 300), NOTHING]) {
          await sync(iptables, rules);
          assert.deepEqual(await theirs(), before);
          assert.deepEqual(await sync(iptables, rules), []);
        }
        for (const table of TABLES) {
          await iptables.restore('IPv4', cleanupOf(table, await iptables.save('IPv4', table)));
          assert.doesNotMatch(await iptables.save('IPv4', table), /KUBE-(PORTALS|NODEPORT|DOORS|LOCAL|USP)/);
        }
        assert.deepEqual(await theirs(), before);
      });
    }

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

      await sync(iptables, [...GOLDEN_RULES, ...manyPortals('IPv4', 300)], 'IPv4');
      await sync(iptables, [...IPV6_RULES, ...manyPortals('IPv6', 300)], 'IPv6');
      for (const family of FAMILIES) {
        await iptables.restore(
          family,
          [
            '*nat',
            '-A SOMEONES -p tcp -g KUBE-PORTALS-HOST',
            '-I SOMEONES 1 -m comment --comment "a b" -j KUBE-NODEPORT-HOST',
            '-A PREROUTING -j KUBE-PORTALS-CONTAINER',
            '-A KUBE-PORTALS-HOST -j KUBE-NODEPORT-HOST',
            ':KUBE-USERSPACE-RETIRED - [0:0]',
            '-A KUBE-USERSPACE-RETIRED -j RETURN',
            ...KUBE_PROXYS.nat,
            'COMMIT',
            '*filter',
            ...KUBE_PROXYS.filter,
            'COMMIT\n',
          ].join('\n'),
        );
        await iptables.restore(family, probeText('nat', []));
        await iptables.restore(family, probeText('filter', []));
      }

      for (const family of FAMILIES) {
        for (const table of TABLES) {
          await iptables.restore(family, cleanupOf(table, await iptables.save(family, table)));
          assert.equal(cleanupText(table, await iptables.save(family, table)), undefined);
        }
      }
      assert.deepEqual(await state(), before);
    });
  });
}

/** What network plugins keep beside a proxy of Services, at both ends of the chains where our jumps are. */
const NEIGHBOURS = [
  '*nat',
  ':CILIUM_PRE_nat - [0:0]',
  ':CILIUM_OUTPUT_nat - [0:0]',
  ':CILIUM_POST_nat - [0:0]',
  '-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_nat" -j CILIUM_PRE_nat',
  '-I PREROUTING 1 -p tcp -m tcp --dport 8472 -j CILIUM_PRE_nat',
  '-A OUTPUT -m comment --comment "cilium-feeder: CILIUM_OUTPUT_nat" -j CILIUM_OUTPUT_nat',
  '-I POSTROUTING 1 -m comment --comment "cilium-feeder: CILIUM_POST_nat" -j CILIUM_POST_nat',
  '-A CILIUM_PRE_nat -p tcp -m tcp --dport 9 -j RETURN',
  '-A CILIUM_POST_nat -s 10.244.0.0/16 -j MASQUERADE',
  'COMMIT',
  '*filter',
  ':CILIUM_INPUT - [0:0]',
  ':KUBE-ROUTER-INPUT - [0:0]',
  ':KUBE-POD-FW-ABCDEFGHIJKLMNOP - [0:0]',
  ':KUBE-NWPLCY-DEFAULT - [0:0]',
  '-I INPUT 1 -m comment --comment "kube-router netpol" -j KUBE-ROUTER-INPUT',
  '-A INPUT -m comment --comment "cilium-feeder: CILIUM_INPUT" -j CILIUM_INPUT',
  '-A KUBE-ROUTER-INPUT -d 10.96.0.0/16 -j RETURN',
  '-A KUBE-ROUTER-INPUT -j KUBE-POD-FW-ABCDEFGHIJKLMNOP',
  'COMMIT\n',
].join('\n');

/** What kube-proxy's mode iptables leaves behind, in short. */
const KUBE_PROXYS: Readonly<Record<Table, readonly string[]>> = {
  mangle: [':KUBE-PROXY-CANARY - [0:0]'],
  nat: [
    ...['SERVICES', 'NODEPORTS', 'POSTROUTING', 'SVC-NPX46M4PTMTKRN6Y', 'SEP-AAAAAAAAAAAAAAAA'].map(
      (name) => `:KUBE-${name} - [0:0]`,
    ),
    '-I PREROUTING 1 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
    '-I POSTROUTING 1 -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING',
    '-A KUBE-SERVICES -p tcp -m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y',
    '-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS',
    '-A KUBE-SVC-NPX46M4PTMTKRN6Y -j KUBE-SEP-AAAAAAAAAAAAAAAA',
  ],
  filter: [
    ...['SERVICES', 'EXTERNAL-SERVICES', 'FORWARD', 'PROXY-FIREWALL'].map((name) => `:KUBE-${name} - [0:0]`),
    '-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL',
    '-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  ],
};

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
    const text = planText(table, await iptables.save(family, table), rules);
    if (text === undefined) continue;
    await iptables.restore(family, text);
    texts.push(text);
  }
  return texts;
}

function cleanupOf(table: Table, dump: string): string {
  const text = cleanupText(table, dump);
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

function ipv6Node() {
  return { ...IPV6_NODE, pods: PODS.map((each) => ({ source: cidr(each) })) };
}

/** A Service port of each kind that sends traffic elsewhere than to its one listener. */
function refusals(family: IpFamily, node: NodeFacts): readonly Rule[] {
  const ip = (number: number) => (family === 'IPv4' ? `203.0.113.${number}` : `2001:db8::${number}`);
  const ranges = [
    '10.244.1.0/24',
    '192.0.2.0/24',
    '192.168.50.0/24',
    'fd00:244:0:1::/64',
    '2001:db8:9::/48',
    'fd00:50::/64',
  ];
  const fields = [
    { name: 'test/empty', endpoints: [] },
    { name: 'test/elsewhere', endpoints: [], onlyElsewhere: true },
    { name: 'test/local', local: { endpoints: [ENDPOINT], internal: true, external: true }, localSetPort: 40_100 },
    { name: 'test/ranged', loadBalancerSourceRanges: ranges },
    {
      name: 'test/both',
      loadBalancerSourceRanges: ranges,
      local: { endpoints: [], onlyElsewhere: true, internal: false, external: true },
    },
  ] as const;
  const portals = (['TCP', 'UDP'] as const).flatMap((protocol) =>
    fields.map((each, i) =>
      portal({
        ...each,
        name: `${each.name}:${protocol.toLowerCase()}`,
        protocol,
        localPort: 40_000 + i,
        nodePort: 30_000 + i,
        clusterIPs: [ip(10 + i)],
        externalIPs: [ip(20 + i)],
        loadBalancerIPs: [ip(30 + i)],
      }),
    ),
  );
  return renderPortals(portals, node).rules;
}

function ipv6Portals() {
  return [portal({ name: 'default/web:http', clusterIPs: ['fd00:96::1'], externalIPs: ['fd00::5'], nodePort: 30080 })];
}

/** Enough that every root chain of the family has buckets, several deep. */
function manyPortals(family: IpFamily, count: number): readonly Rule[] {
  return renderPortals(manyList(family, count), family === 'IPv4' ? nodeFacts() : IPV6_NODE).rules;
}

function manyList(family: IpFamily, count: number): readonly Portal[] {
  return Array.from({ length: count }, (_, i) =>
    portal({
      name: `ns/svc-${i}`,
      protocol: i % 5 === 0 ? 'UDP' : 'TCP',
      clusterIPs: [family === 'IPv4' ? `10.96.${i >> 8}.${i & 255}` : `fd00:96::${i.toString(16)}`],
      nodePort: 30_000 + i,
      localPort: 1 + 100 * i,
    }),
  );
}

/** Their buckets differ by protocol and port only. */
function oneAddress(): readonly Rule[] {
  const ports = Array.from({ length: 200 }, (_, i) => 256 * i + (i % 3));
  return renderPortals(
    ports.flatMap((port) =>
      (['TCP', 'UDP'] as const).map((protocol) =>
        portal({ name: `ns/${protocol.toLowerCase()}-${port}`, protocol, port: port + 1, clusterIPs: ['10.96.0.1'] }),
      ),
    ),
    nodeFacts(),
  ).rules;
}
