import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseDump } from '../../../src/capture/iptables/dump.ts';
import { IptablesError, type Table } from '../../../src/capture/iptables/iptables.ts';
import type { Address, IpFamily } from '../../../src/model/address.ts';
import type { Portal } from '../../../src/model/capture.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import type { ServicePort } from '../../../src/model/service-port.ts';
import { ProblemLog } from '../../../src/sync/problem-log.ts';
import { FakeIptables } from '../../fakes/fake-iptables.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { iptablesCapture } from '../../support/capture.ts';
import { cidr, address as ip, servicePort } from '../../support/model.ts';
import { nodeFacts } from '../fixtures.ts';

function portal(
  name: ServicePortName,
  clusterIP: string,
  localPort: number,
  overrides: Partial<ServicePort> = {},
): Portal {
  return { servicePort: servicePort({ name, clusterIPs: [ip(clusterIP)], ...overrides }), localPort };
}

/** Counts readings of the "kernel", and fails where a test wants it to. */
class FaultyIptables extends FakeIptables {
  fault: IptablesError | undefined;
  saves = 0;
  lists = 0;

  override async save(family: IpFamily, table: Table): Promise<string> {
    this.saves++;
    if (this.fault !== undefined) throw this.fault;
    return super.save(family, table);
  }

  override async list(family: IpFamily, table: Table, chain: string): Promise<string> {
    this.lists++;
    return super.list(family, table, chain);
  }

  override async restore(family: IpFamily, text: string): Promise<void> {
    if (this.fault !== undefined) throw this.fault;
    return super.restore(family, text);
  }
}

/** One run of the program; a second one may have the "kernel" of the first. */
function harness(iptables = new FaultyIptables(), clock = new ManualClock()) {
  const log = new RecordingLog();
  const counts = {
    restoreFailures: 0,
    partialFailures: 0,
    rules: {} as Partial<Record<Table, { readonly total: number; readonly written: number; readonly leftOut: number }>>,
  };
  const host = { address: ip('192.168.50.10') as Address | undefined };
  const rules = iptablesCapture({
    iptables,
    clock,
    log,
    metrics: {
      changesQueued: () => {},
      syncDone: () => {},
      restoreFailed: (kind) => {
        counts.restoreFailures++;
        if (kind === 'partial') counts.partialFailures++;
      },
      rulesInstalled: (table, rules) => {
        counts.rules[table as Table] = rules;
      },
    },
    family: 'IPv4',
    node: () => (host.address === undefined ? undefined : nodeFacts({ hostAddress: host.address })),
  });
  // As the controller does.
  const problems = new ProblemLog(log, clock);
  const sync = rules.sync.bind(rules);
  rules.sync = async (how) => {
    const result = await sync(how);
    problems.report(rules.problems());
    return result;
  };
  const put = (...upserted: readonly Portal[]) => rules.apply({ upserted, removed: [] });
  const drop = (...removed: Portal[]) =>
    rules.apply({ upserted: [], removed: removed.map((portal) => portal.servicePort.name) });
  const chains = async (table: Table = 'nat') => parseDump(await iptables.save('IPv4', table)).get(table);
  const chain = async (name: string) => (await chains())?.get(name);
  const owners = async () =>
    (await chain('KUBE-PORTALS-CONTAINER'))?.map((spec) => /--comment "([^"]*)"/.exec(spec)?.[1]);
  return { iptables, clock, log, counts, host, rules, put, drop, chains, chain, owners };
}

const CHANGED = { verify: false };
const VERIFY = { verify: true };

/** So many that every root chain has buckets. */
const MANY = Array.from({ length: 300 }, (_, i) =>
  portal(`ns/svc-${i}`, `10.96.1.${i % 256}`, 33_000 + 20 * i, { port: 80 + (i >> 8), nodePort: 31_000 + i }),
);

const WEB = portal('shop/web', '10.96.0.1', 4001, { nodePort: 30_080 });
const DNS = portal('kube-system/dns', '10.96.0.10', 4002, { externalIPs: [ip('192.0.2.7')] });

