import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Iptables, IptablesError } from '../../src/capture/iptables/iptables.ts';
import { IptablesMethod } from '../../src/capture/iptables/method.ts';
import { checkFirewall } from '../../src/check/firewall.ts';
import { checkFamilies, checkLeftovers, checkTools, type FamilyFacts } from '../../src/check/iptables.ts';
import { checkKernelRules, inEmptyNamespace } from '../../src/check/kernel-rules.ts';
import type { ExecRequest, ExecResult } from '../../src/kernel/iptables/exec.ts';
import { InstalledPrograms } from '../../src/kernel/iptables/flavour.ts';
import { createIptables, everyIptables } from '../../src/kernel/iptables/iptables.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { FakeIptables } from '../fakes/fake-iptables.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address } from '../support/model.ts';
import { fakeMachine, linesOf, troubles } from './fake-machine.ts';

const NFT = { flavour: 'nft', infix: '-nft' } as const;

/** Machines with these flavours; `saved` is what their `-save` programs print. */
function installed(flavours: readonly string[], saved: (line: string) => string | undefined = () => undefined) {
  return (line: string): string | undefined => {
    if (!flavours.some((flavour) => line.includes(`tables-${flavour}-`))) return undefined;
    if (line.endsWith('--version')) return line.includes('nft') ? 'v1.8.9 (nf_tables)' : 'v1.8.9 (legacy)';
    return saved(line) ?? '';
  };
}

describe('the iptables programs', () => {
  const hint = (flavour: string) => (line: string) =>
    line.startsWith(`iptables-${flavour}-save`) ? '*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n' : undefined;
  const check = async (
    mode: 'auto' | 'nft' | 'legacy',
    program: ReturnType<typeof installed>,
    isWritable = true,
  ): Promise<string[]> => {
    const machine = fakeMachine({ program, isWritable: () => isWritable });
    return linesOf((await checkTools(machine, new InstalledPrograms(machine.exec), mode)).findings);
  };

  test('say which flavour is used, and why', async () => {
    assert.deepEqual(await check('auto', installed(['nft'], hint('nft'))), ['ok: iptables-nft: as the kubelet']);
    assert.deepEqual(await check('auto', installed(['nft'])), ["ok: iptables-nft: this machine's default"]);
    assert.match((await check('legacy', installed(['legacy'])))[0]!, /^ok: iptables-legacy: --iptables-mode says so/);
  });

  test('that are missing are a failure; another flavour than the kubelet’s is a warning', async () => {
    assert.match((await check('auto', () => undefined))[0]!, /^fail: no iptables-restore is on PATH → install/);
    assert.match((await check('nft', installed(['legacy'])))[0]!, /^fail: no iptables of the nft flavour/);
    const both = installed(['nft', 'legacy'], hint('legacy'));
    assert.match((await check('nft', both))[0]!, /^warn: .* iptables-legacy, and --iptables-mode says nft.* → remove/);
  });

  test('need the lock only where they take it', async () => {
    assert.match((await check('legacy', installed(['legacy']), false))[1]!, /^fail: .*\/run\/xtables\.lock.*cannot be/);
    assert.equal((await check('nft', installed(['nft']), false)).length, 1);
  });
});

describe('address families', () => {
  const [IPV4, IPV6] = [
    { family: 'IPv4', address: address('10.0.0.1') } as const,
    { family: 'IPv6', address: address('fd00::1') } as const,
  ];
  const check = async (facts: Partial<FamilyFacts> = {}) =>
    linesOf(await checkFamilies({ served: [IPV4, IPV6], leftOut: undefined, readRules: async () => '', ...facts }));
  const failing = (err: string, code: IptablesError['code'] = 'failed') =>
    check({ readRules: () => Promise.reject(new IptablesError(code, err)) });

  test('are shown with the addresses of the node, and with the reason why one is not served', async () => {
    const both = 'ok: Services are served over IPv4 (node address 10.0.0.1) and IPv6 (node address fd00::1)';
    assert.deepEqual(await check(), [both]);
    const [only] = await check({ served: [IPV4], leftOut: 'no ip6tables' });
    assert.match(only!, /^warn: Services are served over IPv4 \(node address 10\.0\.0\.1\) only: no ip6tables → /);
  });

  test('without tables are a failure, each with its own advice; a lock proves nothing', async () => {
    for (const [err, says] of [
      ['iptables-save: Failed to initialize nft: Protocol not supported', /^fail: there .* IPv4: .* → load nf_tables/],
      ["can't initialize iptables table `nat'", /→ .*modprobe iptable_nat iptable_filter/],
      [
        'iptables-save needs root: Could not fetch rule set generation id: Permission denied',
        /→ see the check of priv/,
      ],
    ] as const) {
      assert.match((await failing(err))[0]!, says);
    }
    assert.match((await failing('try again', 'locked'))[0]!, /^ok/);
    assert.match((await failing('too late', 'timeout'))[0]!, /^ok/);
  });
});

