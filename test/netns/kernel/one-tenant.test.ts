import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { MAX_RULES } from '../../../src/services/service-limits.ts';
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

  test('a Service that asks for too many rules gets its share, and the others are served at once', async (t) => {
    const { client, outside, iptables } = environment;
    const web = await environment.serve({ name: 'web' });
    const before = resident();
    const ranges = many(50, (i) => `100.64.${i}.0/24`);
    const externalIPs = many(1_000, (i) => `198.51.${i >> 8}.${i % 256}`);
    environment.write({
      name: 'hog',
      clusterIP: environment.clusterIP(),
      ports: many(16, (i) => ({ name: `p${i}`, port: 1_000 + i, target: TCP.name })),
      externalIPs,
      loadBalancerIPs: ['203.0.113.1'],
      endpoints: POD_ADDRESSES,
      spec: { loadBalancerSourceRanges: [...ranges, '192.168.50.0/24'] },
    });
    environment.write({
      name: 'wide',
      clusterIP: environment.clusterIP(),
      ports: many(MAX_RULES + 100, (i) => ({ name: `p${i}`, port: 1_000 + i, target: TCP.name })),
      externalIPs: ['198.51.100.99'],
      endpoints: POD_ADDRESSES,
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
    // 128 rules for each port: one for the cluster IP, 51 source ranges and a drop for the load-balancer IP.
    const kept = 128 - 1 - 52;
    const last = externalIPs[kept - 1]!;
    await waitFor('its share is served', async () => names.includes(await attempt(last, 1_015)));
    assert.ok(names.includes(await attempt('203.0.113.1', 1_010, outside)), 'a source range accepts this client');
    assert.equal(await attempt('203.0.113.1', 1_010, client), 'timeout');
    assert.ok(names.includes(await attempt(web.host, 80)));
    assert.ok(await isLive());
    const beyond = (await iptables.save()).filter((line) => line.includes(`-d ${externalIPs[kept]}/32 `));
    assert.deepEqual(beyond, [], 'the first external IP that is beyond');
    const told = (svc: string) =>
      environment.proxy.log
        .filter((line) => line['svc'] === svc)
        .map(({ msg, what, more, reason }) => [msg, what ?? more, reason]);
    assert.deepEqual(told('test/hog'), [
      [
        'A part of this Service port is left out',
        `${externalIPs.length - kept} of its 1000 IPv4 external IPs`,
        'a Service gets at most 2048 rules, its ports times addresses; use several Services',
      ],
    ]);
    assert.deepEqual(told(`test/wide:p${MAX_RULES}`), [
      ['This Service port is not served', 99, 'a Service gets at most 2048 ports; use several Services'],
    ]);
    const rules = metric(await environment.metricsText(), 'kubeproxy_sync_proxy_rules_iptables_total', 'table="nat"');
    assert.ok(rules < 6 * MAX_RULES, `${rules} rules in nat`);
    const more = resident() - before;
    t.diagnostic(`${rules} rules in nat, ${Math.round(more / 1e6)} MB more`);
    assert.ok(more < 100e6, `${more} bytes more`);
  });
});
