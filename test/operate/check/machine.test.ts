import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Service } from '../../../src/model/service.ts';
import { type ControlSocketFacts, checkControlSocket } from '../../../src/operate/check/control-socket.ts';
import { checkEngine } from '../../../src/operate/check/engine.ts';
import type { HostProcess, SocketPort } from '../../../src/operate/check/host-process.ts';
import { checkTools } from '../../../src/operate/check/iptables-tools.ts';
import { checkKernelSettings } from '../../../src/operate/check/kernel-settings.ts';
import { checkBacklog, checkConntrack, checkDescriptors, checkMemory } from '../../../src/operate/check/limits.ts';
import { type BindOutcome, checkListenAddress } from '../../../src/operate/check/listen-addresses.ts';
import { checkNodePorts } from '../../../src/operate/check/node-ports.ts';
import { checkPrivileges } from '../../../src/operate/check/privileges.ts';
import { checkProxyPorts, type LocalPortFacts } from '../../../src/operate/check/proxy-ports.ts';
import { address } from '../../rules/fixtures.ts';
import { of, told } from './levels.ts';

const files = (texts: Readonly<Record<string, string>>) => (path: string) => texts[path];

describe('privileges', () => {
  const status = (capabilities: string, uid = 0) =>
    `Name:\tnode\nUid:\t1\t${uid}\t${uid}\t${uid}\nCapEff:\t${capabilities}\n`;
  const NET_ADMIN_RAW = '0000000000003000';
  const check = (text: string, lowestPort = 10_249) => told(checkPrivileges(text, { lowestPort }));

  test('root with the two capabilities may run it', () => {
    assert.deepEqual(check(status(NET_ADMIN_RAW)), ['ok: root with CAP_NET_ADMIN and CAP_NET_RAW']);
  });

  test('each missing one is named', () => {
    assert.match(check(status('0000000000002000'))[0]!, /^fail: this process lacks CAP_NET_ADMIN, without/);
    assert.match(check(status('0'))[0]!, /^fail: this process lacks CAP_NET_ADMIN and CAP_NET_RAW/);
    assert.match(check('')[0]!, /^fail: /);
  });

  test('another user than root is told', () => {
    assert.deepEqual(check(status(NET_ADMIN_RAW, 65_534)), [
      'fail: this process runs as user 65534, and iptables insists on root',
    ]);
  });

  test('ports below 1024 need one more, and only they', () => {
    assert.match(check(status(NET_ADMIN_RAW), 80)[0]!, /lacks CAP_NET_BIND_SERVICE, and is to listen on port 80/);
    assert.match(check(status('0000000000003400'), 80)[0]!, /^ok/);
    assert.match(check(status(NET_ADMIN_RAW), 1_024)[0]!, /^ok/);
    const [finding] = checkPrivileges(status(NET_ADMIN_RAW), { lowestPort: 80, unprivilegedFrom: 80 });
    assert.equal(finding?.level, 'ok');
  });
});

describe('the engine', () => {
  const runs = async () => {};
  const fails = () => Promise.reject(new Error('koffi does not load'));
  const check = async (engine: 'auto' | 'fast' | 'node', selfCheck: () => Promise<void>, workers = 1) =>
    told(await checkEngine({ engine, workers, cores: 2, selfCheck }));

  test('that can run is fine; the portable one needs no check', async () => {
    assert.deepEqual(await check('auto', runs), ['ok: the fast engine can run here, with 1 worker on 2 cores']);
    assert.deepEqual(await check('node', fails), ['ok: the portable engine, as --dataplane says']);
  });

  test('that cannot run is a warning, unless it is asked for', async () => {
    assert.match(
      (await check('auto', fails))[0]!,
      /^warn: the fast engine cannot run here: koffi does not load; the port/,
    );
    assert.match((await check('fast', fails))[0]!, /^fail: the fast engine cannot run here: koffi does not load$/);
  });

  test('more workers than cores are a warning', async () => {
    assert.match((await check('fast', runs, 3))[0]!, /^warn: .*3 workers share 2 cores/);
    assert.match((await check('fast', runs, 2))[0]!, /^ok/);
  });
});