describe('rules that the kernel may lack', () => {
  /** A kernel that refuses texts with this in them. */
  const check = async (lacks: string | undefined) => {
    const kernel = new FakeIptables();
    kernel.refuses = (spec) => lacks !== undefined && spec.includes(lacks);
    return linesOf(await checkKernelRules(methodOf(kernel), ['IPv6'], systemClock));
  };
  const methodOf = (iptables: Iptables) =>
    new IptablesMethod({ iptables, isLocal: () => false, clock: systemClock, log: new RecordingLog() });

  test('are tried with every match and target of rules of Services', async () => {
    const kernel = new FakeIptables();
    await checkKernelRules(methodOf(kernel), ['IPv4', 'IPv6'], systemClock);
    const text = kernel.restored.join('');
    for (const part of ['addrtype', 'comment', 'conntrack', 'DNAT', 'REJECT', '-m udp', '-s 192.0.2.6/32']) {
      assert.ok(text.includes(part), part);
    }
    assert.ok(text.includes('2001:db8::2/128'));
  });

  test('a missing match is found, with its module', async () => {
    assert.deepEqual(await check(undefined), ['ok: the kernel accepts every kind of rule (IPv6)']);
    const [finding, ...others] = await check('-m mark');
    assert.match(finding!, /^fail: .*refuses 2 kinds of rules for IPv6, .* → .*modprobe .*xt_mark/);
    assert.doesNotMatch(finding!, /xt_RETURN/);
    assert.deepEqual(others, []);
    assert.match((await check('-m addrtype'))[0]!, /^fail: the kernel refuses the tables for IPv6: .*addrtype/);
  });

  test('are never tried in the namespace of this machine', async () => {
    const requests: ExecRequest[] = [];
    const run = async (...answers: readonly ExecResult[]) => {
      requests.length = 0;
      const exec = async (request: ExecRequest) =>
        answers[requests.push(request) - 1] ?? ({ outcome: 'exited', code: 0, stdout: '', stderr: '' } as const);
      return await inEmptyNamespace(exec)({ program: 'ip6tables-nft-restore', args: ['-w'], input: '*nat' });
    };
    const exited = (code: number, stderr: string): ExecResult => ({ outcome: 'exited', code, stdout: '', stderr });
    await run();
    assert.deepEqual(requests, [{ program: 'unshare', args: ['--net', 'ip6tables-nft-restore', '-w'], input: '*nat' }]);
    const denied = exited(1, 'unshare: unshare failed: Operation not permitted\n');
    await assert.rejects(run(denied, denied), /^CaptureError: unshare: unshare failed: Operation not permitted$/);
    assert.ok(
      requests.length === 2 && requests.every(({ program, args }) => program === 'unshare' && args.includes('--net')),
    );
    const refused = exited(2, 'ip6tables-nft-restore v1.8.9 (nf_tables): line 3: RULE_APPEND failed');
    assert.deepEqual(await run(refused), refused);
    const exec = inEmptyNamespace(async () => ({ outcome: 'missing' }));
    const iptables = await createIptables(NFT, { exec, log: new RecordingLog() });
    assert.match(
      troubles(await checkKernelRules(methodOf(iptables), ['IPv4'], systemClock))[0]!,
      /^warn: .* no program unshare → /,
    );
  });
});

