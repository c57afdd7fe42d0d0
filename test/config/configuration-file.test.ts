import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { effectiveConfiguration } from '../../src/config/configuration-file.ts';
import { SETTINGS } from '../../src/config/flags.ts';
import { parseDocuments } from '../../src/util/yaml.ts';
import { parseCommandLine } from '../support/command-line.ts';

const HEAD = 'apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n';

function lineOf(text: string, ...argv: string[]) {
  return parseCommandLine(['--config', '/etc/kp', ...argv], (path) => {
    assert.equal(path, '/etc/kp');
    return text;
  });
}

function runOf(text: string, ...argv: string[]) {
  const line = lineOf(text, ...argv);
  assert.ok(line.kind === 'run', JSON.stringify(line));
  return line;
}

function refusalOf(text: string): string {
  const line = lineOf(text);
  assert.ok(line.kind === 'error', JSON.stringify(line));
  assert.doesNotMatch(line.text, /\p{Cc}/u);
  assert.ok(line.text.length < 1_000, line.text);
  return line.text;
}

function writtenBy(argv: readonly string[], text = HEAD): string {
  const line = lineOf(text, ...argv, '--write-config-to', 'out');
  assert.ok(line.kind === 'write-config', JSON.stringify(line));
  assert.equal(line.path, 'out');
  return line.text;
}

