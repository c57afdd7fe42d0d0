import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { afterEach, describe, test } from 'node:test';
import type { Claim } from '../../../src/capture/claims.ts';
import type { RetiredPort } from '../../../src/capture/method.ts';
import type { Firewall } from '../../../src/capture/nft/firewall.ts';
import type { NftKernel } from '../../../src/capture/nft/nft-kernel.ts';
import { createNft } from '../../../src/capture/nft/nft-method.ts';
import { TABLE } from '../../../src/capture/nft/table.ts';
import { createExec } from '../../../src/kernel/iptables/exec.ts';
import * as tables from '../../../src/kernel/nft/nf-tables.ts';
import { createNftKernel } from '../../../src/kernel/nft/nft.ts';
import { CaptureError, type InstalledPort } from '../../../src/model/capture.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { systemClock as clock } from '../../../src/util/system-clock.ts';
import { IPV6_NODE, nodeFacts } from '../../capture/fixtures.ts';
import { claims } from '../../capture/nft/fixtures.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { address, cidr, ENDPOINT } from '../../support/model.ts';

const NO_FIREWALL: Firewall = { letIn: async () => {}, isIntact: async () => true, remove: async () => {} };

function nft(...args: readonly string[]): string {
  return execFileSync('nft', args, { encoding: 'utf8' });
}

/** The table's lines without blanks around them. */
function listed(family: 'ip' | 'ip6' = 'ip'): readonly string[] {
  return nft('list', 'table', family, TABLE)
    .split('\n')
    .map((line) => line.trim());
}

/** One family of a run, and all that the kernel was asked to do. */
function open({ node = nodeFacts(), refuse = () => undefined }: OpenOptions = {}) {
  const asked: string[] = [];
  const real = createNftKernel(createExec({ clock }), tables);
  const count = (elements: readonly unknown[]) => elements.length;
  const kernel: NftKernel = {
    ...real,
    run: async (text, how) => {
      asked.push('run');
      await real.run(text, how);
    },
    change: async (family, change) => {
      asked.push(`-${count(change.deleted)} +${count(change.added)}`);
      const error = refuse(asked);
      if (error !== undefined) throw error;
      await real.change(family, change);
    },
    elements: async (family, set) => {
      if (asked.at(-1) !== 'read') asked.push('read');
      return await real.elements(family, set);
    },
  };
  const log = new RecordingLog();
  const method = createNft({ kernel, firewall: NO_FIREWALL, clock, log, isLocal: (to) => to === node.hostAddress });
  const retired: RetiredPort[] = [];
  const found: InstalledPort[] = [];
  const rules: { readonly total: number; readonly written: number; readonly leftOut: number }[] = [];
  const backEnd = method.open({
    family: node.family,
    connectionMark: 0x2000,
    metrics: {
      changesQueued() {},
      syncDone() {},
      restoreFailed: (kind) => void asked.push(`failed ${kind}`),
      rulesInstalled: (_table, numbers) => void rules.push(numbers),
    },
    ports: {
      retiredAfter: (serial) => retired.filter((each) => each.serial > serial),
      found: (port) => void found.push(port),
    },
  });
  backEnd.begin(node);
  return {
    asked,
    method,
    backEnd,
    retired,
    found,
    rules,
    add: (some: readonly Claim[]) => {
      for (const claim of some) backEnd.replace(undefined, claim);
    },
    remove: (some: readonly Claim[]) => {
      for (const claim of some) backEnd.replace(claim, undefined);
    },
    /** What was asked since the last time. */
    takeAsked: () => asked.splice(0),
  };
}

interface OpenOptions {
  readonly node?: ReturnType<typeof nodeFacts>;
  readonly refuse?: (asked: readonly string[]) => Error | undefined;
}

const LOCAL = { endpoints: [ENDPOINT], internal: false, external: true };

afterEach(() => nft('flush', 'ruleset'));

