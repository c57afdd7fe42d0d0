import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { checkKernelSettings, checkLimits, checkPrivileges } from '../../src/check/kernel.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { address } from '../support/model.ts';
import { fakeMachine, linesOf, troubles } from './fake-machine.ts';

type Files = Readonly<Record<string, string>>;

describe('privileges', () => {
  const NET_ADMIN_RAW = '0000000000003000';
  const check = (capabilities: string, { uid = 0, port = 10_249, files = {} as Files } = {}) => {
    const status = `Name:\tnode\nUid:\t1\t${uid}\t${uid}\t${uid}\nCapEff:\t${capabilities}\n`;
    const at = { address: address('0.0.0.0'), port };
    return linesOf(
      checkPrivileges(fakeMachine({ files: { '/proc/self/status': status, ...files } }), {
        healthzAddress: at,
        metricsAddress: undefined,
        proxyPortRange: undefined,
      }),
    )[0]!;
  };

  test('root with the two capabilities may run it', () => {
    assert.equal(check(NET_ADMIN_RAW), 'ok: root with CAP_NET_ADMIN and CAP_NET_RAW');
  });

  test('each missing one is named', () => {
    assert.match(check('0000000000002000'), /^fail: this process lacks CAP_NET_ADMIN, which iptables needs/);
    assert.match(check('0'), /^fail: this process lacks CAP_NET_ADMIN and CAP_NET_RAW/);
    assert.match(check('', { files: { '/proc/self/status': '' } }), /^fail: this process lacks CAP_NET_ADMIN and/);
    assert.match(check(NET_ADMIN_RAW, { uid: 65_534 }), /^fail: this process runs as user 65534, and iptables needs/);
  });

  test('only ports below 1024 need one more', () => {
    assert.match(check(NET_ADMIN_RAW, { port: 80 }), /lacks CAP_NET_BIND_SERVICE, which listening on port 80 needs/);
    assert.match(check('0000000000003400', { port: 80 }), /^ok/);
    assert.match(check(NET_ADMIN_RAW, { port: 1_024 }), /^ok/);
    const files = { '/proc/sys/net/ipv4/ip_unprivileged_port_start': '80' };
    assert.match(check(NET_ADMIN_RAW, { port: 80, files }), /^ok/);
  });
});

describe('settings of the kernel', () => {
  const REUSE = '/proc/sys/net/ipv4/tcp_tw_reuse';
  const GOOD = {
    '/proc/sys/net/ipv4/ip_forward': '1\n',
    '/proc/sys/net/ipv6/conf/all/forwarding': '1\n',
    '/proc/sys/net/ipv4/ip_local_port_range': '32768\t60999\n',
  };
  const check = (
    files: Files,
    { families = ['IPv4', 'IPv6'] as readonly IpFamily[], tcpTwReuse = true, isWritable = true } = {},
  ) => {
    const machine = fakeMachine({ files: { ...GOOD, ...files }, isWritable: () => isWritable });
    return troubles(checkKernelSettings(machine, families, { host: { tcpTwReuse } })).join('\n');
  };
  const fine = '';

  test('forwarding counts for each family that is served', () => {
    assert.equal(check({}), fine);
    assert.match(check({ '/proc/sys/net/ipv4/ip_forward': '0\n' }), /^warn: this node does not forward IPv4/);
    const noIPv6 = { '/proc/sys/net/ipv6/conf/all/forwarding': '0\n' };
    assert.match(check(noIPv6), /^warn: this node does not forward IPv6/);
    assert.equal(check(noIPv6, { families: ['IPv4'] }), fine);
  });

  test('a narrow range of local ports is reported', () => {
    assert.match(check({ '/proc/sys/net/ipv4/ip_local_port_range': '50000\t59998\n' }), /^warn: .* only 9999 ports/);
  });

  test('local ports that cannot be used again limit connections to one endpoint', () => {
    assert.equal(check({ [REUSE]: '2\n' }), fine, 'the proxy will set it');
    assert.equal(check({ [REUSE]: '1\n' }, { isWritable: false }), fine, 'the host has set it');
    const refused = check({ [REUSE]: '2\n' }, { isWritable: false });
    assert.match(refused, /^warn: net.ipv4.tcp_tw_reuse is 2 and cannot be set from here: .* 470 connections/);
    assert.match(check({ [REUSE]: '2\n' }, { tcpTwReuse: false }), /^warn: .* stays so/);
    assert.match(check({ '/proc/sys/net/ipv4/tcp_timestamps': '0\n' }), /^warn: net.ipv4.tcp_timestamps is 0/);
  });

  test('strict reverse paths matter where there are two ways out', () => {
    const HEAD = 'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n';
    const route = (name: string) => `${name}\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n`;
    const [one, two] = [HEAD + route('eth1'), HEAD + route('eth0') + route('eth1')];
    const strict = (table: string, all = '0') =>
      check({
        '/proc/net/route': table,
        '/proc/sys/net/ipv4/conf/eth1/rp_filter': '1\n',
        '/proc/sys/net/ipv4/conf/all/rp_filter': `${all}\n`,
      });
    assert.match(strict(two), /^warn: rp_filter is strict on eth1/);
    assert.equal(strict(one), fine);
    assert.equal(strict(two, '2'), fine);
  });
});