/** As kubeadm writes it: a field for everything, most of them empty. */
const KUBEADM = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: ""
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: ""
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
`;

test('what kubeadm writes means the defaults, without a warning', () => {
  const { config, warnings } = runOf(KUBEADM);
  const defaults = parseCommandLine(['--kubeconfig', '/var/lib/kube-proxy/kubeconfig.conf']);
  assert.ok(defaults.kind === 'run');
  assert.deepEqual({ ...config, configFile: undefined }, defaults.config);
  assert.deepEqual(warnings, []);
});

test('an empty configuration means the defaults, too, and so do null and JSON', () => {
  const expected = runOf(HEAD).config;
  assert.deepEqual(runOf(`${HEAD}ipvs:\nlogging: null\nmode: null\n`).config, expected);
  assert.deepEqual(
    runOf('{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}').config,
    expected,
  );
});

describe('the file and the flags', () => {
  test('what has a field is decided by the file, even for fields that it omits, and one warning names those flags', () => {
    const { config, warnings } = runOf(
      `${HEAD}iptables: {syncPeriod: 7s}`,
      ...['--iptables-sync-period=9s', '--udp-timeout=9s', '--kubeconfig=k', '--healthz-port=0', '--workers=3'],
    );
    assert.equal(config.iptablesSyncPeriodMs, 7_000);
    assert.equal(config.dataPlane.udpIdleTimeoutMs, 250);
    assert.ok(config.source.kind === 'kubernetes' && config.source.kubeconfig === undefined);
    assert.equal(config.healthzAddress?.port, 10_256);
    assert.equal(config.workers, 3);
    assert.deepEqual(warnings, [
      'Flags that do not count because --config decides what they say: ' +
        '--iptables-sync-period, --udp-timeout, --kubeconfig, --healthz-port',
    ]);
  });

  test('flags decide the name of the node and the log, and the file where they say nothing', () => {
    const file = `${HEAD}hostnameOverride: from-file\nlogging: {verbosity: 3, format: json}\n`;
    const fromFile = runOf(file).config;
    assert.equal(fromFile.hostnameOverride, 'from-file');
    assert.deepEqual(fromFile.log, { verbosity: 3, format: 'json' });
    const { config, warnings } = runOf(file, '--hostname-override=Flag', '-v', '1', '--logging-format=text');
    assert.equal(config.hostnameOverride, 'flag');
    assert.deepEqual(config.log, { verbosity: 1, format: 'auto' });
    assert.deepEqual(warnings, []);
  });

  test('a field without effect that is not at its default is named in a warning with its path', () => {
    const { warnings } = runOf(`${HEAD}ipvs: {strictARP: true, syncPeriod: 30s}\nwinkernel: {enableDSR: true}\n`);
    assert.deepEqual(warnings, [
      'Accepted, but without effect in this proxy: --config /etc/kp:3: ipvs.strictARP (ipvs mode), ' +
        '--config /etc/kp:4: winkernel.enableDSR (Windows)',
    ]);
  });
});

describe('where upstream’s type is a pointer, zero is a value; elsewhere it is the default', () => {
  const { config } = runOf(
    `${HEAD}oomScoreAdj: 0\nconntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}\n` +
      'iptables: {syncPeriod: 0s, minSyncPeriod: 0s}\nudpIdleTimeout: 0s\nclientConnection: {qps: 0, burst: 0}\n',
  );
  test('values', () => {
    assert.equal(config.host.oomScoreAdj, 0);
    const { maxPerCore, min, tcpEstablishedTimeoutMs, tcpCloseWaitTimeoutMs } = config.host.conntrack;
    assert.deepEqual([maxPerCore, min, tcpEstablishedTimeoutMs, tcpCloseWaitTimeoutMs], [0, 0, 0, 0]);
  });
  test('defaults', () => {
    assert.deepEqual([config.iptablesSyncPeriodMs, config.iptablesMinSyncPeriodMs], [30_000, 100]);
    assert.equal(config.dataPlane.udpIdleTimeoutMs, 250);
    assert.ok(config.source.kind === 'kubernetes');
    assert.deepEqual([config.source.qps, config.source.burst], [5, 10]);
  });
});

describe('a wrong file is refused in one line that names it and the field', () => {
  const cases: readonly (readonly [text: string, says: RegExp])[] = [
    ['', /^--config \/etc\/kp: is empty/],
    ['# nothing\n', /is empty/],
    ['null', /^--config \/etc\/kp:1: is no object/],
    ['[]', /is no object/],
    ['# a\n\ntext', /^--config \/etc\/kp:3: is no object/],
    [`${HEAD}---\n${HEAD}`, /^--config \/etc\/kp:4: has 2 documents/],
    [
      'kind: KubeProxyConfiguration',
      /apiVersion "" and kind "KubeProxyConfiguration"; it must be of kubeproxy\.config/,
    ],
    [HEAD.replace('v1alpha1', 'v1alpha2'), /kp:1: is of apiVersion "kubeproxy\.config\.k8s\.io\/v1alpha2"/],
    [HEAD.replace('KubeProxy', 'Kubelet'), /kp:2: .*kind "KubeletConfiguration"/],
    ['apiVersion: [1]\nkind: {a: 1}\n', /apiVersion a list and kind an object/],
    [`${HEAD}bindAddres: 1.2.3.4\n`, /^--config \/etc\/kp:3: unknown field "bindAddres": did you mean bindAddress\?/],
    [
      `${HEAD}iptables:\n  syncPeriods: 1s\n\n  x: 1\n`,
      /kp:4: unknown fields "iptables\.syncPeriods", "iptables\.x" \(line 6\): did you mean iptables\.syncPeriod\?/,
    ],
    [`${HEAD}BindAddress: 1.2.3.4\n`, /unknown field "BindAddress"/],
    // C1 controls: a terminal takes U+009B for the beginning of an escape sequence.
    [`${HEAD}"x\\x9b2J\\x85": 1\n`, /unknown field "x\\u009b2J\\u0085"/],
    [`${HEAD}bindAddress: "1\\x9b2J\\u202e"\n`, /"1\\u009b2J\\u202e"/],
    [`${HEAD}kind\u009b: x\n`, /kp:3: the stream contains non-printable characters$/],
    [`${HEAD}mode: ''\n"iptables.syncPeriod": 1s\n`, /kp:4: unknown field "\\"iptables\.syncPeriod\\""/],
    [`${HEAD}iptables: {"": 1}\n`, /unknown field "iptables\."/],
    [`${HEAD}__proto__: {mode: ipvs}\n`, /unknown field "__proto__"/],
    [`${HEAD}constructor: 1\ntoString: 2\n`, /kp:3: unknown fields "constructor", "toString" \(line 4\)/],
    [
      `${HEAD}${Array.from({ length: 300 }, (_, i) => `f${i}${'x'.repeat(200)}: 1\n`).join('')}`,
      /kp:3: .* and 295 more/,
    ],
    [`${HEAD}metadata: {name: x}\n`, /unknown field "metadata"/],
    [`${HEAD}mode: ipvs\n`, /^--config \/etc\/kp:3: mode "ipvs": .*run kube-proxy instead/],
    [`${HEAD}mode: 5\n`, /mode must be a string/],
    [`${HEAD}bindAddress: {}\n`, /bindAddress must be a string/],
    [`${HEAD}bindAddress: 127.0.0.1\n`, /bindAddress "127\.0\.0\.1": .*loopback/],
    [`${HEAD}iptables: 5\n`, /iptables must be an object/],
    [`${HEAD}iptables: []\n`, /iptables must be an object/],
    [`${HEAD}logging:\n  options: x\n`, /kp:4: logging\.options must be an object/],
    [`${HEAD}iptables: {syncPeriod: 30}\n`, /iptables\.syncPeriod must be a string with a unit, such as "30s"/],
    [`${HEAD}conntrack: {tcpEstablishedTimeout: 30}\n`, /tcpEstablishedTimeout must be a string with a unit/],
    [`${HEAD}iptables:\n\n  syncPeriod:\n    soon\n`, /kp:5: iptables\.syncPeriod "soon": not a duration/],
    [`${HEAD}oomScoreAdj: "5"\n`, /oomScoreAdj must be a number/],
    [`${HEAD}oomScoreAdj: 1001\n`, /oomScoreAdj "1001": must be a whole number from -1000/],
    [`${HEAD}oomScoreAdj: .nan\n`, /oomScoreAdj "NaN": must be a whole number/],
    [`${HEAD}conntrack: {\n  min: 1.5}\n`, /kp:4: conntrack\.min "1\.5": must be a whole number/],
    [`${HEAD}enableProfiling: "true"\n`, /enableProfiling must be true or false/],
    [`${HEAD}nodePortAddresses: 10.0.0.0/8\n`, /nodePortAddresses must be a list/],
    [`${HEAD}nodePortAddresses: ["10.0.0.0/8,11.0.0.0/8"]\n`, /nodePortAddresses must have one value per item/],
    [`${HEAD}nodePortAddresses: [1]\n`, /nodePortAddresses must be a string/],
    [`${HEAD}featureGates: {A: 1}\n`, /featureGates "A" must be true or false/],
    [`${HEAD}featureGates: [A]\n`, /featureGates must be an object/],
    [
      `${HEAD}logging: {vmodule: [{filePattern: a, verbosity: 1, z: 1}]}\n`,
      /logging\.vmodule has an unknown field "z"/,
    ],
    [`${HEAD}serviceProxyName: mine\n`, /serviceProxyName "mine": only Services without the label/],
    [`${HEAD}mode: userspace\nmode: userspace\n`, /^--config \/etc\/kp:4: a key is there twice/],
    ['{"apiVersion": "a",\n "apiVersion": "b"}', /kp:2: a key is there twice/],
    [
      `{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1",\n "kind": "KubeProxyConfiguration",\n\n "mode": 5}`,
      /kp:4: mode must be a string/,
    ],
    [`${HEAD}a: *b\n`, /kp:3: unidentified alias "b"$/],
    [bomb(), /aliases stand for more than 100000 values/],
    [`${HEAD}a: ${'['.repeat(100_000)}`, /nested too deeply/],
    [
      `${HEAD}iptables:\n  syncPeriod: 5s\n  minSyncPeriod: 10s\n`,
      /^--config \/etc\/kp:5: iptables\.minSyncPeriod 10s: must not exceed iptables\.syncPeriod 5s$/,
    ],
    [
      `${HEAD}iptables:\n  syncPeriod: 50ms\n`,
      /^--config \/etc\/kp:4: iptables\.minSyncPeriod 100ms: must not exceed iptables\.syncPeriod 50ms$/,
    ],
    [
      `${HEAD}healthzBindAddress: 0.0.0.0:1\nmetricsBindAddress: 0.0.0.0:1\n`,
      /^--config \/etc\/kp:4: metricsBindAddress 0\.0\.0\.0:1: taken by healthzBindAddress 0\.0\.0\.0:1;/,
    ],
  ];
  for (const [text, says] of cases) {
    test(JSON.stringify(text.slice(HEAD.length - 10, HEAD.length + 80)), () => assert.match(refusalOf(text), says));
  }

  test('one that excludes a flag says where', () => {
    const line = lineOf(`${HEAD}clientConnection:\n  kubeconfig: /k\n`, '--manifests', 'm');
    assert.match(
      line.kind === 'error' ? line.text : '',
      /^--config \/etc\/kp:4: --manifests and clientConnection\.kubeconfig exclude each other: /,
    );
  });

  test('a name of a file cannot break the line', () => {
    const line = parseCommandLine(['--config', 'a\nb'], () => 'x');
    assert.match(line.kind === 'error' ? line.text : '', /^--config a\\u000ab:1: is no object/);
  });

  test('one that cannot be read, too', () => {
    const line = parseCommandLine(['--config', 'x'], () => {
      throw new Error('cannot be read (ENOENT)');
    });
    assert.deepEqual(line, { kind: 'error', text: '--config x: cannot be read (ENOENT)' });
  });
});