describe('firewalls', () => {
  /** INPUT of the nft flavour, which the proxy does not use, and the chain `inet fw input` of nft. */
  const check = async ({ input = '', nft = [] as readonly string[], mark = undefined as number | undefined }) => {
    const base = 'type filter hook input priority filter;';
    const chain = ['table inet fw {', 'chain input {', ...nft.map((rule) => `\t\t${rule}`), '}', '}'].join('\n');
    const chains = [
      ...['table ip filter {', 'chain INPUT {', `${base} policy drop;`, '}', '}'],
      ...['table inet fw {', 'chain output {', 'type filter hook output priority filter; policy drop;', '}'],
      ...['chain input {', base, '}', '}'],
    ].join('\n');
    const { exec } = fakeMachine({
      program: (line) => {
        if (line === 'nft list chains') return nft.length === 0 ? '' : chains;
        if (line === 'nft -y list chain inet fw input') return chain;
        if (line.startsWith('iptables-nft ')) return input;
        return installed(['nft', 'legacy'])(line);
      },
    });
    const own = { flavour: 'legacy', infix: '-legacy' } as const;
    return troubles(await checkFirewall(exec, new InstalledPrograms(exec), { own, families: ['IPv4'], mark }));
  };
  const lines = (...rules: readonly string[]) => ({
    input: [
      '-P INPUT DROP',
      '-A INPUT -i lo -j ACCEPT',
      '-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
    ]
      .concat(rules.map((rule) => `-A INPUT ${rule}`))
      .join('\n'),
  });

  test('of the other flavour that accept no client are reported, with a rule that accepts them', async () => {
    assert.deepEqual(await check(lines('-p tcp -m tcp --dport 22 -j ACCEPT', '-j KUBE-NODEPORT-NON-LOCAL')), [
      'warn: INPUT of iptables-nft drops connections to Services and health check node ports → iptables-nft -I ' +
        "INPUT -m conntrack --ctstate DNAT -j ACCEPT, also in that firewall's configuration",
    ]);
    const rejects = { input: '-P INPUT ACCEPT\n-A INPUT -p icmp -j ACCEPT\n-A INPUT -j REJECT --reject-with x' };
    assert.match((await check(rejects))[0]!, /^warn: INPUT of iptables-nft drops/);
    for (const comment of ['accept', '"all else, \\"accept\\" none"']) {
      const input = `-P INPUT ACCEPT\n-A INPUT -m comment --comment ${comment} -j DROP`;
      assert.match((await check({ input }))[0]!, /^warn: INPUT of iptables-nft drops/, comment);
    }
    assert.deepEqual(await check({ input: '-P INPUT ACCEPT' }), []);
  });

  test('of the other flavour may accept clients by NAT, or in ways unknown to the check', async () => {
    for (const rule of [
      '-m conntrack --ctstate DNAT -j ACCEPT',
      '-p tcp -m tcp --dport 32768:60999 -j ACCEPT',
      '-s 10.244.0.0/16 -j ACCEPT',
      '-i cni+ -j ACCEPT',
      '-m set --match-set pods src -j ACCEPT',
      '-j ufw-user-input',
    ]) {
      assert.deepEqual(await check(lines(rule)), [], rule);
    }
  });

  test("that are tables of nft's own count, too", async () => {
    const policy = 'type filter hook input priority filter; policy drop;';
    const usual = ['iifname "lo" accept', 'ct state established,related accept', 'tcp dport { 22, 10250 } accept'];
    const [warning, ...more] = await check({ nft: [policy, ...usual, 'ip protocol icmp accept'] });
    assert.match(
      warning!,
      /^warn: the nft chain inet fw input drops .* → nft insert rule inet fw input ct status dnat acc/,
    );
    assert.deepEqual(more, []);
    for (const rule of ['ct status dnat accept', 'iifname "cni*" accept', 'ip saddr 10.0.0.0/8 accept', 'jump allow']) {
      assert.deepEqual(await check({ nft: [policy, ...usual, rule] }), [], rule);
    }
    const open = policy.replace('drop', 'accept');
    assert.deepEqual(await check({ nft: [open, ...usual] }), []);
    for (const last of [
      'drop',
      'counter packets 7 bytes 420 drop',
      'counter name "lost" drop',
      'log prefix "may accept: " drop',
      'log prefix "x" level info flags all counter packets 0 bytes 0 reject with icmpx admin-prohibited',
    ]) {
      assert.equal((await check({ nft: [open, ...usual, last] })).length, 1, last);
    }
    for (const some of [
      'tcp dport 25 counter packets 7 bytes 420 drop',
      'log prefix "drop "',
      'limit rate 1/second drop',
    ]) {
      assert.deepEqual(await check({ nft: [open, ...usual, some] }), [], some);
    }
  });

  describe('where the proxy captures by an nft table', () => {
    const mark = 0x4000;
    const marked = 'meta mark & 0x00004000 == 0x00004000 accept';
    const drops = (priority: number) => `type filter hook input priority ${priority}; policy drop;`;
    const where = 'warn: the nft chain inet fw input drops connections to';
    const cured = "also in that firewall's configuration";

    test('let in what has its mark, and nothing else will do for health check node ports', async () => {
      const cure = `→ nft insert rule inet fw input meta mark & 0x4000 == 0x4000 accept, ${cured}`;
      for (const rule of ['', 'meta mark & 0x00002000 == 0x00002000 accept', 'meta mark 0x00004001 accept']) {
        const found = await check({ nft: [drops(0), rule], mark });
        assert.deepEqual(found, [`${where} Services and health check node ports ${cure}`], rule);
      }
      assert.deepEqual(await check({ nft: [drops(-9), 'ct status dnat accept'], mark }), [
        `${where} health check node ports ${cure}`,
      ]);
      for (const rule of [marked, marked.replace(' accept', ' counter packets 1 bytes 60 accept'), 'jump allow']) {
        assert.deepEqual(await check({ nft: [drops(0), 'ct status dnat accept', rule], mark }), [], rule);
      }
    });

    test('cannot see the mark in a chain that comes first', async () => {
      const ports = 'one for each health check node port: the mark comes after this chain';
      for (const priority of [-10, -200]) {
        assert.deepEqual(await check({ nft: [drops(priority), marked], mark }), [
          `${where} Services and health check node ports → nft insert rule inet fw input ct status dnat accept, ` +
            `${cured}, and ${ports}`,
        ]);
        assert.deepEqual(await check({ nft: [drops(priority), 'ct status dnat accept'], mark }), []);
      }
    });
  });
});

