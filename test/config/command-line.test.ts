import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, test } from 'node:test';
import type { Config } from '../../src/config/config.ts';
import { SCHEDULERS } from '../../src/model/scheduler.ts';
import { parseCommandLine } from '../support/command-line.ts';

function configOf(...argv: string[]): Config {
  const line = parseCommandLine(['--manifests', '/etc/services', ...argv]);
  assert.equal(line.kind, 'run', 'text' in line ? line.text : '');
  return (line as Extract<typeof line, { kind: 'run' }>).config;
}

function refusalOf(...argv: string[]): string {
  const line = parseCommandLine(argv);
  assert.equal(line.kind, 'error', JSON.stringify(line));
  return (line as Extract<typeof line, { kind: 'error' }>).text;
}

const filesAt = (paths: readonly string[]) => ({
  kind: 'manifests',
  paths,
  clusterIpRanges: [],
  loopbackEndpoints: false,
});

test('without flags but --manifests, every default is kube-proxy’s or ours', () => {
  const { fields, ...config } = configOf();
  assert.ok(fields.size > 0);
  assert.deepEqual(config, {
    configFile: undefined,
    source: filesAt(['/etc/services']),
    state: undefined,
    engine: 'auto',
    workers: undefined,
    bindAddress: '0.0.0.0',
    proxyPortRange: undefined,
    nodePortAddresses: [],
    nodePortsOnPrimary: false,
    externalIpAllowList: undefined,
    nodeEndpointPorts: undefined,
    clusterCidrs: [],
    detectLocal: { by: 'ClusterCIDR' },
    clientAddresses: { clientAddress: 'preserve', masqueradeAll: false },
    scheduler: 'rr',
    waitForEndpointsMs: 0,
    hostnameOverride: undefined,
    dataPlane: {
      endpointDrainTimeoutMs: 0,
      tcpHalfOpenTimeoutMs: 300_000,
      tcpUserTimeoutMs: 30_000,
      udpIdleTimeoutMs: 250,
      udpFirstReplyTimeoutMs: 5_000,
      udpMaxFlowsPerService: 8192,
      udpMaxFlows: 16_384,
      ejectAfter: 3,
      ejectTimeMs: 5000,
      dialHedgeMs: 0,
      affinityMaxClients: 65_536,
      connectionMark: 0x2000,
      congestionControl: undefined,
    },
    capture: 'auto',
    iptablesMode: 'auto',
    iptablesSyncPeriodMs: 30_000,
    iptablesMinSyncPeriodMs: 100,
    healthzAddress: { address: '0.0.0.0', port: 10_256 },
    metricsAddress: { address: '127.0.0.1', port: 10_249 },
    bindAddressHardFail: false,
    profiling: false,
    controlSocket: '/run/kube-userspace-proxy/control.sock',
    handOverSocket: undefined,
    connectionLog: undefined,
    host: {
      oomScoreAdj: -999,
      tcpTwReuse: true,
      conntrack: {
        maxPerCore: 32_768,
        min: 131_072,
        tcpEstablishedTimeoutMs: 86_400_000,
        tcpCloseWaitTimeoutMs: 3_600_000,
        tcpBeLiberal: false,
        udpTimeoutMs: 0,
        udpStreamTimeoutMs: 0,
      },
    },
    log: { verbosity: 0, format: 'auto' },
  });
});

