import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { RIGHT_VALUES, rounds, WRONG_VALUES } from '../deploy/chart-values.ts';
import { DAEMON_SET_FILE, documentsOf } from '../deploy/manifest.ts';
import { TCP } from '../netns/harness.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { parseCommandLine } from '../support/command-line.ts';
import { Cluster } from './cluster.ts';
import { startAsPod } from './kubelet.ts';

const FILE = fileURLToPath(DAEMON_SET_FILE);
const OVERLAY = fileURLToPath(new URL('../overlays/labelled-nodes', DAEMON_SET_FILE));
const CHART = fileURLToPath(new URL('../../helm/kube-userspace-proxy', DAEMON_SET_FILE));

const NAME = 'kube-userspace-proxy';
const NAMESPACE = 'kube-system';
const NO_SERVER = 'https://192.0.2.1:6443';
const IMAGE = `image.repository=registry.example.com/${NAME}`;

/** Values by which the chart is what the base of kustomize is. */
const AS_BASE = ['--set', `image.repository=${NAME}`, '--set', `apiServer.url=${NO_SERVER}`];

/** Everything that the chart can make of core kinds. */
const ALL_VALUES = {
  image: { repository: 'registry.example.com/proxy', digest: `sha256:${'a'.repeat(64)}`, pullPolicy: 'Always' },
  imagePullSecrets: [{ name: 'registry' }],
  kubeProxy: { configMap: 'kube-proxy' },
  config: {
    iptables: { syncPeriod: '1m' },
    conntrack: { min: 1310720 },
    nodePortAddresses: ['primary'],
    healthzBindAddress: '[::]:20256',
    metricsBindAddress: '0.0.0.0:20249',
  },
  extraArgs: ['--dataplane=fast'],
  nodeSelector: { 'userspace-proxy': '' },
  affinity: { nodeAffinity: {} },
  tolerations: [],
  podLabels: { team: 'network' },
  podAnnotations: { 'example.com/a': 'b' },
  containerRuntime: { socket: '/run/k3s/containerd/containerd.sock' },
  controlSocket: { hostPath: `/run/${NAME}` },
  serviceAccount: { name: 'proxy', annotations: { 'example.com/a': 'b' } },
  dashboard: { create: true },
};

// biome-ignore lint/suspicious/noExplicitAny: manifests have many shapes
type Objects = any[];