describe('limits', () => {
  const descriptors = (limit: number) =>
    checkDescriptors(files({ '/proc/self/limits': `Max open files   ${limit}   ${limit}   files\n` }), 16_384);

  test('descriptors suffice for all UDP flows and some more', () => {
    assert.deepEqual(told(descriptors(20_480)), ['ok: 20480 open files']);
    assert.match(of('warn', descriptors(20_479))[0]!, /^only 20479 open files.* → raise the limit to 20480 or more/);
  });

  const NETFILTER = '/proc/sys/net/netfilter';
  const conntrack = (count: number, max: number, isWritable = true) =>
    checkConntrack(
      files({ [`${NETFILTER}/nf_conntrack_max`]: `${max}\n`, [`${NETFILTER}/nf_conntrack_count`]: `${count}\n` }),
      {
        wanted: [{ path: `${NETFILTER}/nf_conntrack_max`, value: 1_000, isFloor: true }],
        isWritable: () => isWritable,
      },
    );

  test('connection tracking has room', () => {
    assert.deepEqual(told(conntrack(899, 1_000)), ['ok: connection tracking has 899 entries of at most 1000']);
    assert.match(told(conntrack(900, 1_000))[0]!, /^warn: connection tracking has 900 entries of at most 1000/);
    assert.match(told(checkConntrack(files({}), { wanted: [], isWritable: () => true }))[0]!, /^ok: .*not loaded yet/);
  });

  test('what flags ask of it can be set, or is so already', () => {
    assert.match(
      of('warn', conntrack(0, 999, false))[0]!,
      /cannot be set from here: \/proc\/sys\S*nf_conntrack_max=1000/,
    );
    assert.deepEqual(of('warn', conntrack(0, 999, true)), []);
    assert.deepEqual(of('warn', conntrack(0, 1_001, false)), []);
  });

  test('a short queue for new connections is told', () => {
    assert.equal(checkBacklog(files({ '/proc/sys/net/core/somaxconn': '128\n' }))[0]?.level, 'warn');
    assert.deepEqual(checkBacklog(files({ '/proc/sys/net/core/somaxconn': '4096\n' })), []);
  });

  test('memory, of the machine and of the container', () => {
    const memory = (kiB: number, limit = 'max') =>
      told(
        checkMemory(
          files({
            '/proc/meminfo': `MemFree: 1 kB\nMemAvailable:   ${kiB} kB\n`,
            '/sys/fs/cgroup/memory.max': `${limit}\n`,
          }),
        ),
      );
    assert.deepEqual(memory(262_144), ['ok: 256 MiB of memory available']);
    assert.match(memory(261_000)[0]!, /^warn: 255 MiB of memory are left/);
    assert.match(memory(1e6, String(128 << 20))[0]!, /^warn: the memory limit of this container is 128 MiB/);
  });
});

describe('settings of the kernel', () => {
  const GOOD = {
    '/proc/sys/net/ipv4/ip_forward': '1\n',
    '/proc/sys/net/ipv6/conf/all/forwarding': '1\n',
    '/proc/sys/net/ipv4/ip_local_port_range': '32768\t60999\n',
  };
  const REUSE = '/proc/sys/net/ipv4/tcp_tw_reuse';
  const check = (
    texts: Readonly<Record<string, string>>,
    families: readonly ('IPv4' | 'IPv6')[] = ['IPv4', 'IPv6'],
    reuse = { isWanted: true, isWritable: true },
  ) => told(checkKernelSettings(files({ ...GOOD, ...texts }), families, { path: REUSE, ...reuse }));

  test('are fine by default', () => {
    assert.deepEqual(check({}), ['ok: settings that matter here are as they should be']);
  });

  test('forwarding counts for each family that is served', () => {
    assert.match(check({ '/proc/sys/net/ipv4/ip_forward': '0\n' })[0]!, /^warn: this node does not forward IPv4/);
    const noIPv6 = { '/proc/sys/net/ipv6/conf/all/forwarding': '0\n' };
    assert.match(check(noIPv6)[0]!, /^warn: this node does not forward IPv6/);
    assert.match(check(noIPv6, ['IPv4'])[0]!, /^ok/);
  });

  test('a narrow range of local ports is told', () => {
    assert.match(
      check({ '/proc/sys/net/ipv4/ip_local_port_range': '50000\t59998\n' })[0]!,
      /^warn: .* only 9999 ports/,
    );
  });

  test('how many connections a second one endpoint gets is told where local ports cannot be used again', () => {
    const at = (isWanted: boolean, isWritable: boolean, value: number) =>
      check({ [REUSE]: `${value}\n` }, ['IPv4'], { isWanted, isWritable })[0]!;
    assert.match(at(true, true, 2), /^ok/, 'the proxy will set it');
    assert.match(at(true, false, 1), /^ok/, 'the host has set it');
    assert.match(
      at(true, false, 2),
      /^warn: net.ipv4.tcp_tw_reuse is 2 and cannot be set from here: .* 470 connections/,
    );
    assert.match(at(false, true, 2), /^warn: .* stays so/);
    assert.match(check({ '/proc/sys/net/ipv4/tcp_timestamps': '0\n' })[0]!, /^warn: net.ipv4.tcp_timestamps is 0/);
  });

  test('strict reverse paths count where there are two ways out', () => {
    const HEAD = 'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n';
    const route = (name: string) => `${name}\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n`;
    const strict = { '/proc/sys/net/ipv4/conf/eth1/rp_filter': '1\n', '/proc/sys/net/ipv4/conf/all/rp_filter': '0\n' };
    assert.match(
      check({ ...strict, '/proc/net/route': HEAD + route('eth0') + route('eth1') })[0]!,
      /^warn: rp_filter is strict on eth1/,
    );
    assert.match(check({ ...strict, '/proc/net/route': HEAD + route('eth1') })[0]!, /^ok/);
    const loose = { ...strict, '/proc/sys/net/ipv4/conf/all/rp_filter': '2\n' };
    assert.match(check({ ...loose, '/proc/net/route': HEAD + route('eth0') + route('eth1') })[0]!, /^ok/);
  });
});

