import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ServiceView } from '../../../src/model/view.ts';
import { metric, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { PROGRAM } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS } from '../wait.ts';

/** 200 of them. Not by the sysctl, because connections to endpoints need those ports, too. */
const RANGE = '45000-45199';

describe(`local ports of several namespaces, with iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment('fresh');

  test('one that wants more than there are leaves some to others, who have its ports as soon as it goes', async (t) => {
    const { client } = environment;
    await environment.startProxy({ args: ['--proxy-port-range', RANGE] });
    const write = (namespace: string, clusterIP: string, count: number) =>
      environment.write({
        ...{ name: namespace, namespace, clusterIP, endpoints: POD_ADDRESSES },
        ports: Array.from({ length: count }, (_, i) => ({ name: `p${i}`, port: 1_000 + i, target: TCP.name })),
      });
    /** Waits until so many ports have rules, which come after their listeners, and connects to each. */
    const isServed = async (what: string, host: string, count: number) => {
      const begun = performance.now();
      await environment.waitForRules(host, count);
      t.diagnostic(`${what}: after ${Math.round(performance.now() - begun)} ms`);
      const attempts = Array.from({ length: count }, (_, i) => ({ protocol: 'tcp' as const, host, port: 1_000 + i }));
      const outcomes = await client.call('outcomes', { attempts, timeoutMs: PATIENCE_MS });
      assert.deepEqual(
        outcomes.filter((outcome) => !outcome.startsWith('pod-')),
        [],
      );
    };
    const hog = environment.clusterIP();
    write('hog', hog, 300);
    await environment.waitForRules(hog, 160);
    const leftOut = metric(
      await environment.metricsText(),
      'userspace_proxy_service_parts_left_out_total',
      'ip_family="IPv4"',
    );
    assert.equal(leftOut, 140);
    const lines = environment.proxy.log.filter(({ svc }) => String(svc).startsWith('hog/hog'));
    const refusals = lines.filter(({ level }) => level !== 'info');
    assert.ok(refusals.length > 0 && refusals.length <= 10, `${refusals.length} lines about it`);

    const list = [PROGRAM, 'list', 'hog/hog', '-o', 'json', `--control-socket=${environment.proxy.controlSocket}`];
    const listed: { services: readonly ServiceView[] } = JSON.parse(await environment.topology.node.output(list));
    const reasons = listed.services.filter(({ state }) => state === 'pending').map(({ reason }) => reason);
    assert.equal(reasons.length, 140);
    for (const reason of reasons) assert.match(reason ?? '', /^its namespace has its share of the local ports/);

    const small = environment.clusterIP();
    write('small', small, 1);
    await isServed('a new Service of another namespace is served', small, 1);

    const next = environment.clusterIP();
    write('next', next, 60);
    await environment.waitForRules(next, 32);
    environment.manifests.remove('hog.yaml');
    await environment.waitForRules(hog, 0);
    await isServed('Service ports that waited have ports of the one that has gone', next, 60);

    // The rules of both change in one sync, and most of the ports are the same.
    const other = environment.clusterIP();
    environment.manifests.remove('next.yaml');
    write('other', other, 150);
    await isServed('a large new Service has ports of two that have gone', other, 150);
  });
});