describe('an nft table of our own', () => {
  test('has what Service ports claim after the first write, which says that it was missing', async () => {
    const { add, backEnd, rules } = open();
    add(claims({ nodePort: 30_080 }));
    assert.deepEqual(await backEnd.write({ verify: false }), { wereMissing: true });
    assert.ok(listed().includes('elements = { 10.96.0.1 . tcp . 80 comment "shop/web" : 40001 }'));
    assert.deepEqual(rules, [{ total: 3, written: 3, leftOut: 0 }]);
    assert.equal(await backEnd.isIntact(), true);
  });

  test('can be read: its chains have fewer than 40 lines, and a printed one can be loaded again', async () => {
    for (const node of [nodeFacts(), IPV6_NODE]) {
      const { add, backEnd } = open({ node });
      add(claims({ name: `${'a'.repeat(63)}/${'b'.repeat(63)}:${'c'.repeat(63)}`, nodePort: 30_080 }, node));
      await backEnd.write({ verify: false });
      const family = node.family === 'IPv4' ? 'ip' : 'ip6';
      const lines = listed(family);
      const chains = lines.slice(lines.findIndex((line) => line.startsWith('chain ')));
      const texts = chains.filter((line) => line !== '' && line !== '}' && !line.startsWith('type '));
      assert.ok(texts.length < 40, `${texts.length} lines`);
      const text = nft('list', 'table', family, TABLE);
      nft('flush', 'ruleset');
      execFileSync('nft', ['-f', '-'], { input: text });
      assert.equal(nft('list', 'table', family, TABLE), text);
    }
  });

  test('gets only what has changed, in one batch and without the program', async () => {
    const { add, remove, backEnd, takeAsked, rules } = open();
    add(claims({ nodePort: 30_080 }));
    await backEnd.write({ verify: false });
    takeAsked();
    const before = claims({ name: 'shop/other', clusterIPs: [address('10.96.0.2')] }, nodeFacts(), 41_000);
    add(before);
    assert.deepEqual(await backEnd.write({ verify: false }), { wereMissing: false });
    assert.deepEqual(takeAsked(), ['-0 +2']);
    const after = claims(
      { name: 'shop/other', clusterIPs: [address('10.96.0.2')], endpoints: [] },
      nodeFacts(),
      41_000,
    );
    for (const [index, claim] of after.entries()) backEnd.replace(before[index], claim);
    await backEnd.write({ verify: false });
    assert.deepEqual(takeAsked(), ['-1 +1']);
    remove(after);
    await backEnd.write({ verify: false });
    assert.deepEqual(takeAsked(), ['-2 +0']);
    await backEnd.write({ verify: false });
    assert.deepEqual(takeAsked(), []);
    assert.equal(rules.at(-1)?.total, 3);
    await backEnd.write({ verify: true });
    assert.deepEqual(takeAsked(), ['read'], 'it is as it should be');
  });

  test('gets other rules and the same elements when the address of the node changes', async () => {
    const { add, backEnd, takeAsked } = open();
    add(claims({ nodePort: 30_080 }));
    await backEnd.write({ verify: false });
    takeAsked();
    const node = nodeFacts({ hostAddress: address('192.168.50.11') });
    backEnd.begin(node);
    add(claims({ nodePort: 30_080 }, node));
    await backEnd.write({ verify: false });
    assert.deepEqual(takeAsked(), ['run']);
    assert.ok(!listed().some((line) => line.includes('192.168.50.10')));
    assert.equal(listed().filter((line) => line.includes('192.168.50.11')).length, 6);
    await backEnd.write({ verify: true });
    assert.deepEqual(takeAsked(), ['read']);
  });

  test('leads where an address of NodePorts and of the listeners say', async () => {
    const nodePortCidrs = ['192.168.50.10/32', '192.168.50.0/24', '127.0.0.0/8', 'fd00::/8'];
    const { backEnd } = open({ node: nodeFacts({ bindAddress: '192.168.50.12', nodePortCidrs }) });
    await backEnd.write({ verify: false });
    const lines = listed();
    const nodePorts = lines.filter((line) => line.includes('@nodeports') && line.startsWith('ip daddr'));
    assert.equal(nodePorts.length, 2);
    for (const line of nodePorts) {
      assert.match(line, /^ip daddr \{ 127\.0\.0\.0\/8, 192\.168\.50\.0\/24 \} .* dnat to 192\.168\.50\.12:meta/);
    }
    assert.ok(
      lines.some((line) => /^ip daddr 192\.168\.50\.12 .* @local-ports dnat to 192\.168\.50\.12:1$/.test(line)),
    );
  });

  test('has a chain for each different condition, and loses it with the last one that needs it', async () => {
    const node = nodeFacts({ clusterCidrs: ['10.244.0.0/16'] });
    const { add, remove, backEnd, takeAsked } = open({ node });
    await backEnd.write({ verify: false });
    takeAsked();
    const chains = () => listed().filter((line) => line.startsWith('chain from-')).length;
    const [one, other] = [30_080, 30_081].map((nodePort) =>
      claims({ name: `shop/s${nodePort}`, clusterIPs: [], nodePort, local: LOCAL }, node, 2 * nodePort - 20_000),
    );
    add(one ?? []);
    await backEnd.write({ verify: false });
    assert.deepEqual(takeAsked(), ['run', '-0 +5']);
    add(other ?? []);
    await backEnd.write({ verify: false });
    assert.deepEqual(takeAsked(), ['-0 +5'], 'the same chain');
    assert.equal(chains(), 1);
    remove(one ?? []);
    await backEnd.write({ verify: false });
    await backEnd.write({ verify: true });
    assert.equal(chains(), 1);
    remove(other ?? []);
    await backEnd.write({ verify: false });
    const ranged = { loadBalancerIPs: [address('203.0.113.1')], loadBalancerSourceRanges: [cidr('192.0.2.0/24')] };
    add(claims({ ...ranged, clusterIPs: [] }, node));
    await backEnd.write({ verify: false });
    assert.equal(chains(), 1, 'another one, and the first is gone');
    assert.ok(listed().includes('ip saddr 192.0.2.0/24 goto to-portal'));
    takeAsked();
    await backEnd.write({ verify: true });
    assert.deepEqual(takeAsked(), ['read']);
  });

  test('tells pods by their interface, also by its beginning', async () => {
    const local = { ...LOCAL };
    for (const [isPrefix, text] of [
      [true, 'iifname "cali*" goto to-portal'],
      [false, 'iifname "cali" goto to-portal'],
    ] as const) {
      const node = nodeFacts({ pods: [{ inInterface: { name: 'cali', isPrefix } }] });
      const { add, backEnd } = open({ node });
      add(claims({ nodePort: 30_080, local }, node));
      await backEnd.write({ verify: true });
      assert.ok(listed().includes(text), text);
    }
  });
});

