import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { metric, TCP } from '../netns/harness.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { residentKiB } from '../support/processes.ts';
import { NAMESPACE } from './admin.ts';
import { Cluster } from './cluster.ts';
import { type ServiceOptions, serviceObject } from './objects.ts';

const SERVICES = 5_000;
const SLICES_EACH = 2;

const optionsOf = (index: number): ServiceOptions => ({
  name: `service-${index}`,
  labels: { 'app.kubernetes.io/name': `service-${index}`, 'app.kubernetes.io/managed-by': 'scale-test' },
  ports: [{ name: 'http', port: 80, target: TCP.name }],
});

/** As the endpoint slice controller writes them, with all that nobody here reads. */
function sliceOf(index: number, part: number): object {
  const { name, labels } = optionsOf(index);
  const owner = {
    apiVersion: 'v1',
    kind: 'Service',
    name,
    uid: `00000000-0000-0000-0000-${String(index).padStart(12, '0')}`,
  };
  return {
    metadata: {
      name: `${name}-${part}`,
      labels: {
        ...labels,
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
        'kubernetes.io/service-name': name,
      },
      annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-01-01T00:00:00Z' },
      ownerReferences: [{ ...owner, controller: true, blockOwnerDeletion: true }],
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: TCP.name, protocol: 'TCP' }],
    endpoints: (part === 0 ? POD_ADDRESSES.slice(0, 2) : POD_ADDRESSES.slice(2)).map((ip) => ({
      addresses: [ip],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: 'node-1',
      targetRef: { kind: 'Pod', namespace: NAMESPACE, name: `${name}-${ip}`, uid: owner.uid },
    })),
  };
}

describe(`${SERVICES} Services with ${SERVICES * SLICES_EACH} slices`, { timeout: 3_600_000 }, () => {
  let cluster: Cluster;
  let proxy: ProxyProcess;
  const hosts: string[] = [];

  before(async () => {
    cluster = await Cluster.create();
    await inParallel(SERVICES, 24, async (index) => {
      const [service] = await Promise.all([
        cluster.admin.create('services', serviceObject(optionsOf(index))),
        ...Array.from({ length: SLICES_EACH }, (_, part) =>
          cluster.admin.create('endpointslices', sliceOf(index, part)),
        ),
      ]);
      hosts[index] = service.spec.clusterIP;
    });
  });

  after(() => cluster.remove());

  const stallMs = async () =>
    1_000 * metric(await cluster.environment.metricsText(), 'nodejs_eventloop_lag_max_seconds');

  const portals = () => cluster.environment.iptables.rules('KUBE-PORTALS-CONTAINER');

  const kinds = ['VmHWM', 'VmRSS'] as const;
  const memory = () => kinds.map((kind) => `${kind} ${Math.round(residentKiB(proxy.pid, kind) / 1024)} MiB`).join(', ');

  test('the first full sync', async (context) => {
    const begun = performance.now();
    // By looking at the kernel: to show thousands of series takes the proxy some time, too, and restarts its
    // measurement.
    proxy = await cluster.startProxy({
      args: ['-v', '0'],
      ready: async () => (await portals()).length > SERVICES,
      readyMs: 600_000,
    });
    const ms = performance.now() - begun;
    context.diagnostic(`from starting the process to the first full sync: ${(ms / 1_000).toFixed(1)} s; ${memory()}`);
    const stall = await stallMs();
    context.diagnostic(`longest stall of the event loop meanwhile: ${stall.toFixed(0)} ms`);
    const rules = await portals();
    const served = new Set(rules.map((rule) => / -d (\S+)\/32 /.exec(rule)?.[1]));
    assert.deepEqual(
      hosts.filter((host) => !served.has(host)),
      [],
    );
    assert.equal(rules.length, SERVICES + 1);
    assert.ok(ms < 300_000, `${ms} ms`);
  });

  test('every Service that is asked is served by all of its endpoints', async () => {
    for (const index of [0, 1, 2, 1_234, 2_500, 4_321, SERVICES - 1]) {
      await cluster.isUp({ host: hosts[index]!, port: 80 }, ['pod-1', 'pod-2', 'pod-3']);
    }
  });

  test('200 changes of endpoints and 20 of Services, among all the others', async (context) => {
    await stallMs();
    const begun = performance.now();
    await inParallel(200, 8, (index) =>
      cluster.admin.patch('endpointslices', `service-${index}-0`, { endpoints: [{ addresses: [POD_ADDRESSES[0]] }] }),
    );
    const added = await inParallel(20, 8, (index) => cluster.create(optionsOf(SERVICES + index), POD_ADDRESSES));
    const written = performance.now();
    await cluster.isUp({ host: hosts[199]!, port: 80 }, ['pod-1', 'pod-3']);
    const isProxied = (rules: readonly string[]) =>
      added.every(({ host }) => rules.some((rule) => rule.includes(` -d ${host}/32 `)));
    await waitFor('every new Service has its rule', async () => isProxied(await portals()));
    const ms = performance.now() - written;
    context.diagnostic(
      `written in ${((written - begun) / 1_000).toFixed(1)} s, all in effect ${ms.toFixed(0)} ms later; longest stall ${(await stallMs()).toFixed(0)} ms`,
    );
  });

  test('memory settles', async (context) => {
    await sleep(20_000);
    context.diagnostic(`after 20 s of rest: ${memory()}`);
    assert.ok(residentKiB(proxy.pid, 'VmRSS') < 600 * 1024);
  });
});

/** `count` pieces of work, so many at once. Results in the order of completion. */
async function inParallel<T>(count: number, workers: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  const worker = async () => {
    while (next < count) results.push(await work(next++));
  };
  await Promise.all(Array.from({ length: workers }, worker));
  return results;
}