function bomb(): string {
  const lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]'];
  for (let i = 1; i < 10; i++)
    lines.push(
      `a${i}: &a${i} [${Array(10)
        .fill(`*a${i - 1}`)
        .join(', ')}]`,
    );
  return `${HEAD}${lines.join('\n')}\n`;
}

/** A value other than the default for every setting with a field that can be read back. */
const OTHER: Readonly<Record<string, string>> = {
  kubeconfig: '/k',
  'hostname-override': 'node-7',
  'kube-api-qps': '0.5',
  'kube-api-burst': '3',
  'bind-address': '192.0.2.7',
  'proxy-port-range': '30000-30100',
  'nodeport-addresses': 'primary,10.0.0.0/8,fd00::/8',
  'udp-timeout': '1.5s',
  'iptables-sync-period': '1h15m30.918s',
  'iptables-min-sync-period': '70ms',
  'healthz-bind-address': '[::1]:1',
  'metrics-bind-address': '192.0.2.7:2',
  'bind-address-hard-fail': 'true',
  profiling: 'true',
  v: '4',
  'logging-format': 'json',
  'oom-score-adj': '-5',
  'conntrack-max-per-core': '0',
  'conntrack-min': '0',
  'conntrack-tcp-timeout-established': '0s',
  'conntrack-tcp-timeout-close-wait': '9s',
  'conntrack-tcp-be-liberal': 'true',
  'conntrack-udp-timeout': '8s',
  'conntrack-udp-timeout-stream': '7s',
  'kube-api-content-type': 'application/json',
  'config-sync-period': '1m',
  'feature-gates': 'A=true,B=false',
  'show-hidden-metrics-for-version': '1.19',
  'cluster-cidr': '10.244.0.0/16,fd00::/48',
  'detect-local-mode': 'NodeCIDR',
  'pod-bridge-interface': 'br0',
  'pod-interface-name-prefix': 'veth',
  'masquerade-all': 'true',
  'iptables-masquerade-bit': '0',
  'iptables-localhost-nodeports': 'false',
  'ipvs-scheduler': 'lc',
  'ipvs-exclude-cidrs': '10.0.0.0/8',
  'ipvs-strict-arp': 'true',
  'ipvs-sync-period': '31s',
  'ipvs-min-sync-period': '1s',
  'ipvs-tcp-timeout': '1s',
  'ipvs-tcpfin-timeout': '2s',
  'ipvs-udp-timeout': '3s',
  'log-flush-frequency': '1s',
  'log-text-split-stream': 'true',
  'log-text-info-buffer-size': '4Ki',
  'log-json-split-stream': 'true',
  'log-json-info-buffer-size': '5Ki',
};