describe('when another program changes something', () => {
  const changes: readonly (readonly [what: string, ...commands: (readonly string[])[]])[] = [
    ['the whole ruleset is flushed', ['flush', 'ruleset']],
    ['the table is deleted', ['delete', 'table', 'ip', TABLE]],
    ['the rules are flushed', ['flush', 'table', 'ip', TABLE]],
    ['a chain is flushed', ['flush', 'chain', 'ip', TABLE, 'portals-in']],
    ['a rule is added', ['add', 'rule', 'ip', TABLE, 'input', 'accept']],
    ['a map is flushed', ['flush', 'map', 'ip', TABLE, 'portals']],
    ['an element is deleted', ['delete', 'element', 'ip', TABLE, 'nodeports', '{ tcp . 30080 }']],
    ['an element is added', ['add', 'element', 'ip', TABLE, 'nodeports', '{ tcp . 30081 : 22 }']],
    [
      'an element is replaced',
      ['delete', 'element', 'ip', TABLE, 'nodeports', '{ tcp . 30080 }'],
      ['add', 'element', 'ip', TABLE, 'nodeports', '{ tcp . 30080 comment "shop/web" : 22 }'],
    ],
    [
      'a chain is added',
      ['add', 'chain', 'ip', TABLE, 'from-nowhere'],
      ['add', 'rule', 'ip', TABLE, 'from-nowhere', 'drop'],
    ],
  ];
  for (const [what, ...commands] of changes) {
    test(`${what}: the next look finds it, and a verification repairs it`, async () => {
      const { add, backEnd } = open();
      add(claims({ nodePort: 30_080 }));
      await backEnd.write({ verify: false });
      assert.equal(await backEnd.isIntact(), true);
      const intact = listed();
      for (const command of commands) nft(...command);
      assert.equal(await backEnd.isIntact(), false);
      assert.equal((await backEnd.write({ verify: true })).wereMissing, true);
      assert.deepEqual(listed(), intact);
      assert.equal(await backEnd.isIntact(), true);
      assert.deepEqual(await backEnd.write({ verify: true }), { wereMissing: false });
    });
  }

  test('a change that the kernel refuses repairs everything', async () => {
    const { add, remove, backEnd, takeAsked } = open();
    const some = claims({ nodePort: 30_080 });
    add(some);
    await backEnd.write({ verify: false });
    nft('flush', 'ruleset');
    takeAsked();
    remove(some.slice(0, 1));
    add(claims({ name: 'shop/other', clusterIPs: [address('10.96.0.2')] }, nodeFacts(), 41_000));
    assert.deepEqual(await backEnd.write({ verify: false }), { wereMissing: true });
    assert.deepEqual(takeAsked(), ['-1 +2', 'failed partial', 'run', 'read', '-0 +4']);
    assert.ok(listed().includes('elements = { 10.96.0.2 . tcp . 80 comment "shop/other" : 41000 }'));
  });

  test('another table is no business of ours', async () => {
    const { add, backEnd } = open();
    add(claims());
    await backEnd.write({ verify: false });
    nft('add', 'table', 'ip', 'other');
    assert.equal(await backEnd.isIntact(), true);
    assert.deepEqual(await backEnd.write({ verify: true }), { wereMissing: false });
    assert.match(nft('list', 'tables'), /table ip other/);
  });

  test('a table of our name with other sets is replaced', async () => {
    execFileSync('nft', ['-f', '-'], {
      input: `table ip ${TABLE} { map portals { type ipv4_addr : ipv4_addr; }; chain input { type filter hook output priority 0; drop; }; }`,
    });
    const { add, backEnd } = open();
    add(claims());
    await backEnd.write({ verify: false });
    assert.ok(listed().includes('elements = { 10.96.0.1 . tcp . 80 comment "shop/web" : 40001 }'));
    assert.ok(!listed().includes('drop'));
  });

  test('a kernel that is busy lets the write fail, and the next one does the rest', async () => {
    const busy = new CaptureError('busy', { mayPass: true });
    const { add, backEnd } = open({ refuse: (asked) => (asked.length === 3 ? busy : undefined) });
    add(claims());
    await backEnd.write({ verify: false }).then(
      () => assert.fail('it succeeded'),
      (error) => assert.equal(error, busy),
    );
    await backEnd.write({ verify: false });
    assert.ok(listed().includes('elements = { 10.96.0.1 . tcp . 80 comment "shop/web" : 40001 }'));
  });

  test('an error that is no answer of the kernel is not taken for one', async () => {
    const { add, backEnd } = open({ refuse: () => new TypeError('a defect') });
    add(claims());
    await assert.rejects(backEnd.write({ verify: false }), TypeError);
  });
});

