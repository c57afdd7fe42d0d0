import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Environment, metric, NOBODY, TCP, UDP } from '../harness.ts';
import type { ProxyProcess } from '../proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

describe('seen from outside', () => {
  let environment: Environment;
  let proxy: ProxyProcess;

  before(async () => {
    environment = await Environment.create();
    proxy = await environment.startProxy();
  });

  after(() => environment.remove());

  const get = (url: string) => environment.node.call('httpGet', { url });

  test('/healthz is served to the outside, everything else on loopback only', async () => {
    const health = await environment.outside.call('httpGet', { url: `http://${NODE_ADDRESS}:10256/healthz` });
    assert.equal(health.status, 200);
    assert.equal((await get('http://127.0.0.1:10249/proxyMode')).body, 'userspace');
    assert.equal((await get('http://127.0.0.1:10249/nothing')).status, 404);
    await assert.rejects(environment.outside.call('httpGet', { url: `http://${NODE_ADDRESS}:10249/metrics` }));
  });

  test('connections, bytes, retries and failures are counted per Service port', async () => {
    const tcp = { name: 'tcp', port: 80, target: TCP.echo };
    const refusing = { name: 'refusing', port: 81, target: NOBODY };
    const udp = { name: 'udp', port: 53, target: UDP['udp-echo'], protocol: 'UDP' } as const;
    const service = await environment.serve({ name: 'counted', ports: [tcp, refusing, udp], endpoints: POD_ADDRESSES });
    const { connection } = await environment.client.call('open', service);
    await environment.client.call('write', { connection, text: 'twelve bytes' });
    await environment.client.call('read', { connection, bytes: 12 });
    const { socket } = await environment.client.call('udpOpen', {});
    await environment.client.call('udpEcho', { socket, host: service.host, port: 53, bytes: 1000 });
    const refused = await environment.client.call('open', { host: service.host, port: 81 });
    await environment.client.call('finish', refused);

    const of = (text: string, name: string, port: string, ...labels: string[]) =>
      metric(text, `userspace_proxy_${name}`, 'service="counted"', `port="${port}"`, ...labels);
    const text = await environment.metricsText();
    assert.equal(of(text, 'connections_total', 'tcp'), 1);
    assert.equal(of(text, 'connections_active', 'tcp'), 1);
    assert.equal(of(text, 'received_bytes_total', 'tcp'), 12);
    assert.equal(of(text, 'sent_bytes_total', 'tcp'), 12);
    assert.equal(of(text, 'connections_total', 'udp'), 1);
    assert.equal(of(text, 'received_bytes_total', 'udp'), 1000);
    assert.equal(of(text, 'sent_bytes_total', 'udp'), 1000);
    assert.equal(of(text, 'connect_retries_total', 'refusing'), 3);
    assert.equal(of(text, 'connect_failures_total', 'refusing', 'reason="refused"'), 4);

    await environment.client.call('end', { connection });
    await waitFor('the connection is no longer active', async () => {
      return of(await environment.metricsText(), 'connections_active', 'tcp') === 0;
    });
    environment.manifests.remove('counted.yaml');
    await waitFor('the series of a removed Service are gone', async () => {
      return !(await environment.metricsText()).includes('service="counted"');
    });
  });

  test("syncs are measured under kube-proxy's names", async () => {
    const count = async () =>
      metric(await environment.metricsText(), 'kubeproxy_sync_proxy_rules_duration_seconds_count');
    const before = await count();
    await environment.serve({ name: 'one-more', ports: [{ port: 80, target: TCP.name }], endpoints: POD_ADDRESSES });
    await waitFor('another sync is counted', async () => (await count()) > before);
  });

  test('the log is one JSON object per line', () => {
    assert.ok(proxy.log.length > 0);
    for (const line of proxy.log) assert.equal(typeof line.level, 'string', JSON.stringify(line));
  });
});

describe('servers that are not wanted or cannot listen', () => {
  let environment: Environment;

  before(async () => {
    environment = await Environment.create();
  });

  after(() => environment.remove());

  test('an empty address switches the health and metrics servers off', async () => {
    environment.write({
      name: 'web',
      clusterIP: '10.96.7.1',
      ports: [{ port: 80, target: TCP.name }],
      endpoints: POD_ADDRESSES,
    });
    const proxy = await environment.startProxy({
      args: ['--healthz-bind-address', '', '--metrics-bind-address', ''],
      ready: async () => (await environment.iptables.rules('KUBE-PORTALS-CONTAINER')).length === 1,
    });
    for (const port of [10_249, 10_256]) {
      await assert.rejects(environment.node.call('request', { host: '127.0.0.1', port }), { code: 'ECONNREFUSED' });
    }
    await environment.stopProxy(proxy);
  });
});