/** A run that has installed rules for these. */
async function installed(...portals: readonly Portal[]) {
  const h = harness();
  h.put(...portals);
  await h.rules.sync(CHANGED);
  return h;
}

describe('a rule sync', () => {
  test('installs the rules, and touches nothing while nothing changes', async () => {
    const h = await installed(WEB, DNS);
    assert.deepEqual(await h.owners(), ['kube-system/dns', 'shop/web', 'kube-system/dns']);
    const { saves } = h.iptables;
    const restores = h.iptables.restored.length;
    await h.rules.sync(CHANGED);
    h.put(DNS, WEB);
    await h.rules.sync(CHANGED);
    assert.deepEqual([h.iptables.saves, h.iptables.restored.length], [saves, restores]);
  });

  test('writes what changed without reading the kernel, and only the chains that it is in', async () => {
    const h = await installed(...MANY);
    const { saves } = h.iptables;
    const restores = h.iptables.restored.length;
    h.put(portal('ns/svc-7', '10.96.1.7', 34_567, { nodePort: 31_007 }));
    await h.rules.sync(CHANGED);
    assert.equal(h.iptables.saves, saves);
    const [filter = '', nat = '', ...more] = h.iptables.restored.slice(restores);
    assert.deepEqual(more, []);
    assert.match(filter, /^\*filter\n(:KUBE-USP-NL-\w+ - \[0:0\]\n)+(-A .*\n)+COMMIT\n$/);
    assert.deepEqual(nat.match(/^:\S+/gm), [
      ':KUBE-USP-LP-t81',
      ':KUBE-USP-LP-t87',
      ':KUBE-USP-NC-t791',
      ':KUBE-USP-NH-t791',
      ':KUBE-USP-PB-0a60010',
      ':KUBE-USERSPACE-RETIRED',
    ]);
    assert.ok(nat.split('\n').length < 150);
    await h.rules.sync(VERIFY);
    assert.equal(h.iptables.restored.length, restores + 2, 'and that was all');
  });

  test('makes buckets when rules become many, and takes them back when they become few', async () => {
    const h = await installed(...MANY);
    const roots = ['KUBE-PORTALS-CONTAINER', 'KUBE-PORTALS-HOST', 'KUBE-NODEPORT-CONTAINER', 'KUBE-NODEPORT-HOST'];
    for (const root of roots) {
      for (const spec of (await h.chain(root)) ?? []) assert.match(spec, /-j KUBE-(USP-\S+|LOCAL-PORTS)$/);
    }
    h.drop(...MANY.slice(16));
    await h.rules.sync(CHANGED);
    assert.equal((await h.owners())?.length, 16);
    assert.deepEqual(
      [...((await h.chains())?.keys() ?? [])].filter((name) => name.startsWith('KUBE-')).sort(),
      [...roots, 'KUBE-LOCAL-PORTS', 'KUBE-USERSPACE-RETIRED'].sort(),
    );
    const restores = h.iptables.restored.length;
    await h.rules.sync(VERIFY);
    assert.equal(h.iptables.restored.length, restores);
  });

  test('that verifies reads the kernel, writes nothing when it agrees, and repairs what was removed', async () => {
    const h = await installed(WEB, ...MANY);
    const restores = h.iptables.restored.length;
    await h.rules.sync(VERIFY);
    assert.equal(h.iptables.restored.length, restores);
    await h.iptables.restore('IPv4', '*nat\n:KUBE-USP-PB-0a60010 - [0:0]\nCOMMIT\n');
    await h.rules.sync(VERIFY);
    assert.equal((await h.chain('KUBE-USP-PB-0a60010'))?.length, 32);
  });

  test('adopts the rules of an earlier run, and deletes chains of Services that are gone', async () => {
    const first = await installed(...MANY);
    const restores = first.iptables.restored.length;
    const same = harness(first.iptables);
    same.put(...MANY.toReversed());
    await same.rules.sync(CHANGED);
    assert.equal(first.iptables.restored.length, restores, 'nothing to do');

    const other = harness(first.iptables);
    other.put(WEB);
    await other.rules.sync(CHANGED);
    assert.deepEqual(await other.owners(), ['shop/web']);
    assert.equal([...((await other.chains())?.keys() ?? [])].filter((name) => name.startsWith('KUBE-USP-')).length, 0);
    assert.equal(first.iptables.restored.length, restores + 2, 'one transaction for each table');
  });

  for (const [how, sizes] of [
    ['flat', [WEB, DNS]],
    ['in buckets', [WEB, DNS, ...MANY]],
  ] as const) {
    test(`leaves out only refused rules, names them once, and retries them: ${how}`, async () => {
      const h = harness();
      const count = async () =>
        [...((await h.chains())?.values() ?? [])].flat().filter((spec) => !/ -j KUBE/.test(spec));
      h.put(...sizes);
      h.iptables.refuses = (spec) => spec.includes('"kube-system/dns proxy port"');
      await h.rules.sync(CHANGED);
      const without = (await count()).length;
      assert.deepEqual(
        h.log.of('warn').map((line) => line.fields['svc']),
        ['kube-system/dns'],
      );
      assert.equal(await h.chain('KUBE-USERSPACE-PROBE'), undefined);
      await h.rules.sync(VERIFY);
      assert.equal(h.log.of('warn').length, 1);
      h.iptables.refuses = () => false;
      await h.rules.sync(VERIFY);
      assert.equal((await count()).length, without + 1);
    });
  }

  test('isolates a refused rule that is added later, and probes only its chain', async () => {
    const h = await installed(...MANY);
    h.iptables.refuses = (spec) => spec.includes('"shop/odd"');
    const restores = h.iptables.restored.length;
    h.put(portal('shop/odd', '10.96.1.3', 4009, { port: 443 }), portal('shop/good', '10.96.1.4', 4010, { port: 443 }));
    await h.rules.sync(CHANGED);
    assert.deepEqual(
      h.log.of('warn').map((line) => line.fields['svc']),
      ['shop/odd', 'shop/odd'],
    );
    const specs = [...((await h.chains())?.values() ?? [])].flat();
    assert.equal(specs.filter((spec) => spec.includes('"shop/good"')).length, 1);
    assert.equal(specs.filter((spec) => spec.includes('"shop/odd"')).length, 0);
    for (const text of h.iptables.restored.slice(restores)) assert.ok(text.split('\n').length < 200);
    await h.rules.sync(CHANGED);
    assert.equal(h.log.of('warn').length, 2);
  });

  test('that failed is repeated in full', async () => {
    const h = await installed(WEB);
    h.iptables.fault = new IptablesError('timeout', 'iptables-restore did not end');
    h.put(DNS);
    h.drop(WEB);
    await assert.rejects(h.rules.sync(CHANGED), /did not end/);
    assert.equal(h.counts.restoreFailures, 1);
    h.iptables.fault = undefined;
    const { saves } = h.iptables;
    await h.rules.sync(CHANGED);
    assert.ok(h.iptables.saves > saves, 'a killed restore may have taken effect');
    assert.deepEqual(new Set(await h.owners()), new Set(['kube-system/dns']));
  });

  test("recovers in the same run when the kernel's rules are not as it left them", async () => {
    const h = await installed(...MANY);
    const names = [...((await h.chains())?.keys() ?? [])].filter((name) => name.startsWith('KUBE-'));
    const jumps = ['PREROUTING', 'OUTPUT'];
    const dump = (await h.chains()) ?? new Map<string, string[]>();
    await h.iptables.restore(
      'IPv4',
      `*nat\n${names.map((name) => `:${name} - [0:0]`).join('\n')}\n${jumps
        .flatMap((chain) => (dump.get(chain) ?? []).map((spec) => `-D ${chain} ${spec}`))
        .join('\n')}\n${names.map((name) => `-X ${name}`).join('\n')}\nCOMMIT\n`,
    );
    // Takes a bucket away, which is not there any more.
    h.drop(...MANY.filter((_, i) => i % 256 >= 16 && i % 256 < 32));
    await h.rules.sync(CHANGED);
    assert.deepEqual((await h.chains())?.get('PREROUTING')?.length, 2);
    const restores = h.iptables.restored.length;
    await h.rules.sync(VERIFY);
    assert.equal(h.iptables.restored.length, restores);
  });

  test('leaves changes that are applied while it runs to the next sync', async () => {
    const h = harness();
    h.put(WEB);
    const running = h.rules.sync(CHANGED);
    h.put(DNS);
    h.drop(WEB);
    await running;
    assert.deepEqual(await h.owners(), ['shop/web']);
    await h.rules.sync(CHANGED);
    assert.deepEqual(new Set(await h.owners()), new Set(['kube-system/dns']));
  });

  test('uses the current address of the node, and the last one when there is none', async () => {
    const h = await installed(WEB);
    h.host.address = ip('192.168.50.11');
    await h.rules.sync(CHANGED);
    assert.match((await h.chain('KUBE-PORTALS-HOST'))?.[0] ?? '', /192\.168\.50\.11:4001$/);
    h.host.address = undefined;
    h.put(DNS);
    await h.rules.sync(VERIFY);
    assert.match((await h.chain('KUBE-PORTALS-HOST'))?.[0] ?? '', /192\.168\.50\.11:4002$/);
  });

  test('without any address of the node fails with a readable error, and forgets nothing', async () => {
    const h = harness();
    h.host.address = undefined;
    h.put(WEB);
    await assert.rejects(h.rules.sync(CHANGED), /no IPv4 address/);
    h.host.address = ip('192.168.50.10');
    await h.rules.sync(CHANGED);
    assert.deepEqual(await h.owners(), ['shop/web']);
  });

  test('warns once of two Services that claim one address; the second gets it when the first goes', async () => {
    const h = harness();
    const rival = portal('shop/rival', '10.96.0.1', 4003);
    h.put(WEB, rival);
    for (let i = 0; i < 3; i++) await h.rules.sync(VERIFY);
    assert.deepEqual(
      h.log.of('warn').map(({ fields }) => [fields['svc'], fields['holder']]),
      [['shop/web', 'shop/rival']],
    );
    assert.deepEqual(await h.owners(), ['shop/rival']);
    h.drop(rival);
    await h.rules.sync(CHANGED);
    assert.deepEqual(await h.owners(), ['shop/web']);
  });
});

