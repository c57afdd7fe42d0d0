import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { ProxyProcess } from '../netns/proxy.ts';
import { waitFor } from '../netns/wait.ts';
import { Cluster, NODE_NAME } from './cluster.ts';

/** The role that kube-proxy has in every cluster, and that the proxy's user is bound to here. */
const ROLE = 'system:node-proxier';

// Pages, Node names and failing servers: test/check/source.test.ts, with a fake server.
describe('check against a real API server', () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create();
  });

  after(() => cluster.remove());

  async function check(
    ...args: readonly string[]
  ): Promise<{ readonly code: number | null; readonly lines: string[] }> {
    const source = ['--kubeconfig', cluster.kubeconfig, '--hostname-override', NODE_NAME];
    const program = new ProxyProcess(cluster.environment.topology.node, ['check', ...source, ...args]);
    const { code } = await program.exited();
    return { code, lines: program.log.map(({ msg }) => msg) };
  }

  /** `yes` or `no`. Both are answers, although kubectl fails with one. */
  async function canWatch(): Promise<string | undefined> {
    const asked = cluster.kubectl(['auth', 'can-i', 'watch', 'services', '--as', 'system:kube-proxy']);
    return /\b(yes|no)\b/.exec(await asked.catch(({ message }: Error) => message))?.[1];
  }

  test('finds everything that the proxy needs', { timeout: 300_000 }, async () => {
    const { code, lines } = await check();
    const of = (name: string) => lines.filter((line) => line.slice(6).startsWith(name));
    assert.match(of('API server')[0]!, /^ok .* answers, Kubernetes v\d+\.\d+/);
    assert.deepEqual(of('permissions'), [
      `ok    permissions    may list and watch Services and EndpointSlices, watch its Node ${NODE_NAME} and write events`,
    ]);
    assert.equal(code, 0, lines.join('\n'));
  });

  test('names the rights that are missing', { timeout: 300_000 }, async () => {
    const role = JSON.parse(await cluster.kubectl(['get', 'clusterrole', ROLE, '-o', 'json']));
    const rules = [{ apiGroups: [''], resources: ['services', 'nodes'], verbs: ['list', 'get'] }];
    await cluster.kubectl(['replace', '-f', '-'], JSON.stringify({ ...role, rules }));
    // The server learns of roles as anybody does, a moment after they were written.
    await waitFor('the role counts', async () => (await canWatch()) === 'no');
    try {
      const { code, lines } = await check();
      assert.equal(code, 1);
      const permissions = lines.filter((line) => line.slice(6).startsWith('permissions'));
      assert.deepEqual(
        permissions.map((line) => (line.slice(0, 4) + line.slice(20)).split(/ →|:/)[0]),
        [
          'fail these credentials may not watch services',
          'fail these credentials may not list endpointslices.discovery.k8s.io',
          'fail these credentials may not watch endpointslices.discovery.k8s.io',
          'warn these credentials may not watch nodes',
          'warn these credentials may not create events',
        ],
      );
    } finally {
      await cluster.kubectl(['replace', '--force', '-f', '-'], JSON.stringify({ ...role, metadata: { name: ROLE } }));
      await waitFor('the role counts', async () => (await canWatch()) === 'yes');
    }
  });

  test('names credentials that the server does not take', { timeout: 300_000 }, async () => {
    writeFileSync(`${cluster.kubeconfig}.token`, 'another');
    try {
      const { code, lines } = await check();
      assert.equal(code, 1);
      assert.ok(
        lines.some((line) => /^fail {2}API server {5}.* does not accept the credentials \(HTTP 401\) → /.test(line)),
      );
    } finally {
      writeFileSync(`${cluster.kubeconfig}.token`, cluster.plane.token('proxy'));
    }
  });
});