describe('--write-config-to', () => {
  const argv = Object.entries(OTHER).map(([name, value]) => `--${name}=${value}`);
  const written = parseCommandLine([...argv, '--write-config-to', 'out']);
  assert.ok(written.kind === 'write-config', JSON.stringify(written));

  test('has a value other than the default for each setting with a field and an effect', () => {
    const fields = Object.keys(SETTINGS).filter((name) => SETTINGS[name]?.field !== undefined && name !== 'proxy-mode');
    const flags = fields.filter(
      (name) => !name.includes('.') && name !== 'vmodule' && !/^(windows|service)/.test(name),
    );
    assert.deepEqual(
      flags.filter((name) => !(name in OTHER)),
      [],
    );
  });

  test('what is written is read back as it was', () => {
    const before = parseCommandLine(argv);
    assert.ok(before.kind === 'run');
    const { config } = runOf(written.text);
    assert.deepEqual({ ...config, configFile: undefined }, before.config);
  });

  test('writes the file that it has read again', () => {
    assert.equal(writtenBy([], written.text), written.text);
  });

  test('the defaults, in upstream’s form', () => {
    const document = parseDocuments(writtenBy([]))[0]?.value as Record<string, Record<string, unknown>>;
    assert.deepEqual(Object.keys(document), Object.keys(document).sort());
    assert.equal(document['mode'], 'userspace');
    assert.equal(document['oomScoreAdj'], -999);
    assert.equal(document['nodePortAddresses'], null);
    assert.deepEqual(Object.keys(document['featureGates'] ?? { none: true }), []);
    assert.equal(document['conntrack']?.['tcpEstablishedTimeout'], '24h0m0s');
    assert.equal(document['healthzBindAddress'], '0.0.0.0:10256');
  });

  test('odd texts stay texts', () => {
    for (const odd of ['yes', 'null', '1', ' ', '#', 'a: b', '"', "'", '\u2028', '-', '!x', '*a']) {
      const text = writtenBy([], `${HEAD}showHiddenMetricsForVersion: ${JSON.stringify(odd)}\n`);
      const document = parseDocuments(text)[0]?.value as Record<string, unknown>;
      assert.equal(document['showHiddenMetricsForVersion'], odd, text);
    }
  });

  test('goes before --cleanup and --init-only, and wrong values are refused', () => {
    assert.equal(lineOf(HEAD, '--write-config-to=x', '--cleanup', '--init-only').kind, 'write-config');
    assert.equal(lineOf(`${HEAD}mode: ipvs\n`, '--write-config-to=x').kind, 'error');
  });
});