describe('what no Service has', () => {
  const jumps = async (h: ReturnType<typeof harness>) =>
    ['PREROUTING', 'OUTPUT'].map(async (from) =>
      ((await h.chain(from)) ?? []).flatMap((spec) => / -j (KUBE-\S+)$/.exec(spec)?.[1] ?? []).join(' '),
    );

  test('is dropped in the blocks of cluster IPs of this family, behind the rules of others, and no more once these are gone', async () => {
    const h = await installed(WEB);
    const before = await Promise.all(await jumps(h));
    assert.deepEqual(before, [
      'KUBE-PORTALS-CONTAINER KUBE-NODEPORT-CONTAINER',
      'KUBE-PORTALS-HOST KUBE-NODEPORT-HOST',
    ]);
    h.rules.dropUnassigned([cidr('10.96.0.0/16'), cidr('fd00:96::/112')]);
    await h.rules.sync(CHANGED);
    const drop = (proto: string) =>
      `-d 10.96.0.0/16 -p ${proto} -m comment --comment "no Service is there" -j DNAT --to-destination 192.168.50.10:9`;
    assert.deepEqual(await h.chain('KUBE-UNASSIGNED'), [drop('tcp'), drop('udp')]);
    assert.deepEqual(await Promise.all(await jumps(h)), [
      'KUBE-PORTALS-CONTAINER KUBE-UNASSIGNED KUBE-NODEPORT-CONTAINER',
      'KUBE-PORTALS-HOST KUBE-UNASSIGNED KUBE-NODEPORT-HOST',
    ]);
    assert.equal(await h.rules.isIntact(), true);
    await h.iptables.restore('IPv4', '*nat\n:KUBE-UNASSIGNED - [0:0]\nCOMMIT\n');
    assert.equal(await h.rules.isIntact(), false);
    await h.rules.sync(VERIFY);
    assert.equal((await h.chain('KUBE-UNASSIGNED'))?.length, 2);
    const { saves } = h.iptables;
    h.rules.dropUnassigned([cidr('10.96.0.0/16')]);
    await h.rules.sync(CHANGED);
    assert.equal(h.iptables.saves, saves, 'the same blocks cost nothing');
    h.rules.dropUnassigned([]);
    await h.rules.sync(CHANGED);
    assert.deepEqual([await h.chain('KUBE-UNASSIGNED'), await Promise.all(await jumps(h))], [undefined, before]);
  });
});

