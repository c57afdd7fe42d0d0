import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { DAEMON_SET_FILE, deployedArguments, deployedCapabilities } from '../deploy/manifest.ts';
import { TCP } from '../netns/harness.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { Cluster, NODE_NAME } from './cluster.ts';

const FILE = fileURLToPath(DAEMON_SET_FILE);
const OVERLAY = fileURLToPath(new URL('../overlays/labelled-nodes', DAEMON_SET_FILE));

/**
 * What the kubelet would do: mounts the service account where every Pod has it, in a mount namespace that `ip netns
 * exec` has made, and becomes the program with these capabilities and no other.
 */
const AS_POD = `
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
cp "$1"/* /run/secrets/kubernetes.io/serviceaccount
bounding=$2
shift 2
exec setpriv --bounding-set="$bounding" --no-new-privs "$@"
`;

describe('deploy/kustomize on a real server', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create();
    // A controller of the server's own makes it, a moment after the start.
    await waitFor('the namespace kube-system exists', () =>
      cluster.admin.get('namespaces', 'kube-system').catch(() => undefined),
    );
  });

  after(() => cluster.remove());

  test('the server accepts every object, field by field', async () => {
    const output = await cluster.kubectl(['apply', '--dry-run=server', '--validate=strict', '-f', FILE]);
    assert.deepEqual(output.trim().split('\n'), [
      'serviceaccount/kube-userspace-proxy created (server dry run)',
      'clusterrolebinding.rbac.authorization.k8s.io/kube-userspace-proxy created (server dry run)',
      'daemonset.apps/kube-userspace-proxy created (server dry run)',
    ]);
  });

  test('the overlay is built by kubectl, its values count, and the server accepts it field by field', async () => {
    const text = await cluster.kubectl(['kustomize', OVERLAY]);
    const output = await cluster.kubectl(['apply', '--dry-run=server', '--validate=strict', '-o=json', '-f=-'], text);
    const { items } = JSON.parse(output);
    assert.deepEqual(
      items.map(({ kind }: { kind: string }) => kind),
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
    await cluster.kubectl(['apply', '-f', FILE]);
    const account = cluster.environment.temporary('service-account');
    mkdirSync(account);
    const token = await cluster.kubectl(['create', 'token', 'kube-userspace-proxy', '--namespace', 'kube-system']);
    writeFileSync(join(account, 'token'), token.trim());
    copyFileSync(cluster.plane.caFile, join(account, 'ca.crt'));

    const capabilities = deployedCapabilities().map((name) => `+${name.toLowerCase()}`);
    const proxy = await cluster.environment.startProxy({
      source: deployedArguments({ node: NODE_NAME, server: cluster.plane.server }),
      through: ['sh', '-euc', AS_POD, 'as-pod', account, ['-all', ...capabilities].join()],
    });
    const service = await cluster.serve(
      { name: 'web', type: 'NodePort', ports: [{ port: 80, target: TCP.name }] },
      POD_ADDRESSES,
    );
    await cluster.isUp(service, ['pod-1', 'pod-2', 'pod-3']);
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW: bits 10, 12 and 13 of linux/capability.h.
    assert.match(readFileSync(`/proc/${proxy.pid}/status`, 'utf8'), /^CapEff:\s+0000000000003400$/m);
    assert.deepEqual(proxy.lines({ level: 'error' }), []);
    await waitFor('the event', async () => {
      const events = await cluster.kubectl(['get', 'events', '--namespace', 'default']);
      return /Starting kube-userspace-proxy/.test(events);
    });
    assert.equal(await proxy.stop(), 0);
  });
});