describe('a value is taken as it is meant', () => {
  const any = { address: '0.0.0.0', port: 10_256 };
  const loopback = { address: '127.0.0.1' };
  const cases: readonly (readonly [argv: string[], key: keyof Config, expected: unknown])[] = [
    [['--control-socket', '/run/other.sock'], 'controlSocket', '/run/other.sock'],
    [['--control-socket='], 'controlSocket', undefined],
    [['--connection-log', '/var/log/a.log'], 'connectionLog', '/var/log/a.log'],
    [
      ['--state-dir', '/var/lib/a'],
      'state',
      { directory: '/var/lib/a', waitMs: 10_000, maxAgeMs: 0, criSocket: undefined },
    ],
    [
      ['--state-dir', '/a', '--state-wait', '1s', '--state-max-age', '72h', '--cri-endpoint', 'unix:///run/cri.sock'],
      'state',
      { directory: '/a', waitMs: 1_000, maxAgeMs: 259_200_000, criSocket: '/run/cri.sock' },
    ],
    [['--state-dir', '/a', '--state-dir='], 'state', undefined],
    [['--control-socket', `/${'x'.repeat(98)}`], 'controlSocket', `/${'x'.repeat(98)}`],
    [['--manifests', 'a,b', '--manifests=c'], 'source', filesAt(['/etc/services', 'a', 'b', 'c'])],
    [
      ['--service-cluster-ip-range', '10.96.0.1/16,fd00:96::/112', '--allow-loopback-endpoints'],
      'source',
      {
        ...filesAt(['/etc/services']),
        clusterIpRanges: [
          { network: '10.96.0.0', prefixLength: 16 },
          { network: 'fd00:96::', prefixLength: 112 },
        ],
        loopbackEndpoints: true,
      },
    ],
    [['--bind-address', '192.0.2.10'], 'bindAddress', '192.0.2.10'],
    [['--bind-address', '::'], 'bindAddress', '::'],
    [['--bind-address', '2001:DB8::1'], 'bindAddress', '2001:db8::1'],
    [['--bind-address=169.254.20.10'], 'bindAddress', '169.254.20.10'],
    [['--bind-address', '127.0.0.1', '--bind-address', '192.0.2.1'], 'bindAddress', '192.0.2.1'],
    [['--proxy-port-range', '30000-30100'], 'proxyPortRange', { first: 30_000, last: 30_100 }],
    [['--proxy-port-range', '30000+100'], 'proxyPortRange', { first: 30_000, last: 30_100 }],
    [['--proxy-port-range', '30000'], 'proxyPortRange', { first: 30_000, last: 30_000 }],
    [['--proxy-port-range', '30000+0'], 'proxyPortRange', { first: 30_000, last: 30_000 }],
    [['--proxy-port-range', ' 1-65535 '], 'proxyPortRange', { first: 1, last: 65_535 }],
    [['--proxy-port-range', '0'], 'proxyPortRange', undefined],
    [['--proxy-port-range', '0-0'], 'proxyPortRange', undefined],
    [['--proxy-port-range='], 'proxyPortRange', undefined],
    [['--capture', 'nft'], 'capture', 'nft'],
    [['--iptables-mode', 'legacy'], 'iptablesMode', 'legacy'],
    [['--dataplane', 'node'], 'engine', 'node'],
    [['--workers', '4'], 'workers', 4],
    [['--iptables-sync-period', '1m'], 'iptablesSyncPeriodMs', 60_000],
    [['--iptables-min-sync-period', '0'], 'iptablesMinSyncPeriodMs', 0],
    [['--iptables-min-sync-period', '30s'], 'iptablesMinSyncPeriodMs', 30_000],
    [
      ['--nodeport-addresses', '10.1.2.3/8, 192.0.2.7/32', '--nodeport-addresses', '2001:DB8:ffff::1/33'],
      'nodePortAddresses',
      [
        { network: '10.0.0.0', prefixLength: 8 },
        { network: '192.0.2.7', prefixLength: 32 },
        { network: '2001:db8:8000::', prefixLength: 33 },
      ],
    ],
    [['--nodeport-addresses', '255.255.255.255/0'], 'nodePortAddresses', [{ network: '0.0.0.0', prefixLength: 0 }]],
    [
      ['--nodeport-addresses', '::1/0,::1/128'],
      'nodePortAddresses',
      [
        { network: '::', prefixLength: 0 },
        { network: '::1', prefixLength: 128 },
      ],
    ],
    [
      ['--nodeport-addresses', '::ffff:192.0.2.7/112'],
      'nodePortAddresses',
      [{ network: '::ffff:192.0.0.0', prefixLength: 112 }],
    ],
    [['--nodeport-addresses='], 'nodePortAddresses', []],
    [['--nodeport-addresses', 'primary'], 'nodePortAddresses', []],
    [['--nodeport-addresses', 'primary'], 'nodePortsOnPrimary', true],
    [
      ['--nodeport-addresses', 'primary,localhost'],
      'nodePortAddresses',
      [
        { network: '127.0.0.0', prefixLength: 8 },
        { network: '::1', prefixLength: 128 },
      ],
    ],
    [['--nodeport-addresses', 'primary,localhost'], 'nodePortsOnPrimary', true],
    [['--nodeport-addresses', 'localhost,all,primary,10.0.0.0/8'], 'nodePortAddresses', []],
    [['--nodeport-addresses', 'primary,all'], 'nodePortsOnPrimary', false],
    [['--nodeport-addresses', '10.0.0.0/8,primary'], 'nodePortAddresses', [{ network: '10.0.0.0', prefixLength: 8 }]],
    [['--feature-gates', 'AllowServiceExternalIPs=false'], 'externalIpAllowList', []],
    [
      ['--feature-gates', 'AllowServiceExternalIPs=false,AllowServiceExternalIPs=true'],
      'externalIpAllowList',
      undefined,
    ],
    [['--external-ip-allow-list', '192.0.2.0/24'], 'externalIpAllowList', [{ network: '192.0.2.0', prefixLength: 24 }]],
    [
      ['--node-endpoint-ports', '9100,8000-8010'],
      'nodeEndpointPorts',
      [
        { first: 9100, last: 9100 },
        { first: 8000, last: 8010 },
      ],
    ],
    [['--detect-local-mode', 'NodeCIDR'], 'detectLocal', { by: 'NodeCIDR' }],
    [
      ['--detect-local-mode', 'BridgeInterface', '--pod-bridge-interface', 'cni-podman0.1_a'],
      'detectLocal',
      { by: 'interface', inInterface: { name: 'cni-podman0.1_a', isPrefix: false } },
    ],
    [
      ['--detect-local-mode', 'InterfaceNamePrefix', '--pod-interface-name-prefix', 'cali'],
      'detectLocal',
      { by: 'interface', inInterface: { name: 'cali', isPrefix: true } },
    ],
    [['--pod-bridge-interface', 'cbr0'], 'detectLocal', { by: 'ClusterCIDR' }],
    [['--client-address', 'node'], 'clientAddresses', { clientAddress: 'node', masqueradeAll: false }],
    [['--masquerade-all'], 'clientAddresses', { clientAddress: 'preserve', masqueradeAll: true }],
    [['--client-address', 'node'], 'clientAddresses', { clientAddress: 'node', masqueradeAll: false }],
    [['--masquerade-all'], 'clientAddresses', { clientAddress: 'preserve', masqueradeAll: true }],
    [
      ['--cluster-cidr', '10.244.0.0/16,fd00::/48'],
      'clusterCidrs',
      [
        { network: '10.244.0.0', prefixLength: 16 },
        { network: 'fd00::', prefixLength: 48 },
      ],
    ],
    [['--profiling'], 'profiling', true],
    [['--bind-address-hard-fail=1'], 'bindAddressHardFail', true],
    [['--bind_address', '192.0.2.10'], 'bindAddress', '192.0.2.10'],
    [['--bind_address=192.0.2.10'], 'bindAddress', '192.0.2.10'],
    [['--manifests', 'my_file'], 'source', filesAt(['/etc/services', 'my_file'])],
    [['--proxy-mode', 'userspace'], 'engine', 'auto'],
    [['--proxy-mode='], 'engine', 'auto'],
    [['--init-only=false'], 'engine', 'auto'],
    // Upstream's addressFromDeprecatedFlags: 0 is off, another port only counts for an address without one.
    [['--healthz-port', '0'], 'healthzAddress', undefined],
    [['--healthz-port', '1', '--healthz-port', '2'], 'healthzAddress', any],
    [['--healthz-port', '8080', '--healthz-bind-address', '::1'], 'healthzAddress', { address: '::1', port: 8_080 }],
    [['--metrics-port', '8080', '--metrics-bind-address', '127.0.0.1:1'], 'metricsAddress', { ...loopback, port: 1 }],
    [['--metrics-port', '8080', '--metrics-bind-address', '127.0.0.1'], 'metricsAddress', { ...loopback, port: 8_080 }],
    [['--metrics-port', '0', '--metrics-bind-address', '127.0.0.1:1'], 'metricsAddress', undefined],
    [['--healthz-bind-address', ''], 'healthzAddress', undefined],
    [['--healthz-bind-address='], 'healthzAddress', undefined],
    [['--healthz-bind-address', '127.0.0.1'], 'healthzAddress', { address: '127.0.0.1', port: 10_256 }],
    [['--healthz-bind-address', '[::]:1'], 'healthzAddress', { address: '::', port: 1 }],
    [['--healthz-bind-address', '::1'], 'healthzAddress', { address: '::1', port: 10_256 }],
    [['--metrics-bind-address', '0.0.0.0:0'], 'metricsAddress', { address: '0.0.0.0', port: 0 }],
    [
      ['--metrics-bind-address', '0.0.0.0:0', '--healthz-bind-address=0.0.0.0:0'],
      'metricsAddress',
      { address: '0.0.0.0', port: 0 },
    ],
    [['--metrics-bind-address', '::'], 'metricsAddress', { address: '::', port: 10_249 }],
    [
      ['--metrics-bind-address', '[::1]:10256', '--healthz-bind-address=127.0.0.1'],
      'healthzAddress',
      { address: '127.0.0.1', port: 10_256 },
    ],
    [['--hostname-override', ' Node-1.Example '], 'hostnameOverride', 'node-1.example'],
    [['--hostname-override='], 'hostnameOverride', undefined],
    [['--logging-format', 'json'], 'log', { verbosity: 0, format: 'json' }],
    [['--logging-format', 'text'], 'log', { verbosity: 0, format: 'auto' }],
    [['--logging-format', 'json', '--log-format=text'], 'log', { verbosity: 0, format: 'text' }],
    [['-v', '4'], 'log', { verbosity: 4, format: 'auto' }],
    [['-v4'], 'log', { verbosity: 4, format: 'auto' }],
    [['-v=10', '--log-format', 'json'], 'log', { verbosity: 10, format: 'json' }],
    [['--v', '2', '-v', '3'], 'log', { verbosity: 3, format: 'auto' }],
    [['--cleanup=false'], 'source', filesAt(['/etc/services'])],
  ];
  for (const [argv, key, expected] of cases) {
    test(argv.join(' '), () => assert.deepEqual(configOf(...argv)[key], expected));
  }

  test('of everything that is asked of the machine', () => {
    const { host } = configOf(
      ...['--oom-score-adj', '-5', '--tcp-tw-reuse=false', '--conntrack-max-per-core', '1', '--conntrack-min', '2'],
      ...['--conntrack-tcp-timeout-established', '3s', '--conntrack-tcp-timeout-close-wait', '4s'],
      ...['--conntrack-tcp-be-liberal', '--conntrack-udp-timeout', '5s', '--conntrack-udp-timeout-stream', '6s'],
    );
    assert.deepEqual(host, {
      oomScoreAdj: -5,
      tcpTwReuse: false,
      conntrack: {
        maxPerCore: 1,
        min: 2,
        tcpEstablishedTimeoutMs: 3_000,
        tcpCloseWaitTimeoutMs: 4_000,
        tcpBeLiberal: true,
        udpTimeoutMs: 5_000,
        udpStreamTimeoutMs: 6_000,
      },
    });
  });

  test('of every bound on connections and flows', () => {
    const { dataPlane } = configOf(
      ...['--endpoint-drain-timeout', '5s'],
      ...[
        '--tcp-half-open-timeout',
        '1m',
        '--tcp-user-timeout',
        '0',
        '--udp-timeout',
        '10s',
        '--udp-first-reply-timeout',
        '1s',
      ],
      ...['--udp-max-flows-per-service', '10', '--udp-max-flows', '20', '--affinity-max-clients', '30'],
      ...['--eject-after', '0', '--eject-time', '1m', '--dial-hedge', '50ms', '--connection-mark-bit', '0'],
      ...['--tcp-congestion-control', 'cubic'],
    );
    assert.deepEqual(dataPlane, {
      endpointDrainTimeoutMs: 5_000,
      tcpHalfOpenTimeoutMs: 60_000,
      tcpUserTimeoutMs: 0,
      udpIdleTimeoutMs: 10_000,
      // Never below the idle timeout.
      udpFirstReplyTimeoutMs: 10_000,
      udpMaxFlowsPerService: 10,
      udpMaxFlows: 20,
      affinityMaxClients: 30,
      ejectAfter: 0,
      ejectTimeMs: 60_000,
      dialHedgeMs: 50,
      connectionMark: 1,
      congestionControl: 'cubic',
    });
  });
});

