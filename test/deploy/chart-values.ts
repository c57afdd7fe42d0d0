/** Values of the chart that cannot be right, by their path. */
export const WRONG_VALUES: Readonly<Record<string, readonly unknown[]>> = {
  'image.repository': ['registry.example.com/proxy:1', `registry.example.com/proxy@sha256:${'a'.repeat(64)}`, 'a b'],
  'image.tag': ['v 1', ':1'],
  'image.digest': ['abc', 'a'.repeat(64)],
  'image.pullPolicy': ['always', ''],
  imagePullSecrets: [['registry'], [{ Name: 'registry' }]],
  'apiServer.url': ['192.0.2.1:6443', 'https://', 'tcp://192.0.2.1:6443', 'https://user@192.0.2.1'],
  'kubeProxy.configMap': ['kube_proxy', true],
  'config.mode': ['iptables'],
  'config.bindAddress': ['0.0.0.0:80', 'eth0'],
  'config.portRange': ['30000..32767'],
  'config.nodePortAddresses': [['eth0'], ['192.0.2.1'], 'primary'],
  'config.clusterCIDR': ['10.244.0.0', '10.244.0.0/16;fd00::/48'],
  'config.healthzBindAddress': ['0.0.0.0:0', ':10256', '[::]', '::1:x', 'localhost:10256'],
  'config.metricsBindAddress': ['0.0.0.0:0', '10249', '0.0.0:10249'],
  'config.hostnameOverride': ['node-1'],
  'config.udpIdleTimeout': ['250', '1 s', '-1s', ''],
  'config.iptables.syncPeriod': ['30', 30],
  'config.iptables.masqueradeBit': [32, -1, 1.5],
  'config.ipvs.scheduler': ['dh', 'RR'],
  'config.ipvs.excludeCIDRs': [['192.0.2.1']],
  'config.oomScoreAdj': [-1001, 1001],
  'config.conntrack.min': [-1],
  'config.clientConnection.kubeconfig': ['kubeconfig.conf'],
  'config.clientConnection.qps': [-1],
  'config.detectLocalMode': ['clusterCIDR'],
  'config.detectLocal.bridgeInterface': ['a-name-that-is-too-long', 'a b'],
  'config.logging.format': ['yaml'],
  'config.logging.verbosity': [11],
  'config.logging.vmodule': [['gc=4']],
  'config.featureGates': [{ AllowServiceExternalIPs: 'false' }],
  'config.serviceProxyName': ['mine'],
  extraArgs: [
    [4],
    '--dataplane=node',
    ['--healthz-bind-address=0.0.0.0:20256'],
    ['--healthz-port', '0'],
    ['--hostname-override=node-1'],
    ['--hand-over-socket=/tmp/hand-over.sock'],
  ],
  nodeSelector: [{ 'userspace-proxy': true }],
  tolerations: [['Exists']],
  priorityClassName: ['System Node Critical'],
  'updateStrategy.type': ['Recreate'],
  'updateStrategy.rollingUpdate.maxSurge': ['a tenth', -1],
  podLabels: [{ team: 1 }],
  podAnnotations: [{ team: 1 }],
  'state.hostPath': ['var/lib', './state'],
  'containerRuntime.socket': ['unix:///run/containerd/containerd.sock', '/containerd.sock', '/run/'],
  'controlSocket.hostPath': ['run'],
  'serviceAccount.name': ['Proxy'],
  'serviceAccount.annotations': [{ a: true }],
  'podMonitor.interval': ['15', '15 s'],
  'podMonitor.labels': [{ a: 1 }],
};

/** Values of the chart that are right in a way that a form could easily refuse. */
export const RIGHT_VALUES: Readonly<Record<string, readonly unknown[]>> = {
  'image.repository': [
    'proxy',
    'localhost:5000/a/b__c',
    '[2001:db8::1]:5000/team/kube-userspace-proxy',
    'Example.com/a',
  ],
  'image.tag': ['0.1.0-rc.1', ''],
  'apiServer.url': ['https://[2001:db8::1]:6443', 'http://api.example.com', 'https://example.com/clusters/1'],
  'config.nodePortAddresses': [['primary', 'localhost', 'all', '192.0.2.0/24', '2001:db8::/32'], []],
  'config.healthzBindAddress': ['', '0.0.0.0', '::', '[::]:10256', '192.0.2.1:65535'],
  'config.udpIdleTimeout': ['1h15m30.918s', '.5s', '0', '0s', '250ms'],
  'config.oomScoreAdj': [-1000],
  'config.featureGates': [{ AllowServiceExternalIPs: false }],
  'config.logging.flushFrequency': [0, '5s'],
  'config.logging.options.json.infoBufferSize': ['0', 0],
  'config.logging.vmodule': [[{ filePattern: 'gc', verbosity: 4 }]],
  extraArgs: [['--v=4', '--dataplane', 'node']],
  updateStrategy: [
    { type: 'OnDelete' },
    { rollingUpdate: { maxUnavailable: '25%', maxSurge: 0 } },
    { rollingUpdate: { maxSurge: 1 } },
  ],
  'serviceAccount.name': ['123'],
  'kubeProxy.configMap': ['123'],
  'state.hostPath': ['', '/', '/a: b'],
  'containerRuntime.socket': ['/run/k3s/containerd/containerd.sock', '/a: b/c'],
  'podMonitor.interval': ['1m30s', '500ms', ''],
};

/** The first value of each path at once, then the second, and so on: as the chart takes them, by their paths. */
export function* rounds(all: Readonly<Record<string, readonly unknown[]>>) {
  for (let round = 0; ; round += 1) {
    const given = Object.entries(all).filter(([, each]) => round < each.length);
    if (given.length === 0) return;
    const values = {};
    for (const [path, each] of given) set(values, path.split('.'), each[round]);
    yield { paths: given.map(([path]) => path), values };
  }
}

function set(values: { [key: string]: unknown }, [key = '', ...below]: readonly string[], value: unknown): void {
  if (below.length === 0) {
    values[key] = value;
    return;
  }
  values[key] ??= {};
  set(values[key] as { [key: string]: unknown }, below, value);
}