describe('other proxies', () => {
  type Facts = NonNullable<Parameters<typeof fakeMachine>[0]>;
  const check = async (facts: Facts = {}, own: 'nft' | 'legacy' = 'nft') => {
    const machine = fakeMachine(facts);
    const options = { exec: machine.exec, log: new RecordingLog(), kernel: Promise.resolve(undefined) };
    const iptables = await everyIptables(new InstalledPrograms(machine.exec), options);
    return linesOf(await checkLeftovers(machine, iptables, own));
  };
  /** Chains of the IPv4 nat table of iptables-nft. */
  const chains = (...names: readonly string[]): Facts => {
    const table = ['*nat', ...names.map((name) => `:${name} - [0:0]`), 'COMMIT', ''].join('\n');
    const saved = (line: string) => (line.startsWith('iptables-nft-save -t nat') ? table : '*x\n');
    return { program: installed(['nft'], saved) };
  };

  test('that run are found', async () => {
    assert.deepEqual(await check(chains('KUBE-MARK-MASQ', 'PREROUTING')), [
      'ok: no other proxy runs here or has left anything',
    ]);
    const rival = {
      neighbours: () => [
        { pid: 12, name: 'kube-proxy' },
        { pid: 13, name: 'kube-proxyd' },
      ],
    };
    const [finding, ...others] = await check(rival);
    assert.match(finding!, /^fail: kube-proxy runs on this node \(process 12\).* → .* --cleanup$/);
    assert.deepEqual(others, []);
    const serving = (pid: number | undefined) => check({ servingProxy: async () => ({ pid, uid: 0 }) });
    assert.match((await serving(12))[0]!, /^ok: a proxy of this program serves this node \(process 12\); a second/);
    assert.match((await serving(undefined))[0]!, /serves this node \(in another container\)/);
  });

  test('leave chains, by flavour, which --cleanup removes', async () => {
    const [old] = await check(chains('KUBE-SERVICES', 'KUBE-SVC-ABCDEFGHIJKLMNOP'));
    assert.match(old!, /^warn: the tables of iptables-nft have 2 chains of kube-proxy.* → .*--cleanup/);
    const ours = ['KUBE-PORTALS-HOST', 'KUBE-PORTALS-CONTAINER'];
    const [own] = await check(chains(...ours));
    assert.equal(own, 'ok: the tables of iptables-nft have 2 chains of this proxy, which a run takes over');
    const [other] = await check(chains(...ours), 'legacy');
    assert.match(other!, /^warn: the tables of iptables-nft have 2 chains of this proxy, which a run .* → .*--cleanup/);
  });

  test('may have left chains that only programs can remove which are gone', async () => {
    const save = async () => '*nat\n:KUBE-PORTALS-HOST - [0:0]\nCOMMIT\n';
    const legacy = { flavour: 'legacy', canRemove: false, save } as unknown as Iptables;
    const [left] = linesOf(await checkLeftovers(fakeMachine(), [legacy], 'nft'));
    assert.match(
      left!,
      /^warn: the tables of iptables-legacy have \d chains of this proxy.* → install iptables-legacy, /,
    );
  });

  test('may have left chains in tables that cannot be read', async () => {
    const program = (line: string) =>
      line.includes('-save ') ? { outcome: 'failed' as const, err: 'x' } : installed(['nft'])(line);
    assert.match((await check({ program }))[0]!, /^warn: the tables of iptables-nft cannot be read, so leftovers/);
  });

  test('in the modes ipvs and nftables leave other things', async () => {
    const ipvs = 'IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n';
    const files = { '/proc/net/ip_vs': `${ipvs}TCP  0A600001:01BB rr\n` };
    assert.match(
      (await check({ files, interfaces: () => ['lo', 'kube-ipvs0'] }))[0]!,
      /^warn: kube-proxy in ipvs mode has left 1 virtual server of IPVS and the interface kube-ipvs0/,
    );
    assert.match((await check({ files: { '/proc/net/ip_vs': ipvs } }))[0]!, /^ok/);
    const program = (line: string) => (line === 'nft list tables' ? 'table ip nat\ntable ip kube-proxy\n' : undefined);
    assert.match((await check({ program }))[0]!, /the table ip kube-proxy → nft delete table ip kube-proxy$/);
  });
});