describe('the canary of rules', () => {
  const flush = (h: ReturnType<typeof harness>, table: Table, chain: string) =>
    h.iptables.restore('IPv4', `*${table}\n:${chain} - [0:0]\nCOMMIT\n`);

  test('finds nothing wrong with what was installed, and with no rules', async () => {
    const h = harness();
    assert.equal(await h.rules.isIntact(), true);
    h.put(WEB);
    await h.rules.sync(CHANGED);
    for (let look = 0; look < 10; look++) assert.equal(await h.rules.isIntact(), true);
  });

  test('notices at once that a table has lost its jumps, without a dump', async () => {
    for (const [table, chain] of [
      ['nat', 'PREROUTING'],
      ['nat', 'OUTPUT'],
      ['filter', 'INPUT'],
    ] as const) {
      const h = await installed(WEB);
      const specs = (await h.chains(table))?.get(chain) ?? [];
      const { saves } = h.iptables;
      await h.iptables.restore('IPv4', `*${table}\n${specs.map((spec) => `-D ${chain} ${spec}`).join('\n')}\nCOMMIT\n`);
      assert.equal(await h.rules.isIntact(), false, chain);
      assert.equal(h.iptables.saves, saves);
      await h.rules.sync(VERIFY);
      assert.equal(await h.rules.isIntact(), true);
    }
  });

  test('notices within four checks that a root chain is empty, with few and with many rules', async () => {
    for (const portals of [[WEB], MANY]) {
      for (const [table, root] of [
        ['nat', 'KUBE-PORTALS-HOST'],
        ['nat', 'KUBE-NODEPORT-CONTAINER'],
        ['filter', 'KUBE-NODEPORT-NON-LOCAL'],
      ] as const) {
        const h = await installed(...portals);
        await flush(h, table, root);
        const looks: boolean[] = [];
        for (let look = 0; look < 4; look++) looks.push(await h.rules.isIntact());
        assert.ok(looks.includes(false), root);
      }
    }
  });

  test('reads nothing while no rule has changed, and reads again after another program has changed one', async () => {
    const h = await installed(WEB);
    assert.equal(await h.rules.isIntact(), true);
    const { lists } = h.iptables;
    assert.ok(lists > 0, 'a sync is a change, too');
    for (let look = 0; look < 5; look++) assert.equal(await h.rules.isIntact(), true);
    assert.equal(h.iptables.lists, lists);
    await h.iptables.restore('IPv4', '*filter\n-A INPUT -j ACCEPT\nCOMMIT\n');
    assert.equal(await h.rules.isIntact(), true);
    assert.equal(h.iptables.lists, 2 * lists);
    await flush(h, 'nat', 'KUBE-PORTALS-HOST');
    for (let look = 0; look < 3; look++) assert.equal(await h.rules.isIntact(), false, 'until they are back');
    await h.rules.sync(VERIFY);
    assert.equal(await h.rules.isIntact(), true);
  });

  test('checks all jumps of a large table after a change', async () => {
    for (const chain of ['PREROUTING', 'OUTPUT']) {
      const h = await installed(...MANY);
      assert.equal(await h.rules.isIntact(), true);
      await flush(h, 'nat', chain);
      assert.equal(await h.rules.isIntact(), false, chain);
    }
  });

  test('checks all jumps of a large table at every look where the kernel has no generations', async () => {
    for (const chain of ['PREROUTING', 'OUTPUT']) {
      const h = harness();
      h.iptables.generation = () => undefined;
      h.put(...Array.from({ length: 1_100 }, (_, i) => portal(`ns/svc-${i}`, `10.96.${i >> 8}.${i & 255}`, 1_000 + i)));
      await h.rules.sync(CHANGED);
      assert.equal(await h.rules.isIntact(), true);
      assert.equal(h.iptables.lists, 6, 'three built-in chains, and the three chains of filter that are always there');
      await flush(h, 'nat', chain);
      assert.equal(await h.rules.isIntact(), false, chain);
    }
  });

  test("ignores another program's rule ahead of a jump: the verification checks places", async () => {
    const h = await installed(WEB);
    await h.iptables.restore('IPv4', '*nat\n-I PREROUTING 1 -j ACCEPT\nCOMMIT\n');
    assert.equal(await h.rules.isIntact(), true);
  });
});

