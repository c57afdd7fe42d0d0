import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
import type { Misdeed } from '../netns/programs/meddler.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { residentKiB } from '../support/processes.ts';
import { Cluster, type ServedService } from './cluster.ts';

const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;
const SERVICES = '/api/v1/services';
const SLICES = '/apis/discovery.k8s.io/v1/endpointslices';

/** From the last misdeed to the first change that is served, of which the backoff is a few seconds. */
const RECOVERY_MS = 60_000;

const LOST = 'Cannot watch the API server; the last known state is served until it is back';

const web = (name: string) => ({ name, ports: [{ port: 80, target: TCP.name }] });

describe('something between the proxy and the API server answers nonsense', () => {
  let cluster: Cluster;
  let kubeconfig: string;
  let proxy: ProxyProcess | undefined;
  let steady: ServedService;
  let load: number;

  before(async () => {
    cluster = await Cluster.create();
    const port = await cluster.environment.node.call('meddle', {
      url: cluster.plane.server,
      caFile: cluster.plane.caFile,
    });
    kubeconfig = cluster.environment.temporary('meddled.kubeconfig');
    cluster.plane.writeKubeconfig(kubeconfig, { user: 'proxy', server: `http://127.0.0.1:${port}` });
    steady = await cluster.create(web('steady'), POD_ADDRESSES);
  });

  // A proxy for each test: one that has seen trouble a moment ago is more patient than one that has not.
  beforeEach(async () => {
    proxy = await cluster.startProxy({ kubeconfig });
    await waitFor('the proxy follows', async () => (await cluster.apiState()).connected);
    await cluster.isUp(steady, ALL);
    load = await cluster.environment.client.call('startLoad', { host: steady.host, port: 80, concurrency: 1 });
  });

  afterEach(async () => {
    const { names, failures } = await cluster.environment.client.call('stopLoad', { load });
    await cluster.environment.node.call('behave', undefined);
    assert.deepEqual(failures, {});
    assert.deepEqual(Object.keys(names).sort(), [...ALL]);
    assert.ok(proxy?.running);
    await cluster.environment.stopProxies();
  });

  after(() => cluster.remove());

  /** Until these misdeeds were met for both kinds of objects, and noticed, and the proxy follows again. */
  async function suffers(misdeeds: readonly Misdeed[], withinMs = 60_000): Promise<void> {
    const { node } = cluster.environment;
    // By the log: it may follow again before anybody has looked.
    const timesLost = () => proxy?.lines({ msg: LOST }).length ?? 0;
    const before = timesLost();
    await node.call('misbehave', { paths: [SERVICES, SLICES], misdeeds });
    await waitFor('the proxy knows that it does not follow', () => timesLost() > before, withinMs);
    await waitFor(
      'the misdeeds are met',
      async () => {
        return (await node.call('misdeedsMet', undefined)) === 2 * misdeeds.length;
      },
      withinMs,
    );
    await waitFor('the proxy follows again', async () => (await cluster.apiState()).connected, withinMs);
  }

  async function servesWithin(ms: number): Promise<void> {
    const service = await cluster.create(web(cluster.name('after')), POD_ADDRESSES);
    await waitFor(
      'a Service created afterwards is served',
      () =>
        cluster.environment.client
          .call('request', { host: service.host, port: 80, timeoutMs: 1_000 })
          .catch(() => undefined),
      ms,
    );
  }

  // The other answers are tested with a fake server: test/kubernetes/kubernetes-source.test.ts.
  test('lists that end in the middle of JSON: the last state is served, and it recovers', async () => {
    // A watch has to become a list first: 410 says that the version is too old.
    await suffers([410, 'truncated', 'truncated']);
    await servesWithin(RECOVERY_MS);
  });

  test('a streamed list that breaks off is replaced by pages, which the server compresses', async () => {
    const { environment, admin } = cluster;
    const annotations = { ballast: 'x'.repeat(100_000) };
    const service = await cluster.create(web(cluster.name('large')), POD_ADDRESSES);
    for (const collection of ['services', 'endpointslices'] as const) {
      await admin.patch(collection, service.name, {
        metadata: { annotations: { ...annotations, more: 'y'.repeat(60_000) } },
      });
    }
    await suffers([410, 'broken-off']);
    await waitFor('both lists came compressed', async () => {
      return (await environment.node.call('answersCompressed', undefined)) === 2;
    });
    await servesWithin(RECOVERY_MS);
  });

  test('a line of 50 MB in a watch: the last state is served, and it recovers', async () => {
    const peak = () => residentKiB(proxy!.pid, 'VmHWM');
    const before = peak();
    const watches = await cluster.environment.node.call('inject', { text: 'x'.repeat(1 << 20), repeat: 50 });
    assert.ok(watches >= 2, `${watches} watches`);
    await servesWithin(RECOVERY_MS);
    await waitFor('the proxy follows', async () => (await cluster.apiState()).connected, RECOVERY_MS);
    assert.ok(peak() - before < 200 * 1024, `${peak() - before} KiB more at the peak`);
  });
});