describe('deploy on a real server', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create();
    // A controller of the server's own makes it, a moment after the start.
    await waitFor('the namespace kube-system exists', () =>
      cluster.admin.get('namespaces', NAMESPACE).catch(() => undefined),
    );
  });

  after(() => cluster.remove());

  /** What the server would make of the manifests, which it accepts field by field. */
  async function dryRun(manifests: string): Promise<Objects> {
    const argv = ['apply', '--dry-run=server', '--validate=strict', '--output=json', '--filename=-'];
    return JSON.parse(await cluster.kubectl(argv, manifests)).items;
  }

  async function serves(proxy: ProxyProcess, name: string): Promise<void> {
    const service = await cluster.serve(
      { name, type: 'NodePort', ports: [{ port: 80, target: TCP.name }] },
      POD_ADDRESSES,
    );
    await cluster.isUp(service, ['pod-1', 'pod-2', 'pod-3']);
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW: bits 10, 12 and 13 of linux/capability.h.
    assert.match(readFileSync(`/proc/${proxy.pid}/status`, 'utf8'), /^CapEff:\s+0000000000003400$/m);
    assert.deepEqual(proxy.lines({ level: 'error' }), []);
  }

  describe('kustomize', () => {
    test('the overlay is built by kubectl, its values count, and the server accepts it field by field', async () => {
      const items = await dryRun(await cluster.kubectl(['kustomize', OVERLAY]));
      assert.deepEqual(
        items.map(({ kind }) => kind),
        ['ServiceAccount', 'ClusterRoleBinding', 'DaemonSet'],
      );
      const { nodeSelector, initContainers, containers } = items[2].spec.template.spec;
      assert.deepEqual(nodeSelector, { 'kubernetes.io/os': 'linux', 'userspace-proxy': '' });
      const images = [...initContainers, ...containers].map(({ image }) => image.split(':')[0]);
      assert.deepEqual(images, Array(2).fill('registry.example.com/kube-userspace-proxy'));
      const names = containers[0].env.map(({ name }: { name: string }) => name);
      assert.deepEqual(names, ['API_SERVER', 'NODE_NAME']);
    });

    test('its arguments, account and capabilities are enough for the proxy', async () => {
      const manifests = readFileSync(FILE, 'utf8').replace(NO_SERVER, cluster.plane.server);
      await cluster.kubectl(['apply', '--filename=-'], manifests);
      const proxy = await startAsPod(cluster, NAMESPACE, NAME);
      await serves(proxy, 'by-kustomize');
      await waitFor('the event', async () => {
        const events = await cluster.kubectl(['get', 'events', '--namespace', 'default']);
        return /Starting kube-userspace-proxy/.test(events);
      });
      assert.equal(await proxy.stop(), 0);
      await cluster.kubectl(['delete', '--filename=-'], manifests);
    });
  });

  describe('the Helm chart', () => {
    const template = (...options: readonly string[]) =>
      cluster.helm(['template', NAME, CHART, '--namespace', NAMESPACE, ...options]);
    const withValues = (values: object) => {
      const file = cluster.environment.temporary(`values-${cluster.environment.number()}.json`);
      writeFileSync(file, JSON.stringify(values));
      return ['--values', file];
    };

    test('passes lint', async () => {
      await cluster.helm(['lint', '--strict', CHART, ...AS_BASE]);
      await cluster.helm(['lint', '--strict', CHART, ...withValues(ALL_VALUES)]);
    });

    test('makes the same objects as the base of kustomize', async () => {
      const made = await dryRun(await template(...AS_BASE));
      const base = await dryRun(await cluster.kubectl(['kustomize', fileURLToPath(new URL('.', DAEMON_SET_FILE))]));
      assert.deepEqual(made.map(comparable), base.map(comparable));
    });

    test('names a value that is misspelt, and says what is missing', async () => {
      for (const [options, message] of [
        [['--set', 'imagge.tag=1'], /imagge/],
        [['--set', 'config.iptables.syncPeroid=1m'], /syncPeroid/],
        [['--set', 'config.iptables.masqueradeAll=1'], /masqueradeAll/],
        [['--set', 'image.repository='], /image\.repository is missing/],
        [['--set', 'apiServer.url='], /--set kubeProxy\.configMap=kube-proxy/],
        [['--set', 'state.hostPath='], /set updateStrategy\.rollingUpdate\.maxSurge to 0/],
        [['--set', 'extraArgs={--dataplane=node}'], /with the engine fast/],
        [['--set', 'extraArgs={--v=2,--dataplane,node}'], /with the engine fast/],
        [['--set', 'updateStrategy.rollingUpdate.maxUnavailable=25%'], /only one of .*maxSurge and maxUnavailable/],
        [['--set', 'podMonitor.create=true'], /podMonitor\.create needs config\.metricsBindAddress/],
        [
          ['--set', 'podMonitor.create=true', '--set', 'config.metricsBindAddress=::1'],
          /podMonitor\.create needs config\.metricsBindAddress/,
        ],
      ] as const) {
        await assert.rejects(cluster.helm(['install', NAME, CHART, ...AS_BASE, ...options]), message);
      }
      // Which has no maxSurge, and would say only that maxUnavailable is 0.
      await assert.rejects(template(...AS_BASE, '--kube-version', '1.21.14'), /from Kubernetes 1\.22 on/);
    });

    test('names each value that cannot be right, and takes what is right', async () => {
      for (const { paths, values } of rounds(WRONG_VALUES)) {
        await assert.rejects(cluster.helm(['install', NAME, CHART, ...withValues(values)]), ({ message }: Error) => {
          for (const path of paths)
            assert.ok(message.includes(`'/${path.replaceAll('.', '/')}`), `${path}: ${message}`);
          return true;
        });
      }
      for (const { values } of rounds(RIGHT_VALUES))
        await dryRun(await template(...withValues(ALL_VALUES), ...withValues(values)));
    });

    test('takes a configuration as kubeadm has it, where null stands for a default', async () => {
      const config = {
        bindAddress: '0.0.0.0',
        clientConnection: { acceptContentTypes: '', burst: 0, contentType: '', kubeconfig: '', qps: 0 },
        clusterCIDR: '10.244.0.0/16',
        configSyncPeriod: '0s',
        conntrack: { maxPerCore: null, min: null, tcpBeLiberal: false, tcpEstablishedTimeout: null, udpTimeout: '0s' },
        detectLocal: { bridgeInterface: '', interfaceNamePrefix: '' },
        detectLocalMode: '',
        featureGates: null,
        healthzBindAddress: '',
        hostnameOverride: '',
        iptables: { localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, syncPeriod: '0s' },
        ipvs: { excludeCIDRs: null, scheduler: '', strictARP: false, tcpTimeout: '0s' },
        logging: { flushFrequency: 0, options: { json: { infoBufferSize: '0' } }, verbosity: 0 },
        metricsBindAddress: '',
        mode: '',
        nodePortAddresses: null,
        oomScoreAdj: null,
        portRange: '',
      };
      await template(...AS_BASE, ...withValues({ config }));
    });

    test('asks for health where the program listens', async () => {
      for (const [address, host, port] of [
        ['127.0.0.1:20256', '127.0.0.1', 20256],
        ['[::1]:20256', '::1', 20256],
        ['::1', '::1', 10256],
        ['0.0.0.0', undefined, 10256],
        ['[::]:20256', undefined, 20256],
      ] as const) {
        const text = await template(...AS_BASE, '--set', `config.healthzBindAddress=${address}`);
        const [{ livenessProbe, readinessProbe }] = documentsOf(text).find(({ kind }) => kind === 'DaemonSet').spec
          .template.spec.containers;
        for (const { httpGet } of [livenessProbe, readinessProbe]) {
          assert.deepEqual([httpGet.host, httpGet.port], [host, port], address);
        }
      }
    });

    test('with every value there is, the server accepts each object, and the program its flags', async () => {
      const objects = new Map(
        (await dryRun(await template(...withValues(ALL_VALUES)))).map((each) => [each.kind, each]),
      );
      assert.deepEqual([...objects.keys()].sort(), ['ClusterRoleBinding', 'ConfigMap', 'DaemonSet', 'ServiceAccount']);
      const { template: pod } = objects.get('DaemonSet').spec;
      const [container] = pod.spec.containers;
      assert.equal(container.image, `registry.example.com/proxy@sha256:${'a'.repeat(64)}`);
      assert.equal(container.livenessProbe.httpGet.port, 20256);
      assert.deepEqual(pod.metadata.labels, { 'k8s-app': NAME, team: 'network' });
      const rendered = documentsOf(await template(...withValues(ALL_VALUES)));
      const { data } = rendered.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === NAME);
      const readFile = (path: string) => {
        assert.equal(path, '/etc/kube-userspace-proxy/config.yaml');
        return data['config.yaml'];
      };
      for (const { args } of [container, ...pod.spec.initContainers]) {
        const started = args.map((each: string) => each.replace('$(NODE_NAME)', 'node-1'));
        const line = parseCommandLine(started, readFile);
        assert.ok(line.kind === 'run' || line.kind === 'init', JSON.stringify(line));
        if (line.kind !== 'run') continue;
        assert.equal(line.config.iptablesSyncPeriodMs, 60_000);
        assert.equal(line.config.host.conntrack.min, 1_310_720);
        assert.equal(line.config.engine, 'fast');
        assert.ok(line.config.source.kind === 'kubernetes');
        assert.equal(line.config.source.kubeconfig, '/var/lib/kube-proxy/kubeconfig.conf');
        const { criSocket = '' } = line.config.state ?? {};
        assert.equal(criSocket, ALL_VALUES.containerRuntime.socket);
        const mounted = container.volumeMounts.find(({ name }: { name: string }) => name === 'container-runtime');
        assert.deepEqual([mounted.mountPath, mounted.readOnly], [dirname(criSocket), true]);
        const { hostPath } = pod.spec.volumes.find(({ name }: { name: string }) => name === mounted.name);
        assert.equal(hostPath.path, mounted.mountPath);
      }
    });

    test('for the Prometheus operator it has what deploy/prometheus has, under the job of the release', async () => {
      const metrics = ['--set', 'config.metricsBindAddress=0.0.0.0:20249'];
      const create = ['--set', 'podMonitor.create=true', '--set', 'prometheusRule.create=true'];
      const text = await cluster.helm(['template', 'edge', CHART, ...AS_BASE, ...metrics, ...create]);
      const objects = new Map(documentsOf(text).map((each) => [each.kind, each]));
      const alerts = readFileSync(new URL('../../prometheus/alerts.yaml', DAEMON_SET_FILE), 'utf8');
      const [expected] = documentsOf(alerts.replaceAll(`job="${NAME}"`, 'job="edge"'));
      assert.deepEqual(objects.get('PrometheusRule').spec, expected);
      const { jobLabel, podMetricsEndpoints } = objects.get('PodMonitor').spec;
      assert.equal(jobLabel, 'k8s-app');
      const replacements = podMetricsEndpoints[0].relabelings.map((each: { replacement?: string }) => each.replacement);
      assert.deepEqual(replacements, ['$1:20249', '[$1]:20249', undefined]);
    });

    test('on kubeadm it needs nothing but an image, serves, is upgraded, and leaves nothing', async () => {
      // As kubeadm makes it: with the account of the Pod (kubernetes/kubernetes cmd/kubeadm/app/phases/addons/proxy).
      const account = '/var/run/secrets/kubernetes.io/serviceaccount';
      const kubeconfig = {
        apiVersion: 'v1',
        kind: 'Config',
        clusters: [
          { cluster: { 'certificate-authority': `${account}/ca.crt`, server: cluster.plane.server }, name: 'default' },
        ],
        contexts: [{ context: { cluster: 'default', namespace: 'default', user: 'default' }, name: 'default' }],
        'current-context': 'default',
        users: [{ name: 'default', user: { tokenFile: `${account}/token` } }],
      };
      const file = cluster.environment.temporary('kubeconfig.conf');
      writeFileSync(file, JSON.stringify(kubeconfig));
      await cluster.kubectl([
        '-n',
        NAMESPACE,
        'create',
        'configmap',
        'kube-proxy',
        `--from-file=kubeconfig.conf=${file}`,
      ]);
      const ours = async () => {
        const kinds = 'daemonset,configmap,serviceaccount,clusterrolebinding,secret';
        const labels = `app.kubernetes.io/instance=${NAME}`;
        return (await cluster.kubectl(['-n', NAMESPACE, 'get', kinds, '-l', labels, '-o=name'])).split('\n').sort();
      };

      const options = ['--namespace', NAMESPACE, '--set', IMAGE, '--set', 'kubeProxy.configMap=kube-proxy'];
      const notes = await cluster.helm(['install', NAME, CHART, ...options]);
      assert.match(notes, /kubectl -n kube-system rollout status daemonset\/kube-userspace-proxy/);
      const proxy = await startAsPod(cluster, NAMESPACE, NAME);
      await serves(proxy, 'by-helm');
      assert.equal(await proxy.stop(), 0);

      const annotations = async () => {
        const path = '-o=jsonpath={.spec.template.metadata.annotations}';
        return await cluster.kubectl(['-n', NAMESPACE, 'get', 'daemonset', NAME, path]);
      };
      const before = await annotations();
      await cluster.helm(['upgrade', NAME, CHART, ...options, '--set', 'config.udpIdleTimeout=1s']);
      assert.notEqual(await annotations(), before, 'another configuration is rolled out');
      await cluster.helm(['uninstall', NAME, '--namespace', NAMESPACE]);
      await waitFor('nothing of it to be left', async () => (await ours()).join() === '');
    });
  });
});

/** Without what names the release, and what the server adds. */
function comparable({ apiVersion, kind, metadata, ...rest }: Objects[number]) {
  const { name, namespace, labels = {} } = metadata;
  // Kustomize's base gives labels only where something looks for them.
  const own = kind === 'DaemonSet' ? labels['k8s-app'] : undefined;
  return { apiVersion, kind, name, namespace, own, rest: JSON.parse(JSON.stringify(rest)) };
}