describe('local ports that the kernel remembers', () => {
  const names = async (h: ReturnType<typeof harness>) =>
    (await h.rules.installedPorts()).map(({ name, protocol, localPort, retiredForMs }) =>
      [name, protocol, localPort, retiredForMs].filter((part) => part !== undefined).join(' '),
    );

  test('are read from the rules, each once', async () => {
    const h = harness();
    assert.deepEqual(await names(h), []);
    h.put(WEB, DNS, portal('kube-system/dns-udp', '10.96.0.10', 4002, { protocol: 'UDP', port: 53 }));
    await h.rules.sync(CHANGED);
    assert.deepEqual((await names(h)).sort(), [
      'kube-system/dns TCP 4002',
      'kube-system/dns-udp UDP 4002',
      'shop/web TCP 4001',
    ]);
    h.put(...MANY);
    await h.rules.sync(CHANGED);
    assert.equal((await names(h)).length, MANY.length + 3);
  });

  test('stay known for a while after their Service was removed, or got another port or protocol', async () => {
    const h = await installed(WEB, DNS, portal('a/a', '10.96.0.3', 4003), portal('a/b', '10.96.0.4', 4004));
    assert.equal(await h.chain('KUBE-USERSPACE-RETIRED'), undefined);
    h.clock.advance(1_500);
    h.drop(WEB);
    h.put(portal('a/a', '10.96.0.3', 5003), portal('a/b', '10.96.0.4', 4004, { protocol: 'UDP' }));
    await h.rules.sync(CHANGED);
    h.clock.advance(20_500);
    // Stored in whole seconds, so up to one second more.
    assert.deepEqual(await names(h), [
      'a/a TCP 5003',
      'a/b UDP 4004',
      'kube-system/dns TCP 4002',
      'shop/web TCP 4001 21000',
      'a/a TCP 4003 21000',
      'a/b TCP 4004 21000',
    ]);
    const restores = h.iptables.restored.length;
    h.drop(DNS);
    await h.rules.sync(CHANGED);
    const nat = h.iptables.restored.slice(restores).find((text) => text.startsWith('*nat')) ?? '';
    assert.match(nat, /^-A KUBE-USERSPACE-RETIRED .*kube-system\/dns retired at/m);
    assert.doesNotMatch(nat, /^:KUBE-USERSPACE-RETIRED|shop\/web/m);
  });

  test('are known to the next run, which remembers them for the rest of the time', async () => {
    const first = await installed(WEB, DNS, portal('a/a', '10.96.0.3', 4003));
    first.drop(WEB);
    await first.rules.sync(CHANGED);
    first.clock.advance(100_000);

    const next = harness(first.iptables, first.clock);
    next.put(DNS);
    await next.rules.sync(CHANGED);
    assert.deepEqual(await names(next), [
      'kube-system/dns TCP 4002',
      'shop/web TCP 4001 100000',
      // Its Service was removed while no proxy ran.
      'a/a TCP 4003 0',
    ]);
    const restores = next.iptables.restored.length;
    await next.rules.sync(VERIFY);
    assert.equal(next.iptables.restored.length, restores);

    next.clock.advance(200_000);
    assert.deepEqual(await names(next), ['kube-system/dns TCP 4002', 'a/a TCP 4003 200000']);
    await next.rules.sync(VERIFY);
    assert.equal((await next.chain('KUBE-USERSPACE-RETIRED'))?.length, 1);
    next.clock.advance(100_000);
    await next.rules.sync(VERIFY);
    assert.equal(await next.chain('KUBE-USERSPACE-RETIRED'), undefined);
  });

  test('are not lost with a sync that failed', async () => {
    const h = await installed(WEB, DNS);
    h.drop(WEB);
    h.iptables.fault = new IptablesError('locked', 'held');
    await assert.rejects(h.rules.sync(CHANGED), /held/);
    h.iptables.fault = undefined;
    await h.rules.sync(CHANGED);
    assert.deepEqual(await names(h), ['kube-system/dns TCP 4002', 'shop/web TCP 4001 0']);
  });
});

