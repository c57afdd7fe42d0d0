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

describe(`local ports that an administrator reserves, with iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment('fresh');
  const names = Array.from({ length: 10 }, (_, i) => `p${i}`);
  const ports = names.map((name, i) => ({ name, port: 1_000 + i, target: TCP.name }));

  const set = (name: string, value: string) =>
    environment.topology.node.output(['sh', '-c', `echo '${value}' > /proc/sys/net/ipv4/${name}`]);
  const localPorts = () => Promise.all(names.map((name) => environment.localPort(`test/web:${name}`)));
  const isServed = async (host: string) => {
    for (const { port } of ports) {
      assert.deepEqual((await environment.client.call('requests', { host, port, count: 1 })).failures, {});
    }
  };

  test('are not taken, and a Service port that has one leaves it at the next start', async () => {
    // Every other one, with room for what else connects from this node.
    const reserved = Array.from({ length: 500 }, (_, i) => 40_000 + 2 * i);
    await set('ip_local_port_range', '40000 40999');
    await set('ip_local_reserved_ports', reserved.join());
    await environment.startProxy();
    const { host } = await environment.serve({ name: 'web', ports });
    const before = await localPorts();
    for (const port of before) assert.ok(port % 2 === 1, `${port} is reserved`);

    await environment.proxy.stop();
    const [moved, ...others] = before;
    await set('ip_local_reserved_ports', [...reserved, moved].join());
    // No metrics are asked for until then: a client on this node could be given a local port that the Service had.
    await environment.startProxy({ ready: async () => (await localPorts())[0] !== moved });
    await environment.waitForRules(host, ports.length);
    const [next, ...kept] = await localPorts();
    assert.notEqual(next, moved);
    assert.ok(next !== undefined && next % 2 === 1, `${next} is reserved`);
    assert.deepEqual(kept, others, 'the others keep theirs');
    await isServed(host);
  });

  test('are taken from --proxy-port-range, which is for the proxy', async () => {
    await set('ip_local_reserved_ports', '40100-40129');
    await environment.startProxy({ args: ['--proxy-port-range', '40100-40129'] });
    await isServed((await environment.serve({ name: 'web', ports })).host);
  });
});
