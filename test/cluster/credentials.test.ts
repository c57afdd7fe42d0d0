import assert from 'node:assert/strict';
import { copyFileSync, renameSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { TCP } from '../netns/harness.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { Cluster, type ServedService } from './cluster.ts';

const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;
/** From new credentials in the files to following: the longest backoff of 30 s, and a list. */
const RECOVERY_MS = 90_000;

describe('credentials are replaced while the proxy runs', () => {
  let cluster: Cluster;
  let proxy: ProxyProcess;
  let service: ServedService;

  before(async () => {
    cluster = await Cluster.create();
    proxy = await cluster.startProxy();
    service = await cluster.serve({ name: 'web', ports: [{ port: 80, target: TCP.name }] }, POD_ADDRESSES);
    await cluster.isUp(service, ALL);
  });

  after(() => cluster.remove());

  async function failsWith(pattern: RegExp): Promise<void> {
    await waitFor(`an exchange fails with ${pattern}`, () =>
      proxy.lines({ msg: 'An exchange with the API server has ended' }).some(({ err }) => pattern.test(String(err))),
    );
    assert.equal((await cluster.apiState()).connected, false);
    await cluster.isUp(service, ALL);
  }

  async function recovers(context: { diagnostic(message: string): void }): Promise<void> {
    const begun = performance.now();
    await waitFor('the proxy follows again', async () => (await cluster.apiState()).connected, RECOVERY_MS);
    context.diagnostic(`follows again after ${(performance.now() - begun).toFixed(0)} ms`);
    const next = await cluster.create({ name: cluster.name(), ports: [{ port: 80, target: TCP.name }] }, POD_ADDRESSES);
    await cluster.isUp(next, ALL);
    assert.ok(proxy.running);
  }

  test('the token: refused with 401, then taken from the file', { timeout: 600_000 }, async (context) => {
    await cluster.plane.killApiServer();
    cluster.plane.changeTokens();
    await cluster.plane.startApiServer();
    await failsWith(/^HTTP 401/);
    replace(`${cluster.kubeconfig}.token`, (path) => writeFileSync(path, cluster.plane.token('proxy')));
    await recovers(context);
  });

  test('the certificate authority: the new certificate is refused, then accepted', {
    timeout: 600_000,
  }, async (context) => {
    await cluster.plane.killApiServer();
    cluster.plane.dropCertificate();
    await cluster.plane.startApiServer();
    await failsWith(/certificate/);
    replace(`${cluster.kubeconfig}.ca`, (path) => copyFileSync(cluster.plane.caFile, path));
    await recovers(context);
  });
});

/** In one step, as kubelet and certificate tools do. */
function replace(path: string, write: (path: string) => void): void {
  write(`${path}.new`);
  renameSync(`${path}.new`, path);
}