describe('a name that nft could not print', () => {
  test('is left out and reported, and others are captured', async () => {
    const { add, remove, backEnd, rules } = open();
    const hostile = claims({ name: 'shop/web" : 22, "' as ServicePortName });
    add(hostile);
    add(claims({ name: 'shop/good', clusterIPs: [address('10.96.0.2')] }, nodeFacts(), 41_000));
    await backEnd.write({ verify: false });
    assert.deepEqual(
      backEnd.problems().map(({ fields }) => fields),
      [{ what: '10.96.0.1:80/TCP' }, { what: 'local port 40001/TCP' }],
    );
    assert.equal(rules.at(-1)?.leftOut, 2);
    assert.ok(listed().includes('elements = { 10.96.0.2 . tcp . 80 comment "shop/good" : 41000 }'));
    remove(hostile);
    await backEnd.write({ verify: false });
    assert.deepEqual(backEnd.problems(), []);
  });
});

describe('a next run', () => {
  test('finds local ports and holders again, and retires the ports of Services that went meanwhile', async () => {
    const first = open();
    first.add(claims({ nodePort: 30_080, externalIPs: [address('192.0.2.1')], local: LOCAL }));
    const name = `${'a'.repeat(63)}/${'b'.repeat(63)}:${'c'.repeat(63)}` as ServicePortName;
    first.add(claims({ name, clusterIPs: [address('10.96.0.2')] }, nodeFacts(), 41_000));
    await first.backEnd.write({ verify: false });

    const next = open();
    const { ports, holders } = await next.method.installed('IPv4');
    const byPort = ports.toSorted((one, other) => one.localPort - other.localPort);
    assert.deepEqual(byPort, [
      { name: 'shop/web', set: 'own', protocol: 'TCP', localPort: 40_001 },
      { name: 'shop/web', set: 'local', protocol: 'TCP', localPort: 40_002 },
      { name, set: 'own', protocol: 'TCP', localPort: 41_000 },
    ]);
    assert.deepEqual([...holders].sort(), [
      ['10.96.0.1:80/TCP', 'shop/web'],
      ['10.96.0.2:80/TCP', name],
      ['192.0.2.1:80/TCP', 'shop/web'],
      ['NodePort 30080/TCP', 'shop/web'],
    ]);
    next.add(claims({ nodePort: 30_080, externalIPs: [address('192.0.2.1')], local: LOCAL }));
    await next.backEnd.write({ verify: false });
    assert.deepEqual(next.found, [{ name, set: 'own', protocol: 'TCP', localPort: 41_000 }]);
    assert.deepEqual((await next.method.installed('IPv4')).ports.length, 2);
  });

  test('finds the ports that retired, with their time, and those that serve again only once', async () => {
    const { add, backEnd, retired, method, takeAsked } = open();
    await backEnd.write({ verify: false });
    const port = (localPort: number): InstalledPort => ({ name: 'shop/web', set: 'own', protocol: 'TCP', localPort });
    const now = clock.wallNow();
    retired.push({ serial: 1, port: port(40_003), at: now - 400_000 });
    retired.push({ serial: 2, port: port(40_001), at: now - 100_000 });
    retired.push({ serial: 3, port: port(40_002), at: now });
    takeAsked();
    await backEnd.write({ verify: false });
    assert.deepEqual(takeAsked(), ['-0 +2']);
    await backEnd.write({ verify: true });
    assert.deepEqual(takeAsked(), ['read'], 'they are not written again');
    const [oldest, newest] = (await method.installed('IPv4')).ports;
    assert.equal(oldest?.localPort, 40_001);
    assert.ok(Math.abs((oldest?.retiredForMs ?? 0) - 100_000) < 60_000, `${oldest?.retiredForMs} ms`);
    assert.equal(newest?.localPort, 40_002);
    add(claims());
    await backEnd.write({ verify: false });
    assert.deepEqual(
      (await method.installed('IPv4')).ports.map(({ localPort, retiredForMs }) => [
        localPort,
        retiredForMs !== undefined,
      ]),
      [
        [40_002, true],
        [40_001, false],
      ],
    );
    retired.push({ serial: 4, port: port(40_001), at: clock.wallNow() });
    takeAsked();
    await backEnd.write({ verify: false });
    assert.deepEqual(takeAsked(), ['-1 +1'], 'its time begins anew');
  });

  test('removes everything, and says which ports there were', async () => {
    const { add, backEnd, method } = open();
    add(claims());
    await backEnd.write({ verify: false });
    nft('add', 'table', 'ip', 'kube-proxy');
    nft('add', 'table', 'ip', 'other');
    assert.deepEqual(await method.remove('IPv4', { kubeProxys: false }), [
      { name: 'shop/web', set: 'own', protocol: 'TCP', localPort: 40_001 },
    ]);
    assert.equal(nft('list', 'tables'), 'table ip kube-proxy\ntable ip other\n');
    assert.equal(await method.remove('IPv4', { kubeProxys: true }), undefined);
    assert.equal(nft('list', 'tables'), 'table ip other\n');
  });
});

test('a probe tells whether the kernel takes such a table, and changes nothing', async () => {
  const { method } = open();
  for (const family of ['IPv4', 'IPv6'] as const) await method.probe(family);
  assert.equal(nft('list', 'ruleset'), '');
});