describe('metrics of rules', () => {
  test('count the rules of each table, and those that the last sync has written', async () => {
    const h = harness();
    const inKernel = async (table: Table) => [...((await h.chains(table))?.values() ?? [])].flat().length;
    const totals = async () => ({ nat: await inKernel('nat'), filter: await inKernel('filter') });
    const reported = () => ({ nat: h.counts.rules.nat?.total, filter: h.counts.rules.filter?.total });
    h.put(...MANY);
    await h.rules.sync(VERIFY);
    assert.deepEqual(reported(), await totals());
    assert.equal(h.counts.rules.nat?.written, await inKernel('nat'));
    await h.rules.sync(VERIFY);
    assert.deepEqual(reported(), await totals());
    assert.equal(h.counts.rules.nat?.written, 0, 'nothing differed');
    h.put(WEB);
    h.drop(...MANY.slice(0, 300));
    await h.rules.sync(CHANGED);
    assert.deepEqual(reported(), await totals());
    const written = h.counts.rules.nat?.written ?? 0;
    assert.ok(written > 0 && written < (await inKernel('nat')), String(written));
  });

  test('count failures of partial syncs apart from others', async () => {
    const h = await installed(WEB);
    const { refuses } = h.iptables;
    h.put(portal('ns/new', '10.96.9.9', 4_000));
    let fails = 1;
    h.iptables.refuses = (spec) => (spec.includes('ns/new') && fails-- > 0) || refuses(spec);
    await h.rules.sync(CHANGED);
    assert.deepEqual([h.counts.partialFailures, h.counts.restoreFailures], [1, 1]);
  });
});

