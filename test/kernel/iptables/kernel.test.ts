import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { plainSpec } from '../../../src/capture/iptables/chains.ts';
import { parseDump } from '../../../src/capture/iptables/dump.ts';
import { installedPorts } from '../../../src/capture/iptables/installed.ts';
import type { Iptables, Table } from '../../../src/capture/iptables/iptables.ts';
import { IptablesMethod } from '../../../src/capture/iptables/method.ts';
import { createExec, type Exec } from '../../../src/kernel/iptables/exec.ts';
import { FLAVOURS, type Flavour, InstalledPrograms } from '../../../src/kernel/iptables/flavour.ts';
import { createIptables, neededTools } from '../../../src/kernel/iptables/iptables.ts';
import type { IpFamily } from '../../../src/model/address.ts';
import { cleanUp } from '../../../src/sync/cleanup.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { cleanupText, IPV6_NODE, nodeFacts, planText, portal, renderPortals } from '../../capture/fixtures.ts';
import { iptablesCompliance } from '../../compliance/iptables.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

const RULES = renderPortals([portal({ name: 'default/web', clusterIPs: ['10.96.0.1'] })], nodeFacts()).rules;

const NO_CONNTRACK = { deleteTo: () => Promise.resolve(0), deleteMarked: () => Promise.resolve(0) };

const exec = createExec({ clock: systemClock });
const toolsOf = (flavour: Flavour | 'auto') => neededTools(flavour, new InstalledPrograms(exec));
const open = async (flavour: Flavour | 'auto') =>
  createIptables(await toolsOf(flavour), { exec, log: new RecordingLog() });
const run = (program: string, ...args: string[]) =>
  execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
const legacyTables = () => readFileSync('/proc/net/ip_tables_names', 'utf8').split('\n').filter(Boolean);

let temporary: string;

before(() => {
  // The xtables lock is one for all namespaces; other tests on this machine must neither wait nor be waited for.
  temporary = mkdtempSync(join(tmpdir(), 'kup-iptables-'));
  process.env['XTABLES_LOCKFILE'] = join(temporary, 'xtables.lock');
});
after(() => rmSync(temporary, { recursive: true, force: true }));

describe('before any legacy table exists in this namespace', () => {
  test('reading one returns nothing and does not create it', async () => {
    assert.deepEqual(legacyTables(), []);
    const iptables = await open('legacy');
    for (const table of ['nat', 'filter'] as const) {
      assert.equal(await iptables.save('IPv4', table), '');
      assert.equal(await iptables.save('IPv6', table), '');
    }
    assert.deepEqual(legacyTables(), []);
  });

  test('detecting the flavour does not create it either', async () => {
    await open('auto');
    assert.deepEqual(legacyTables(), []);
  });
});

for (const flavour of FLAVOURS) {
  iptablesCompliance(`the kernel, by iptables-${flavour}`, async () => {
    flush(flavour);
    return open(flavour);
  });

  describe(`iptables-${flavour}`, () => {
    beforeEach(() => flush(flavour));

    test('a newline in the comment of a foreign rule cannot forge a rule of ours', async () => {
      const iptables = await open(flavour);
      const [ours] = RULES;
      run(
        `iptables-${flavour}`,
        ...['-w', '-t', 'nat', '-A', 'POSTROUTING', '-j', 'RETURN', '-m', 'comment', '--comment'],
        `"x\\ '\n-A KUBE-PORTALS-CONTAINER ${ours?.spec.replace(/ -m comment --comment "[^"]*"/, '')}\nCOMMIT\n*filter`,
      );
      const dump = parseDump(await iptables.save('IPv4', 'nat'));
      assert.deepEqual([...dump.keys()], ['nat']);
      assert.equal(dump.get('nat')?.get('POSTROUTING')?.length, 1);
      assert.equal(dump.get('nat')?.has('KUBE-PORTALS-CONTAINER'), false);
      await apply(iptables, 'nat');
      assert.equal(await apply(iptables, 'nat'), false);
    });

    test('cleanup deletes the rest where one jump to our chain cannot be written as text', async () => {
      const iptables = await open(flavour);
      await apply(iptables, 'nat');
      run(
        `iptables-${flavour}`,
        ...['-w', '-t', 'nat', '-A', 'OUTPUT', '-j', 'KUBE-PORTALS-HOST', '-m', 'comment', '--comment', 'x\nCOMMIT'],
      );
      assert.ok(await cleanup(iptables, 'nat'));
      const chains = parseDump(await iptables.save('IPv4', 'nat')).get('nat') ?? new Map();
      assert.deepEqual(
        [...chains.keys()].filter((chain) => chain.startsWith('KUBE-')),
        ['KUBE-PORTALS-HOST'],
      );
      assert.deepEqual(chains.get('KUBE-PORTALS-HOST'), []);
    });

    test("another program's bytes that are not UTF-8 are kept", async () => {
      const iptables = await open(flavour);
      await apply(iptables, 'nat');
      const latin1 = ['-w -t nat -A OUTPUT -j KUBE-PORTALS-HOST -m comment --comment', "'caf\\351'"].join(' ');
      run('sh', '-c', `iptables-${flavour} ${latin1.replace("'caf\\351'", '"$(printf "caf\\351")"')}`);
      assert.match(await iptables.save('IPv4', 'nat'), /caf\xe9/);
      assert.ok(await cleanup(iptables, 'nat'));
      assert.doesNotMatch(await iptables.save('IPv4', 'nat'), /KUBE-/);
    });

    test('a hint chain in mangle decides the flavour', async () => {
      run(`iptables-${flavour}`, '-w', '-t', 'mangle', '-N', 'KUBE-KUBELET-CANARY');
      try {
        const iptables = await open('auto');
        await apply(iptables, 'nat');
        assert.match(run(`iptables-${flavour}-save`, '-t', 'nat'), /10\.96\.0\.1/);
      } finally {
        run(`iptables-${flavour}`, '-w', '-t', 'mangle', '-X', 'KUBE-KUBELET-CANARY');
      }
    });
  });
}