test('/configz shows Go’s names in the shape of 1.20, durations as strings', () => {
  const shown = effectiveConfiguration(
    runOf(`${HEAD}featureGates: {someGate: true}\nlogging: {verbosity: 2}\n`).config,
  );
  assert.deepEqual(JSON.parse(JSON.stringify(shown)), {
    FeatureGates: { someGate: true },
    BindAddress: '0.0.0.0',
    HealthzBindAddress: '0.0.0.0:10256',
    MetricsBindAddress: '127.0.0.1:10249',
    BindAddressHardFail: false,
    EnableProfiling: false,
    ClusterCIDR: '',
    HostnameOverride: '',
    ClientConnection: {
      Kubeconfig: '',
      AcceptContentTypes: '',
      ContentType: 'application/vnd.kubernetes.protobuf',
      QPS: 5,
      Burst: 10,
    },
    IPTables: {
      MasqueradeBit: 14,
      MasqueradeAll: false,
      LocalhostNodePorts: true,
      SyncPeriod: '30s',
      MinSyncPeriod: '100ms',
    },
    IPVS: {
      SyncPeriod: '30s',
      MinSyncPeriod: '0s',
      Scheduler: 'rr',
      ExcludeCIDRs: null,
      StrictARP: false,
      TCPTimeout: '0s',
      TCPFinTimeout: '0s',
      UDPTimeout: '0s',
    },
    NFTables: { MasqueradeBit: 14, MasqueradeAll: false, SyncPeriod: '30s', MinSyncPeriod: '1s' },
    Winkernel: {
      NetworkName: '',
      SourceVip: '',
      EnableDSR: false,
      RootHnsEndpointName: '',
      ForwardHealthCheckVip: false,
    },
    Logging: {
      format: 'text',
      flushFrequency: '5s',
      verbosity: 2,
      options: {
        text: { splitStream: false, infoBufferSize: '0' },
        json: { splitStream: false, infoBufferSize: '0' },
      },
    },
    OOMScoreAdj: -999,
    Mode: 'userspace',
    PortRange: '',
    UDPIdleTimeout: '250ms',
    Conntrack: {
      MaxPerCore: 32_768,
      Min: 131_072,
      TCPEstablishedTimeout: '24h0m0s',
      TCPCloseWaitTimeout: '1h0m0s',
      TCPBeLiberal: false,
      UDPTimeout: '0s',
      UDPStreamTimeout: '0s',
    },
    ConfigSyncPeriod: '15m0s',
    NodePortAddresses: null,
    ShowHiddenMetricsForVersion: '',
    DetectLocalMode: '',
    DetectLocal: { BridgeInterface: '', InterfaceNamePrefix: '' },
  });
});