describe('a wrong value is refused in one line that names flag, value and cure', () => {
  const cases: readonly (readonly [argv: string[], says: RegExp])[] = [
    [
      ['--tcp-congestion-control', 'New Reno'],
      /^--tcp-congestion-control "New Reno": not a name of .*, such as cubic or bbr/,
    ],
    [['--bind-address', '127.0.0.1'], /^--bind-address "127\.0\.0\.1": .*loopback.*use 0\.0\.0\.0/],
    [['--bind-address', '127.8.8.8'], /loopback/],
    [['--eject-after', '-1'], /^--eject-after "-1": must be a whole number from 0 to 1000/],
    [['--dial-hedge', '250ms'], /^--dial-hedge "250ms": must be from 0s to 249ms/],
    [['--eject-time', '99ms'], /^--eject-time "99ms": must be from 100ms to 1m0s/],
    [['--eject-time', '61s'], /must be from 100ms to 1m0s/],
    [['--wait-for-endpoints', '99ms'], /^--wait-for-endpoints "99ms": must be from 100ms to 10m0s/],
    [['--wait-for-endpoints', '11m'], /must be from 100ms to 10m0s/],
    [['--bind-address', '::1'], /loopback/],
    [['--bind-address', 'fe80::1'], /link-local address cannot be listened on/],
    [['--bind-address', '::ffff:192.0.2.1'], /IPv4-mapped/],
    [['--bind-address', '224.0.0.1'], /multicast/],
    [['--bind-address', '255.255.255.255'], /broadcast/],
    [['--bind-address', '0.0.0.1'], /unspecified/],
    [['--bind-address', 'eth0'], /not an IP address/],
    [['--bind-address', '10.0.0.1:80'], /not an IP address/],
    [['--bind-address', '010.0.0.1'], /not an IP address/],
    [['--bind-address', 'fe80::1%eth0'], /not an IP address/],
    [['--bind-address', ''], /not an IP address/],
    [['--bind-address'], /value is missing after --bind-address/],
    [['--bind-address', '--cleanup'], /^--bind-address "--cleanup": not an IP address/],
    [['--proxy-port-range', 'x'], /not a port range/],
    [['--proxy-port-range', '1-2-3'], /not a port range/],
    [['--proxy-port-range', '1-+2'], /not a port range/],
    [['--proxy-port-range', '-5'], /not a port range/],
    [['--proxy-port-range', '1 - 5'], /not a port range/],
    [['--proxy-port-range', '5-'], /not a port range/],
    [['--proxy-port-range', '5-1'], /below the first/],
    [['--proxy-port-range', '65535+1'], /end at 65535/],
    [['--proxy-port-range', '65536'], /end at 65535/],
    [['--proxy-port-range', '1-99999999999999999999'], /end at 65535/],
    [['--proxy-port-range', '0-100'], /port 1 or above/],
    [['--udp-timeout', '250'], /^--udp-timeout "250": not a duration/],
    [['--udp-timeout', '-5s'], /negative/],
    [['--udp-timeout', '0'], /above zero/],
    [['--udp-timeout', '597h'], /at most 596h31m23\.647s/],
    [['--udp-first-reply-timeout', '0s'], /above zero/],
    [['--tcp-half-open-timeout', '0s'], /above zero/],
    [['--iptables-sync-period', '0s'], /above zero/],
    [['--iptables-min-sync-period', '-1s'], /negative/],
    [['--iptables-min-sync-period', '31s'], /31s: must not exceed --iptables-sync-period 30s/],
    [['--udp-max-flows-per-service', '0'], /whole number from 1/],
    [['--udp-max-flows', '1.5'], /whole number/],
    [['--udp-max-flows', '1e3'], /whole number/],
    [['--udp-max-flows', '1048577'], /whole number from 1 to 1048576/],
    [['--affinity-max-clients', '-1'], /whole number/],
    [['--affinity-max-clients', ''], /whole number/],
    [['--capture', 'nftables'], /one of "auto", "iptables", "nft"/],
    [['--iptables-mode', 'iptables'], /one of "auto", "nft", "legacy"/],
    [['--iptables-mode', 'toString'], /one of "auto", "nft", "legacy"/],
    [['--log-format', 'xml'], /one of "auto", "text", "json"/],
    [['--nodeport-addresses', '10.0.0.1'], /not a CIDR/],
    [['--nodeport-addresses', '10.0.0.0/33'], /not a CIDR/],
    [['--nodeport-addresses', '::/129'], /not a CIDR/],
    [['--nodeport-addresses', '10.0.0.0/8,'], /not a CIDR/],
    [['--nodeport-addresses', '10.0.0/8'], /not a CIDR/],
    [['--nodeport-addresses', 'Primary'], /not a CIDR/],
    [['--external-ip-allow-list', '10.0.0.1'], /^--external-ip-allow-list "10\.0\.0\.1": not a CIDR/],
    [['--node-endpoint-ports', '0'], /^--node-endpoint-ports "0": not a port/],
    [['--node-endpoint-ports', 'kubelet'], /^--node-endpoint-ports "kubelet": not a port range/],
    [['--endpoint-drain-timeout', '-1s'], /negative/],
    [['--client-address', 'both'], /one of "preserve", "node"/],
    [
      ['--detect-local-mode', 'Guess'],
      /one of "", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"/,
    ],
    [['--detect-local-mode', 'BridgeInterface'], /^--detect-local-mode BridgeInterface: needs --pod-bridge-interface$/],
    [['--detect-local-mode', 'InterfaceNamePrefix'], /needs --pod-interface-name-prefix$/],
    ...['a b', 'a/b', 'veth+', '-i', '!x', 'a"b', 'sixteen-letters-', 'é'].map((name): [string[], RegExp] => [
      ['--pod-bridge-interface', name],
      /not a name of a network interface: at most 15/,
    ]),
    [['--pod-interface-name-prefix', 'fifteen-letters'], /at most 14 letters/],
    [['--proxy-mode', 'ipvs'], /^--proxy-mode "ipvs": .*has no other; .*run kube-proxy instead/],
    [['--proxy-mode', 'iptables'], /run kube-proxy instead/],
    [['--proxy-mode', 'Userspace'], /run kube-proxy instead/],
    [['--oom-score-adj', '-1001'], /from -1000 to 1000/],
    [['--oom-score-adj', '+1'], /from -1000 to 1000/],
    [['--conntrack-max-per-core', '-1'], /from 0 to 2147483647/],
    [['--conntrack-max-per-core', '2147483648'], /from 0 to 2147483647/],
    [['--conntrack-tcp-timeout-established', '999ms'], /at least 1s, or 0/],
    [['--conntrack-tcp-timeout-close-wait', '-1s'], /negative/],
    [['--healthz-port', '65536'], /^--healthz-port "65536": must be a whole number/],
    [['--healthz-port', 'x', '--healthz-bind-address', '127.0.0.1'], /^--healthz-port "x": must be a whole number/],
    [['--logging-format', 'auto'], /one of "text", "json"/],
    [['--config', '/nowhere/config.conf'], /^--config \/nowhere\/config\.conf: /],
    [['--healthz-bind-address', 'localhost:80'], /not ip or ip:port/],
    [['--healthz-bind-address', ':10256'], /not ip or ip:port/],
    [['--healthz-bind-address', '10.0.0.1:'], /not ip or ip:port/],
    [['--metrics-bind-address', '[::1]:10256'], /taken by --healthz-bind-address 0\.0\.0\.0:10256/],
    [['--healthz-bind-address', '10.0.0.1:65536'], /not ip or ip:port/],
    [['--healthz-bind-address', '[10.0.0.1]:1'], /not ip or ip:port/],
    [['--healthz-bind-address', '[::1]'], /not ip or ip:port/],
    [['--metrics-bind-address', '127.0.0.1:10256'], /taken by --healthz-bind-address 0\.0\.0\.0:10256/],
    [['--metrics-bind-address', '[::]:10256'], /taken by --healthz-bind-address/],
    [['--hostname-override', 'node_1'], /not a node name/],
    [['--hostname-override', '-node'], /not a node name/],
    [['--hostname-override', 'a..b'], /not a node name/],
    [['--hostname-override', 'a'.repeat(254)], /not a node name/],
    [['-v', 'abc'], /^--v "abc": must be a whole number from 0 to 10/],
    [['-v', '11'], /from 0 to 10/],
    [['-v', '-1'], /from 0 to 10/],
    [['-v'], /value is missing/],
    [['--cleanup=maybe'], /true or false/],
    [['--manifests', 'a,,b'], /names no file/],
  ];
  for (const [argv, says] of cases) {
    test(argv.join(' '), () => {
      const text = refusalOf('--manifests', 'x', ...argv);
      assert.match(text, says);
      assert.doesNotMatch(text, /\n/);
    });
  }

  test('and a value with control characters is shown encoded', () => {
    const text = refusalOf('--bind-address', 'x\n\u001b[2J');
    assert.match(text, /"x\\n\\u001b\[2J"/);
    assert.doesNotMatch(text, /\p{Cc}/u);
    assert.match(refusalOf('--bind-address', 'x\u009b2J'), /"x\\u009b2J"/);
  });

  test('with --cleanup too', () => assert.match(refusalOf('--cleanup', '-v', 'x'), /whole number/));
});