/** By handle, what each rule of a chain does, as nft shows it. */
const shown = (family: IpFamily, table: Table, chain: string) =>
  run('nft', '-a', 'list', 'chain', family === 'IPv4' ? 'ip' : 'ip6', table, chain)
    .split('\n')
    .filter((line) => line.includes('# handle') && !line.includes(`chain ${chain} `))
    .map((line) =>
      line
        .trim()
        .replace(/counter packets \d+ bytes \d+ | # handle \d+|@nh,\S+ /g, '')
        .trim(),
    );

for (const family of ['IPv4', 'IPv6'] as const) {
  const ip = family === 'IPv4' ? 'ip' : 'ip6';
  const tool = family === 'IPv4' ? 'iptables-nft' : 'ip6tables-nft';
  const portals = [
    portal({
      name: 'default/web',
      clusterIPs: [family === 'IPv4' ? '10.96.0.1' : 'fd00:96::1'],
      nodePort: 30_080,
      localPort: 40_001,
    }),
    portal({ name: 'default/dns', protocol: 'UDP', nodePort: 30_053, localPort: 40_002 }),
  ];
  const rules = renderPortals(portals, family === 'IPv4' ? nodeFacts() : IPV6_NODE).rules;
  const MARK = 'meta mark set ct mark';
  const native = (...words: string[]) => run('nft', ...words.flatMap((word) => word.split(' ')));

  describe(`beside native nft rules, in ${family}`, () => {
    let log: RecordingLog;
    let iptables: Iptables;

    beforeEach(async () => {
      flush('nft');
      log = new RecordingLog();
      iptables = await createIptables(await toolsOf('nft'), { exec, log });
      for (const table of ['filter', 'nat'] as const) await put(table);
      assert.ok((await iptables.save(family, 'nat')).startsWith('# Generated'));
    });
    after(() => flush('nft'));

    const put = async (table: Table) => {
      const text = planText(table, await iptables.save(family, table), rules);
      if (text !== undefined) await iptables.restore(family, text);
      return text;
    };
    const jumps = (chain = 'PREROUTING', table: Table = 'nat') =>
      shown(family, table, chain).filter((line) => line.includes('jump'));
    const specs = async (chain: string, table: Table = 'nat') =>
      parseDump(await iptables.save(family, table))
        .get(table)
        ?.get(chain);

    test('each jump stays in its place, once, with its original text', async () => {
      const before = [await specs('PREROUTING'), await specs('OUTPUT'), await specs('KUBE-PORTALS-CONTAINER')];
      native(`insert rule ${ip} nat PREROUTING ${MARK}`);
      native(`add rule ${ip} nat PREROUTING ${MARK}`);
      native(`add rule ${ip} filter INPUT ${MARK}`);
      for (let sync = 0; sync < 3; sync++) {
        for (const table of ['filter', 'nat'] as const) {
          const text = await put(table);
          if (sync > 0) assert.equal(text, undefined, 'nothing differs');
        }
      }
      const [first = '', ...others] = shown(family, 'nat', 'PREROUTING');
      assert.match(first, /jump KUBE-PORTALS-CONTAINER$/);
      assert.deepEqual(others.slice(0, 2), [MARK, MARK]);
      assert.match(others[2] ?? '', /jump KUBE-NODEPORT-CONTAINER$/);
      assert.equal(others.length, 3);
      assert.equal(jumps('INPUT', 'filter').length, 2);
      assert.deepEqual(
        [
          (await specs('PREROUTING'))?.map(plainSpec).filter((spec) => !spec.includes('--handle')),
          (await specs('OUTPUT'))?.map(plainSpec),
        ],
        before.slice(0, 2),
      );
      assert.deepEqual(await specs('KUBE-PORTALS-CONTAINER'), before[2]);
      assert.equal(log.of('warn').length, 2, 'a warning for each table');
    });

    test('a missing jump is restored, and copies of a jump are deleted in every spelling', async () => {
      native(`add rule ${ip} nat PREROUTING ${MARK}`);
      run(tool, '-w', '-t', 'nat', '-D', 'PREROUTING', '1');
      native(`insert rule ${ip} nat PREROUTING ${MARK}`);
      assert.equal(jumps().length, 1);
      await put('nat');
      assert.equal(jumps().length, 2);
      run(tool, '-w', '-t', 'nat', '-A', 'PREROUTING', '-j', 'KUBE-PORTALS-CONTAINER');
      run(tool, '-w', '-t', 'nat', '-I', 'PREROUTING', '-j', 'KUBE-PORTALS-CONTAINER');
      await put('nat');
      assert.equal(jumps().length, 2);
      assert.equal(await put('nat'), undefined);
      assert.equal(shown(family, 'nat', 'PREROUTING').length, 4);
    });

    test('local ports are read from rules', async () => {
      const ports = async () =>
        installedPorts(parseDump(await iptables.save(family, 'nat')).get('nat') ?? new Map(), 0);
      const before = await ports();
      assert.deepEqual(before.map(({ localPort }) => localPort).toSorted(), [40_001, 40_002]);
      native(`add rule ${ip} nat PREROUTING ${MARK}`);
      assert.deepEqual(await ports(), before);
    });

    test('a native rule in a chain of ours is deleted', async () => {
      const before = await specs('KUBE-PORTALS-CONTAINER');
      native(`insert rule ${ip} nat KUBE-PORTALS-CONTAINER ${MARK}`);
      native(`add rule ${ip} nat PREROUTING ${MARK}`);
      assert.notDeepEqual(await specs('KUBE-PORTALS-CONTAINER'), before);
      assert.notEqual(await put('nat'), undefined);
      assert.deepEqual(await specs('KUBE-PORTALS-CONTAINER'), before);
      assert.equal(await put('nat'), undefined);
    });

    test('a single chain is listed; a missing chain is empty', async () => {
      native(`add rule ${ip} nat PREROUTING ${MARK}`);
      const listed = async (chain: string) => {
        const text = await iptables.list(family, 'nat', chain);
        return parseDump(`*nat\n${text}`).get('nat')?.get(chain) ?? [];
      };
      for (const chain of ['PREROUTING', 'KUBE-PORTALS-HOST'])
        assert.deepEqual(await listed(chain), await specs(chain));
      assert.equal(await iptables.list(family, 'nat', 'KUBE-PORTALS-NOWHERE'), '');
      native(`insert rule ${ip} nat KUBE-PORTALS-HOST ${MARK}`);
      assert.match((await listed('KUBE-PORTALS-HOST'))[0] ?? '', /^-m nft --handle \d+$/);
    });

    test('cleanup is complete, and keeps foreign rules', async () => {
      native(`add rule ${ip} nat PREROUTING ${MARK}`);
      native(`add rule ${ip} filter INPUT ${MARK}`);
      native(`add chain ${ip} nat theirs`);
      native(`add rule ${ip} nat theirs ${MARK} jump KUBE-PORTALS-HOST`);
      native(`add rule ${ip} nat theirs ${MARK}`);
      run(tool, '-w', '-t', 'nat', '-A', 'PREROUTING', '-j', 'KUBE-PORTALS-CONTAINER');
      run(tool, '-w', '-t', 'mangle', '-N', 'KUBE-PROXY-CANARY');
      run(tool, '-w', '-t', 'mangle', '-A', 'PREROUTING', '-j', 'ACCEPT');
      native(`add rule ${ip} mangle PREROUTING ${MARK}`);
      try {
        assert.equal(
          await cleanUp({
            methods: [new IptablesMethod({ iptables, isLocal: () => false, clock: systemClock, log })],
            ...{ conntrack: NO_CONNTRACK, connectionMark: 1, log },
          }),
          0,
          JSON.stringify(log.lines),
        );
        assert.doesNotMatch(run('nft', 'list', 'ruleset'), /KUBE-/);
        assert.deepEqual(shown(family, 'nat', 'PREROUTING'), [MARK]);
        assert.deepEqual(shown(family, 'filter', 'INPUT'), [MARK]);
        assert.deepEqual(shown(family, 'nat', 'theirs'), [MARK]);
      } finally {
        native(`delete table ${ip} mangle`);
        native(`flush chain ${ip} nat theirs`);
        native(`delete chain ${ip} nat theirs`);
      }
    });

    test('without system calls, such a table is an error, not an empty table', async () => {
      native(`add rule ${ip} nat PREROUTING ${MARK}`);
      const blind = await createIptables(await toolsOf('nft'), { exec, log, kernel: Promise.resolve(undefined) });
      const see = new RegExp(`"nft -a list table ${ip} nat"`);
      await assert.rejects(blind.save(family, 'nat'), see);
      await assert.rejects(blind.list(family, 'nat', 'PREROUTING'), see);
      assert.match(await blind.list(family, 'nat', 'OUTPUT'), /KUBE-PORTALS-HOST/);
    });
  });
}

for (const flavour of FLAVOURS) {
  test(`the generation changes with each change of rules, without starting a program: ${flavour}`, async () => {
    flush(flavour);
    const programs: string[] = [];
    const counted: Exec = (request) => {
      programs.push(request.program);
      return exec(request);
    };
    const iptables = await createIptables(await toolsOf(flavour), { exec: counted, log: new RecordingLog() });
    for (const family of ['IPv4', 'IPv6'] as const) {
      const { rules } = renderPortals([], family === 'IPv4' ? nodeFacts() : IPV6_NODE);
      for (const table of ['nat', 'filter'] as const) {
        await iptables.restore(family, planText(table, await iptables.save(family, table), rules) ?? '');
      }
    }
    programs.length = 0;
    for (const [family, tool] of [
      ['IPv4', `iptables-${flavour}`],
      ['IPv6', `ip6tables-${flavour}`],
    ] as const) {
      const seen = [iptables.generation(family)];
      assert.notEqual(seen[0], undefined);
      for (const change of [
        '-t nat -A OUTPUT -j ACCEPT',
        // Of the same size, at the same place.
        '-t nat -R OUTPUT 1 -j RETURN',
        '-t nat -R OUTPUT 1 -j KUBE-PORTALS-CONTAINER',
        '-A INPUT -j ACCEPT',
        '-F',
        '-t nat -F',
      ]) {
        run(tool, '-w', ...change.split(' '));
        seen.push(iptables.generation(family));
        assert.equal(iptables.generation(family), seen.at(-1), 'nothing changed since');
        run(`${tool}-save`);
        assert.equal(iptables.generation(family), seen.at(-1), 'reading is no change');
      }
      assert.equal(new Set(seen).size, seen.length, JSON.stringify(seen));
    }
    assert.deepEqual(programs, []);
    flush(flavour);
  });
}

test('a held xtables lock is reported as such, not as a refusal', async () => {
  const iptables = await open('legacy');
  const lock = join(temporary, 'xtables.lock');
  const holder = spawn('flock', ['--no-fork', lock, 'sh', '-c', 'echo held; exec sleep 60']);
  try {
    await once(holder.stdout, 'data');
    await assert.rejects(iptables.restore('IPv4', '*nat\nCOMMIT\n'), { name: 'IptablesError', code: 'locked' });
  } finally {
    holder.kill();
  }
});

function flush(flavour: Flavour): void {
  for (const program of [`iptables-${flavour}`, `ip6tables-${flavour}`]) {
    for (const table of ['nat', 'filter']) {
      run(program, '-w', '-t', table, '-F');
      run(program, '-w', '-t', table, '-X');
    }
  }
}

/** Whether there was something to do. */
async function apply(iptables: Iptables, table: Table, family: IpFamily = 'IPv4'): Promise<boolean> {
  const text = planText(table, await iptables.save(family, table), RULES);
  if (text !== undefined) await iptables.restore(family, text);
  return text !== undefined;
}

async function cleanup(iptables: Iptables, table: Table): Promise<boolean> {
  const text = cleanupText(table, await iptables.save('IPv4', table));
  if (text !== undefined) await iptables.restore('IPv4', text);
  return text !== undefined;
}