describe('of two Service ports with one address', () => {
  const A = portal('a/a', '10.96.0.1', 4001);
  const Z = portal('z/z', '10.96.0.1', 4002);
  const to = { address: ip('10.96.0.1'), port: 80 };

  test('at a start the first by name has it, in whatever order they come', async () => {
    for (const both of [
      [A, Z],
      [Z, A],
    ]) {
      assert.deepEqual(await (await installed(...both)).owners(), ['a/a']);
    }
  });

  test('the one that has it keeps it: from the newcomer, after a change of the node, and in the next run', async () => {
    const h = await installed(Z);
    h.put(A);
    await h.rules.sync(CHANGED);
    assert.deepEqual(await h.owners(), ['z/z']);
    assert.deepEqual(h.rules.conflictsOf('a/a'), [{ owner: 'a/a', holder: 'z/z', what: '10.96.0.1:80/TCP' }]);
    h.host.address = ip('192.168.50.11');
    await h.rules.sync(CHANGED);
    assert.deepEqual(await h.owners(), ['z/z']);

    const next = harness(h.iptables, h.clock);
    await next.rules.installedPorts();
    assert.ok(next.rules.holds('z/z', to, 'TCP'));
    next.put(A, Z);
    assert.ok(next.rules.holds('z/z', to, 'TCP'));
    await next.rules.sync(CHANGED);
    assert.deepEqual(await next.owners(), ['z/z']);
    next.drop(Z);
    await next.rules.sync(CHANGED);
    assert.deepEqual(await next.owners(), ['a/a']);
    assert.ok(next.rules.holds('a/a', to, 'TCP'));
  });
});