describe('an API server', () => {
  const configWith = (...argv: string[]) => {
    const line = parseCommandLine(argv);
    assert.ok(line.kind === 'run', JSON.stringify(line));
    return line.config;
  };
  const sourceOf = (...argv: string[]) => configWith(...argv).source;
  const defaults = {
    kind: 'kubernetes',
    kubeconfig: undefined,
    master: undefined,
    apiServers: [],
    apiServersFromCluster: false,
    qps: 5,
    burst: 10,
    contentType: 'application/vnd.kubernetes.protobuf',
  };

  test('is the source without manifests, with kube-proxy’s defaults', () => {
    for (const argv of [[], ['--manifests='], ['--kubeconfig=', '--master=']]) {
      assert.deepEqual(sourceOf(...argv), defaults);
    }
  });

  test('is reached as the flags say', () => {
    assert.deepEqual(
      sourceOf(
        ...['--kubeconfig', '/etc/kubeconfig', '--master', 'https://192.0.2.1:6443', '--kube-api-qps', '0.5'],
        ...['--kube-api-burst', '3', '--kube-api-content-type', 'application/json', '--config-sync-period', '1h'],
      ),
      {
        ...defaults,
        kubeconfig: '/etc/kubeconfig',
        master: 'https://192.0.2.1:6443',
        qps: 0.5,
        burst: 3,
        contentType: 'application/json',
      },
    );
  });

  test('opens no port of the node to endpoints', () => {
    assert.deepEqual(configWith().nodeEndpointPorts, []);
  });

  test('may be several, each named by its URL', () => {
    const urls = ['https://192.0.2.1:6443', 'https://[2001:db8::1]/k8s/'];
    assert.deepEqual(configWith('--api-servers', urls.join()).source, {
      ...defaults,
      apiServers: urls.map((url) => new URL(url)),
    });
    // Without a scheme, --master would take it for plain HTTP.
    for (const text of ['192.0.2.1:6443', 'https://user@192.0.2.1', 'ftp://192.0.2.1', 'https://192.0.2.1?x']) {
      assert.match(refusalOf('--api-servers', text), /not the URL of an API server; write one like https:/);
    }
  });

  test('and manifests exclude each other', () => {
    for (const [flag, value] of [
      ['--api-servers', 'https://y'],
      ['--api-servers-from-cluster', 'true'],
    ] as const) {
      assert.match(
        refusalOf('--manifests', 'x', `${flag}=${value}`),
        new RegExp(`--manifests and ${flag} exclude each`),
      );
    }
    assert.match(
      refusalOf('--manifests', 'x', '--kubeconfig', 'y'),
      /^--manifests and --kubeconfig exclude each other/,
    );
    assert.match(
      refusalOf('--manifests', 'x', '--master', 'https://y'),
      /^--manifests and --master exclude each other/,
    );
  });

  test('is asked at a rate above zero', () => {
    for (const text of ['0', '-1', 'x', '', '0.0', '1e3'])
      assert.match(refusalOf(`--kube-api-qps=${text}`), /above zero/);
    assert.match(refusalOf('--kube-api-burst=0'), /whole number/);
  });
});