describe('local ports', () => {
  const KERNEL = { range: { first: 32_768, last: 60_999 }, reserved: new Set<number>() };
  const check = (facts: Partial<LocalPortFacts>) =>
    checkProxyPorts({ chosen: undefined, kernel: KERNEL, taken: new Set(), servicePorts: 0, ...facts });
  const range = (first: number, last: number) => ({ first, last });
  const ports = (first: number, count: number) => new Set(Array.from({ length: count }, (_, i) => first + i));

  test("the kernel's own range is fine, less what is reserved and taken", () => {
    assert.deepEqual(
      told(check({ taken: new Set([40_000, 80]), kernel: { ...KERNEL, reserved: new Set([40_001]) } })),
      ['ok: local ports 32768-60999 (net.ipv4.ip_local_port_range): 28230 of 28232 are free'],
    );
  });

  test('too few for the Services that are known are a failure, nearly none a warning', () => {
    const few = { chosen: range(20_000, 20_009) };
    assert.match(of('fail', check({ ...few, servicePorts: 11 }))[0]!, /10 are free, for 11 Service ports → widen/);
    assert.equal(check({ ...few, servicePorts: 10 })[0]?.level, 'ok');
    assert.match(of('fail', check({ ...few, taken: ports(20_000, 10) }))[0]!, /: 0 are free → widen/);
    assert.match(of('warn', check({ chosen: range(20_000, 20_099), taken: ports(20_000, 91) }))[0]!, /only 9 of 100/);
  });

  test('those of a proxy that runs are not counted against it', () => {
    const running = { chosen: range(20_000, 20_001), taken: undefined, servicePorts: 9 };
    assert.match(told(check(running))[0]!, /^ok: .*a proxy runs here already/);
  });

  test('a range in common with NodePorts is told where it was chosen', () => {
    assert.match(of('warn', check({ chosen: range(32_000, 32_100) }))[0]!, /have 32000-32100 in common/);
    assert.equal(check({ kernel: { ...KERNEL, range: range(1_024, 60_999) } })[0]?.level, 'ok');
  });

  test('a chosen range is to be kept from outgoing connections', () => {
    const chosen = range(40_000, 40_001);
    assert.match(
      of('warn', check({ chosen }))[0]!,
      /takes 40000-40001 of .* → keep them .*ip_local_reserved_ports=40000-40001/,
    );
    const reserved = new Set([40_000, 40_001]);
    assert.equal(check({ chosen, kernel: { ...KERNEL, reserved } })[0]?.level, 'ok');
  });
});

