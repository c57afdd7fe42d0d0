import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { Cluster, type ServedService, served } from './cluster.ts';
import { serviceObject } from './objects.ts';

const HTTP = { port: 80, target: TCP.name };

/** A server before 1.21, played by a real one whose group discovery.k8s.io cannot be reached. */
describe('a server without EndpointSlices', () => {
  let cluster: Cluster;
  let proxy: ProxyProcess;

  before(async () => {
    cluster = await Cluster.create();
    const port = await cluster.environment.node.call('meddle', {
      url: cluster.plane.server,
      caFile: cluster.plane.caFile,
    });
    await cluster.environment.node.call('misbehaveForEver', { path: '/apis/discovery.k8s.io/', misdeed: 'old' });
    const kubeconfig = cluster.environment.temporary('old.kubeconfig');
    cluster.plane.writeKubeconfig(kubeconfig, { user: 'proxy', server: `http://127.0.0.1:${port}` });
    proxy = await cluster.startProxy({ kubeconfig });
  });

  after(() => cluster.remove());

  const subsets = (addresses: readonly string[], notReady: readonly string[] = []) => [
    {
      addresses: addresses.map((ip) => ({ ip })),
      notReadyAddresses: notReady.map((ip) => ({ ip })),
      ports: [{ port: HTTP.target, protocol: 'TCP' }],
    },
  ];

  async function create(): Promise<ServedService> {
    const options = { name: cluster.name(), ports: [HTTP] };
    await cluster.admin.create('endpoints', { metadata: { name: options.name }, subsets: subsets(POD_ADDRESSES) });
    return served(options, await cluster.admin.create('services', serviceObject(options)));
  }

  test('Endpoints are watched instead: what is added, changed and removed', async () => {
    const service = await create();
    await cluster.isUp(service, ['pod-1', 'pod-2', 'pod-3']);
    const [first, ...others] = POD_ADDRESSES;
    await cluster.admin.patch('endpoints', service.name, { subsets: subsets(others, [first]) });
    await cluster.isUp(service, ['pod-2', 'pod-3']);
    await cluster.admin.delete('endpoints', service.name);
    await cluster.isDown(service);
  });

  test('it counts as followed, and says so once', async () => {
    assert.deepEqual(await cluster.apiState(), { connected: true, staleSeconds: 0 });
    assert.equal(proxy.log.filter(({ msg }) => /Endpoints are watched instead/.test(msg)).length, 1);
  });

  test('a restart of the server is survived as with slices', async () => {
    const first = await create();
    await cluster.isUp(first, ['pod-1', 'pod-2', 'pod-3']);
    await cluster.plane.killApiServer();
    await cluster.isUp(first, ['pod-1', 'pod-2', 'pod-3']);
    await cluster.plane.startApiServer();
    await cluster.isUp(await create(), ['pod-1', 'pod-2', 'pod-3']);
    assert.ok(proxy.running);
  });
});