describe('the scheduler', () => {
  const schedulerOf = (...argv: string[]) => configOf(...argv).scheduler;

  test('is any that there is; an empty name is the default, as with kube-proxy', () => {
    for (const name of SCHEDULERS) assert.equal(schedulerOf(`--ipvs-scheduler=${name}`), name);
    assert.equal(schedulerOf('--ipvs-scheduler='), 'rr');
    assert.equal(schedulerOf(), 'rr');
  });

  test('is refused with the reason when there is none of that name', () => {
    assert.match(
      refusalOf('--manifests', 'x', '--ipvs-scheduler=dh'),
      /^--ipvs-scheduler "dh": it chooses by the destination/,
    );
    assert.match(
      refusalOf('--manifests', 'x', '--ipvs-scheduler=RR'),
      /there is no such scheduler; there are rr, random, /,
    );
  });
});

describe('what is no flag of ours is refused', () => {
  const cases: readonly (readonly [argv: string[], says: RegExp])[] = [
    [['--bindaddress', '0.0.0.0'], /^unknown flag "--bindaddress": did you mean --bind-address\?$/],
    [['-bind-address', '0.0.0.0'], /^unknown flag "-bind-address": did you mean --bind-address\?$/],
    [['--udp-max-flow-per-services=3'], /did you mean --udp-max-flows-per-service\?/],
    [['--versoin'], /did you mean --version\?/],
    [['--ipvs-schedular=rr'], /did you mean --ipvs-scheduler\?/],
    [['--no_such'], /^unknown flag "--no_such"/],
    [['--hasOwnProperty', 'x'], /unknown flag/],
    [['--__proto__.v', '9'], /unknown flag/],
    [['--_', 'x'], /unknown flag "--_"/],
    [['--bind-address.x', '1'], /unknown flag/],
    [['--cri-endpoint', 'tcp://localhost:1'], /not the address of a Unix socket, such as unix:/],
    [['--state-dir', 'state'], /^--state-dir "state": not the absolute path of a directory/],
    [['--control-socket', 'control.sock'], /^--control-socket "control\.sock": not the absolute path of a file/],
    [['--control-socket', '/run/'], /not the absolute path of a file/],
    [['--control-socket', `/${'ä'.repeat(50)}`], /must be at most 99 bytes long/],
    [['a.yaml'], /^unexpected argument "a\.yaml": /],
    [['--manifests', 'a.yaml', 'b.yaml'], /^unexpected argument "b\.yaml": .*separated by commas/],
    [['0x10'], /^unexpected argument "0x10"/],
    [['--', '--cleanup'], /unknown flag "--cleanup"/],
    [['--a\nb'], /unknown flag "--a\\nb"/],
  ];
  for (const [argv, says] of cases) {
    test(JSON.stringify(argv), () => assert.match(refusalOf('--manifests', 'x', ...argv), says));
  }
});