describe('limits', () => {
  const NETFILTER = '/proc/sys/net/netfilter';
  const conntrack = {
    ...{ maxPerCore: 1, min: 1_000, tcpBeLiberal: false },
    ...{ tcpEstablishedTimeoutMs: 0, tcpCloseWaitTimeoutMs: 0, udpTimeoutMs: 0, udpStreamTimeoutMs: 0 },
  };
  const check = (files: Files, isWritable = true) => {
    const hashsize = { '/sys/module/nf_conntrack/parameters/hashsize': '65536\n' };
    const machine = fakeMachine({ files: { ...hashsize, ...files }, isWritable: () => isWritable });
    const config = { dataPlane: { udpMaxFlows: 16_384 }, host: { conntrack } };
    return linesOf(checkLimits(machine, config as Parameters<typeof checkLimits>[1]));
  };
  const entries = (count: number, max: number) => ({
    [`${NETFILTER}/nf_conntrack_max`]: `${max}\n`,
    [`${NETFILTER}/nf_conntrack_count`]: `${count}\n`,
  });

  test('descriptors are enough for all UDP flows and some more', () => {
    const limit = (count: number) =>
      check({ '/proc/self/limits': `Max open files   ${count}   ${count}   files\n` })[0]!;
    assert.equal(limit(20_480), 'ok: 20480 open files');
    assert.match(limit(20_479), /^warn: only 20479 open files.* → raise the limit to 20480 or more/);
  });

  test('connection tracking has room', () => {
    assert.match(check({})[1]!, /^ok: .*not loaded yet/);
    assert.equal(check(entries(899, 1_000))[1], 'ok: connection tracking has 899 entries of at most 1000');
    assert.match(check(entries(900, 1_000))[1]!, /^warn: connection tracking has 900 entries of at most 1000/);
  });

  test('its flags are reported only when their values differ and cannot be set', () => {
    assert.match(check(entries(0, 999), false)[2]!, /^warn: these cannot be set from here: \S*nf_conntrack_max=1000 →/);
    assert.equal(check(entries(0, 999), true).length, 2);
    assert.equal(check(entries(0, 1_001), false).length, 2);
  });

  test('a short queue for new connections and a tight container are reported', () => {
    const somaxconn = '/proc/sys/net/core/somaxconn';
    assert.match(check({ [somaxconn]: '128\n' })[2]!, /^warn: net.core.somaxconn is 128/);
    assert.equal(check({ [somaxconn]: '4096\n', '/sys/fs/cgroup/memory.max': 'max\n' }).length, 2);
    const memory = { '/sys/fs/cgroup/memory.max': `${128 << 20}\n` };
    assert.match(check(memory)[2]!, /^warn: the memory limit of this container is 128 MiB/);
  });
});
