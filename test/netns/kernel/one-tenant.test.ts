import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { metric, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const LIVEZ = 'http://127.0.0.1:10256/livez';

describe(`one tenant among others, with iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment({ args: ['--iptables-sync-period', '10s'] });

  /** Bytes of all processes of the proxy. */
  const resident = () => {
    const status = readFileSync(`/proc/${environment.proxy.pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
  };
  const isLive = async () => (await environment.node.call('httpGet', { url: LIVEZ })).status === 200;
  const many = <T>(count: number, make: (index: number) => T) => Array.from({ length: count }, (_, i) => make(i));

  test('a Service of 1,000 ports and 1,000 external IPs, and more source ranges, leaves the others alone', async (t) => {
    const { client, outside, node } = environment;
    const web = await environment.serve({ name: 'web' });
    const before = resident();
    const externalIPs = many(1_000, (i) => `198.51.${i >> 8}.${i % 256}`);
    const ranges = many(1_000, (i) => `100.64.${i >> 8}.${i % 256}/32`);
    environment.write({
      name: 'hog',
      clusterIP: environment.clusterIP(),
      ports: many(1_000, (i) => ({ name: `p${i}`, port: 1_000 + i, target: TCP.name })),
      externalIPs,
      loadBalancerIPs: many(20, (i) => `203.0.113.${i + 1}`),
      endpoints: POD_ADDRESSES,
      spec: { loadBalancerSourceRanges: [...ranges, '192.168.50.0/24'] },
    });
    const begun = performance.now();
    const late = { name: 'late', clusterIP: environment.clusterIP(), ports: [{ port: 80, target: TCP.name }] };
    environment.write({ ...late, endpoints: POD_ADDRESSES });
    const names = ['pod-1', 'pod-2', 'pod-3'];
    const attempt = (host: string, port: number, from = client) =>
      from
        .call('outcomes', { attempts: [{ protocol: 'tcp', host, port }], timeoutMs: 1_000 })
        .then(([outcome = '']) => outcome);
    await waitFor('the other new Service is served', async () => names.includes(await attempt(late.clusterIP, 80)));
    t.diagnostic(`the other new Service is served after ${Math.round(performance.now() - begun)} ms`);
    const last = externalIPs.at(-1)!;
    await waitFor('the large Service is served', async () => names.includes(await attempt(last, 1_999)));
    t.diagnostic(`the large Service is served after ${Math.round(performance.now() - begun)} ms`);
    assert.ok(names.includes(await attempt('203.0.113.20', 1_500, outside)), 'a source range accepts this client');
    assert.equal(await attempt('203.0.113.20', 1_500, client), 'timeout');
    assert.ok(names.includes(await attempt(web.host, 80)));
    assert.ok(await isLive());
    const rules = metric(await environment.metricsText(), 'kubeproxy_sync_proxy_rules_iptables_total', 'table="nat"');
    assert.ok(rules > 3_000 && rules < 16_000, `${rules} rules in nat`);
    const more = resident() - before;
    t.diagnostic(`${rules} rules in nat, ${Math.round(more / 1e6)} MB more`);
    assert.ok(more < 100e6, `${more} bytes more`);
    void node;
  });
});