test('no mixture of odd arguments gets through, throws or is answered with more than one line', () => {
  const odd = [
    ...['--', '-', '---', '--=', '-=', '', ' ', '--v', '-v', '-vv', '-4', '--help=x', '--version=', '--cleanup'],
    ...['--bind-address', '--__proto__', '-h=', '\n', '\u0000', '--manifests', '--no-help', '--$0', '-_', '--x.y.z'],
  ];
  for (const first of odd) {
    for (const second of odd) {
      const line = parseCommandLine([first, second]);
      if (line.kind === 'error') assert.doesNotMatch(line.text, /\p{Cc}/u, JSON.stringify([first, second]));
    }
  }
});

describe('--init-only', () => {
  test('asks for nothing but what is set on the machine', () => {
    const line = parseCommandLine(['--init-only', '--conntrack-min=5', '-v', '1']);
    assert.ok(line.kind === 'init', JSON.stringify(line));
    assert.equal(line.machine.conntrack.min, 5);
    assert.deepEqual(line.log, { verbosity: 1, format: 'auto' });
  });
});

describe('--cleanup', () => {
  test('needs no manifests and knows which iptables and how to log', () => {
    assert.deepEqual(parseCommandLine(['--cleanup', '--iptables-mode', 'nft', '-v', '2']), {
      kind: 'cleanup',
      iptablesMode: 'nft',
      connectionMark: 0x2000,
      log: { verbosity: 2, format: 'auto' },
    });
  });

  test('takes Go’s spellings of a truth value, the last one counting', () => {
    for (const spelling of ['--cleanup', '--cleanup=true', '--cleanup=T', '--cleanup=1']) {
      assert.equal(parseCommandLine(['--cleanup=false', spelling]).kind, 'cleanup', spelling);
    }
  });
});