describe('ports of Services on this node', () => {
  const NODE = address('192.168.50.10');
  const service = (key: Service['key'], more: Partial<Service> = {}): Service => ({
    key,
    clusterIPs: [],
    externalIPs: [],
    loadBalancerIPs: [],
    affinity: { type: 'None' },
    ports: [],
    ...more,
  });
  const nodePort = (port: number, protocol: 'TCP' | 'UDP' = 'TCP') => ({
    ports: [{ name: '', protocol, port: 80, nodePort: port }],
  });
  const HOLDERS = new Map<SocketPort, HostProcess>([
    ['30080/TCP', { pid: 7, name: 'nginx' }],
    ['30081/TCP', { pid: 8, name: 'kube-userspace-proxy' }],
  ]);
  /** Somebody listens at 192.168.50.10, at the ports 30080 to 30099 and 80 of TCP. */
  const check = (services: readonly Service[], nodePortAddresses = [NODE]) =>
    checkNodePorts({
      services,
      addresses: [address('127.0.0.1'), NODE],
      nodePortAddresses,
      isListening: (at, port, protocol) => {
        // With thousands of Services and addresses, every question would be asked millions of times.
        assert.ok(protocol === 'TCP' && (port === 80 || port >= 30_080), `nobody listens at ${port}/${protocol}`);
        return at === NODE;
      },
      taken: new Set<SocketPort>(['80/TCP', ...Array.from({ length: 20 }, (_, i): SocketPort => `${30_080 + i}/TCP`)]),
      holdersOf: (ports) => new Map([...HOLDERS].filter(([port]) => ports.has(port))),
    });

  test('a NodePort at which a program listens takes its clients', () => {
    assert.deepEqual(of('warn', check([service('shop/web', nodePort(30_080))])), [
      'nginx (process 7) listens at 30080/TCP, the NodePort of shop/web: the rules take its packets, so its clients get ' +
        'the Service instead → give one of the two another port',
    ]);
    assert.match(of('warn', check([service('a/b', nodePort(30_082))]))[0]!, /^a program listens at 30082\/TCP/);
    assert.deepEqual(told(check([service('shop/web', nodePort(30_080, 'UDP')), service('a/b', nodePort(30_070))])), [
      'ok: nobody else listens at 2 ports of Services',
    ]);
  });

  test('counts only on the addresses that serve NodePorts', () => {
    const services = [service('shop/web', nodePort(30_080))];
    assert.deepEqual(told(check(services, [address('127.0.0.1')])), ['ok: nobody else listens at 1 port of Services']);
  });

  test('health check node ports are for the proxy, and may be held by it', () => {
    const ports = [{ name: '', protocol: 'TCP' as const, port: 81, nodePort: 0 }];
    assert.match(
      told(check([service('shop/web', { ports, healthCheckNodePort: 30_080 })]))[0]!,
      /^warn: nginx \(process 7\) listens at 30080\/TCP, the health check node port of shop\/web: load balancers/,
    );
    assert.deepEqual(told(check([service('shop/web', { ports, healthCheckNodePort: 30_081 })])), [
      'ok: nobody else listens at 1 port of Services',
    ]);
  });

  test('addresses of this node that are load balancer IPs take clients away, external IPs are not served', () => {
    const [away, here] = [address('192.0.2.1'), NODE];
    const { ports } = nodePort(0);
    assert.match(
      told(check([service('shop/web', { ports, loadBalancerIPs: [away, here] })]))[0]!,
      /^warn: a program listens at 80\/TCP of 192\.168\.50\.10, a load balancer IP of shop\/web: the rules take/,
    );
    assert.match(
      of('warn', check([service('shop/web', { ports, externalIPs: [away, here] })]))[0]!,
      /^a program listens at 80\/TCP of 192\.168\.50\.10, an external IP of shop\/web: it keeps its clients.* → .*externalIPs/,
    );
    assert.deepEqual(check([service('shop/web', { ports, externalIPs: [away], loadBalancerIPs: [away] })]), []);
  });

  test('are told up to ten, and the number of the others', () => {
    const many = Array.from({ length: 18 }, (_, i) => service('shop/web', nodePort(30_082 + i)));
    const findings = of('warn', check(many));
    assert.equal(findings.length, 11);
    assert.match(findings[10]!, /^programs listen at 8 more ports of Services → /);
  });

  test('Services without any need no word', () => {
    assert.deepEqual(check([service('shop/web', nodePort(0))]), []);
  });
});