test('the environment is not read', () => {
  process.env['KUBE_USERSPACE_PROXY_SERVICE_HOST'] = '10.0.0.1';
  process.env['KUBE_USERSPACE_PROXY_BIND_ADDRESS'] = '10.0.0.1';
  assert.equal(configOf().bindAddress, '0.0.0.0');
});

test('the commands load neither winston nor prom-client', () => {
  const script = `
    import { registerHooks } from 'node:module';
    registerHooks({ load(url, context, next) { process.stdout.write(url + '\\n'); return next(url, context); } });
    await import(${JSON.stringify(new URL('../../src/app/subcommands.ts', import.meta.url).href)});`;
  const loaded = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' });
  assert.match(loaded, /cli\/client\.ts/);
  assert.doesNotMatch(loaded, /node_modules\/(winston|prom-client|yaml)\//);
});

test('ranges of cluster IPs are one for each family, and for files alone', () => {
  assert.match(
    refusalOf('--manifests', '/x', '--service-cluster-ip-range', '10.96.0.0/16,10.97.0.0/16'),
    /--service-cluster-ip-range 10\.96\.0\.0\/16,10\.97\.0\.0\/16: give one CIDR of each address family/,
  );
  for (const [range, overlaps] of [
    ['127.0.0.0/16', '127.0.0.0/8 (loopback)'],
    ['0.0.0.0/0', '0.0.0.0/8 (unspecified)'],
    ['169.254.1.0/24', '169.254.0.0/16 (link-local)'],
    ['192.0.0.0/2', '224.0.0.0/4 (multicast)'],
    ['fe80::/64', 'fe80::/10 (link-local)'],
    ['::/0', '::/128 (unspecified)'],
    ['ff02::/16', 'ff00::/8 (multicast)'],
  ]) {
    assert.equal(
      refusalOf('--manifests', '/x', '--service-cluster-ip-range', `${range}`),
      `--service-cluster-ip-range ${range} overlaps ${overlaps}: give a range that nothing else on the network uses`,
    );
  }
  const line = parseCommandLine([
    '--kubeconfig=/x',
    '--service-cluster-ip-range=10.96.0.0/16',
    '--allow-loopback-endpoints',
  ]);
  const warnings = line.kind === 'run' ? line.warnings : [];
  for (const name of ['service-cluster-ip-range', 'allow-loopback-endpoints']) {
    assert.ok(warnings.includes(`--${name} has no effect without --manifests`), name);
  }
});

test('the container runtime is asked only beside a state of an API server', () => {
  const warningsOf = (...args: readonly string[]) => {
    const line = parseCommandLine(['--cri-endpoint=/run/cri.sock', ...args]);
    return line.kind === 'run' ? line.warnings.filter((each) => each.includes('cri-endpoint')) : [];
  };
  assert.deepEqual(warningsOf('--kubeconfig=/x'), ['--cri-endpoint has no effect without --state-dir']);
  assert.deepEqual(warningsOf('--manifests=/x', '--state-dir=/y'), ['--cri-endpoint has no effect beside --manifests']);
  assert.deepEqual(warningsOf('--kubeconfig=/x', '--state-dir=/y'), []);
});