describe('addresses of the HTTP servers', () => {
  const check = async (outcome: BindOutcome, isHard = false) =>
    told(
      await checkListenAddress({
        server: 'healthz',
        at: { address: address('127.0.0.1'), port: 10_256 },
        isHard,
        tryToBind: async () => outcome,
      }),
    )[0]!;
  const other: HostProcess = { pid: 7, name: 'kube-proxy' };

  test('are free, or served by a proxy of this program that runs already', async () => {
    assert.equal(await check({ outcome: 'free' }), 'ok: the healthz address 127.0.0.1:10256 is free');
    const ours = { ...other, name: 'kube-userspace-proxy' };
    assert.match(
      await check({ outcome: 'taken', by: ours }),
      /^ok: .* is served by the proxy that runs here \(process 7\)$/,
    );
  });

  test('that are taken by others keep no Service from being served, unless that is asked for', async () => {
    assert.match(await check({ outcome: 'taken', by: other }), /^warn: .* is taken by kube-proxy \(process 7\)$/);
    assert.match(await check({ outcome: 'taken', by: other }, true), /^fail: /);
    assert.match(
      await check({ outcome: 'taken', by: undefined }),
      /^warn: .* a program that cannot be seen from here$/,
    );
    assert.match(
      await check({ outcome: 'failed', err: 'EADDRNOTAVAIL' }, true),
      /^fail: .* cannot be listened on: EADDRNOTAVAIL$/,
    );
  });
});

describe('the control socket', () => {
  const check = (present: ControlSocketFacts['present'], isWritable = true) =>
    told(checkControlSocket({ path: '/run/x/control.sock', present, isWritable }))[0]!;

  test('can be had, or not', () => {
    assert.match(check('nothing'), /^ok: the control socket \/run\/x\/control\.sock can be had/);
    assert.match(check('socket'), /^ok: .* can be had/);
    assert.match(check('served', false), /^ok: .* is served by the proxy that runs here/);
    assert.match(check('hidden'), /^warn: .* cannot be looked at as this user$/);
    assert.match(check('other'), /^warn: something that is no socket/);
    assert.match(check('nothing', false), /^warn: no socket can be made at/);
    assert.deepEqual(checkControlSocket({ path: undefined, present: 'nothing', isWritable: false }), []);
  });
});

describe('the iptables programs', () => {
  const lock = { path: '/run/xtables.lock', isWritable: true };

  test('say which flavour is used, and why', () => {
    assert.match(
      told(checkTools({ mode: 'auto', chosen: 'nft', hinted: 'nft', lock }))[0]!,
      /^ok: iptables-nft: the one that the kubelet uses/,
    );
    assert.match(
      told(checkTools({ mode: 'auto', chosen: 'nft', hinted: undefined, lock }))[0]!,
      /^ok: iptables-nft: this machine's own/,
    );
    assert.match(
      told(checkTools({ mode: 'legacy', chosen: 'legacy', hinted: undefined, lock }))[0]!,
      /^ok: iptables-legacy: --iptables-mode/,
    );
  });

  test('that are missing are a failure', () => {
    assert.match(
      of('fail', checkTools({ mode: 'auto', chosen: undefined, hinted: undefined, lock }))[0]!,
      /^no iptables-restore is on PATH → install/,
    );
    assert.match(
      of('fail', checkTools({ mode: 'nft', chosen: undefined, hinted: undefined, lock }))[0]!,
      /of the nft flavour/,
    );
  });

  test('of another flavour than the kubelet uses are a warning', () => {
    assert.match(
      of('warn', checkTools({ mode: 'nft', chosen: 'nft', hinted: 'legacy', lock }))[0]!,
      /iptables-legacy, and --iptables-mode says nft.* → leave/,
    );
    assert.match(
      of('warn', checkTools({ mode: 'auto', chosen: 'nft', hinted: 'legacy', lock }))[0]!,
      /not installed.* → install iptables-legacy/,
    );
  });

  test('need the lock only where they take it', () => {
    const closed = { ...lock, isWritable: false };
    assert.match(
      of('fail', checkTools({ mode: 'legacy', chosen: 'legacy', hinted: undefined, lock: closed }))[0]!,
      /\/run\/xtables\.lock.*cannot be written/,
    );
    assert.deepEqual(of('fail', checkTools({ mode: 'nft', chosen: 'nft', hinted: undefined, lock: closed })), []);
  });
});
