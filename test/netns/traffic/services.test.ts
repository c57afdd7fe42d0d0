import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Agent } from '../agent.ts';
import { metric, NOBODY, type Served, TCP, testEnvironment, UDP } from '../harness.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

/** Far less than the minute for which the kernel keeps the port of a closed connection (TIME_WAIT). */
const REUSE_MS = 30_000;
const PORT_RANGE = '/proc/sys/net/ipv4/ip_local_port_range';

/*
 * What an engine does is proven in test/compliance/data-plane/; here is what needs the kernel's NAT or the whole
 * program.
 */
describe('Services through the whole program', () => {
  const environment = testEnvironment({});

  test('clients that close first do not use up local ports: 40 connections with 20 ports', async () => {
    const ports = [{ port: 80, target: TCP.sink }];
    const service = await environment.serve({ name: 'sink', ports, endpoints: [POD_ADDRESSES[0]] });
    const { client } = environment;
    const { node } = environment.topology;
    const range = await node.output(['cat', PORT_RANGE]);
    const setRange = (text: string) => node.output(['sh', '-c', `echo "${text}" > ${PORT_RANGE}`]);
    // A client is reset while all ports have been used within the last second.
    const isServed = async () => {
      try {
        const { connection } = await client.call('open', service);
        await client.call('end', { connection });
        return (await client.call('finish', { connection })).text !== '';
      } catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ECONNRESET') return false;
        throw error;
      }
    };
    await setRange('50000 50019');
    try {
      for (let i = 1; i <= 40; i++) await waitFor(`connection ${i} of 40`, isServed, REUSE_MS);
    } finally {
      await setRange(range.trim());
    }
  });

  test('datagrams of 0 to 65,507 bytes pass intact in both directions, in as many fragments as they need', async () => {
    const ports = [{ port: 53, target: UDP['udp-echo'], protocol: 'UDP' }] as const;
    const { host } = await environment.serve({ name: 'udp', ports });
    for (const bytes of [0, 1, 512, 1471, 1472, 1473, 4096, 4097, 9000, 65_506, 65_507]) {
      const { socket } = await environment.client.call('udpOpen', {});
      const { intact, from } = await environment.client.call('udpEcho', { socket, host, port: 53, bytes });
      assert.ok(intact, `${bytes} bytes`);
      assert.equal(from, `${host}:53`);
      await environment.client.call('udpClose', { socket });
    }
  });

  // As statsd's clients do. Each packet keeps what connection tracking has of the flow (kubernetes#139628).
  test('a UDP sender that never pauses, and that nobody answers, reaches the new endpoint of a Service that had none', async (context) => {
    const [port, silent] = [8125, 8090];
    const ports = [{ port, target: silent, protocol: 'UDP' }] as const;
    const [first, second] = environment.pods;
    for (const pod of [first, second]) await pod.call('listenUdp', { port: silent, mode: 'udp-silent', name: '' });
    const service = await environment.serve({ name: 'statsd', ports, endpoints: [POD_ADDRESSES[0]] });
    const countOf = async (pod: Agent) => (await pod.call('seen', { port: silent })).datagrams.length;
    const { socket } = await environment.client.call('udpOpen', {});
    await environment.client.call('startUdpStream', { socket, host: service.host, port, everyMs: 5 });
    await waitFor('the first endpoint gets some', async () => (await countOf(first)) > 10);
    environment.write({ ...service, endpoints: [] });
    await waitFor('nobody gets any', async () => {
      const before = await countOf(first);
      await new Promise((resolve) => setTimeout(resolve, 100));
      return (await countOf(first)) === before;
    });
    environment.write({ ...service, endpoints: [POD_ADDRESSES[1]] });
    const begun = performance.now();
    await waitFor('the new endpoint gets some', async () => (await countOf(second)) > 0);
    const recoveryMs = performance.now() - begun;
    context.diagnostic(`${recoveryMs.toFixed(0)} ms after the change`);
    assert.ok(recoveryMs < 5_000, `${recoveryMs} ms`);
    await environment.client.call('udpClose', { socket });
    for (const pod of [first, second]) await pod.call('unlisten', { port: silent });
  });

  test('with ClientIP affinity each client keeps its endpoint, at the ClusterIP and the NodePort', async () => {
    const nodePort = environment.nodePort();
    const ports = [{ port: 80, target: TCP.name, nodePort }];
    const service = await environment.serve({ name: 'sticky', affinitySeconds: 600, ports });
    /** The endpoints that answered six requests in a row. */
    const answering = async (agent: Agent, target: Pick<Served, 'host' | 'port'>) => {
      const { names, failures } = await agent.call('requests', { ...target, count: 6 });
      assert.deepEqual(failures, {});
      return Object.keys(names);
    };
    const atNode = { host: NODE_ADDRESS, port: nodePort };
    const mine = await answering(environment.client, service);
    const theirs = await answering(environment.pods[0], service);
    assert.deepEqual([mine.length, theirs.length], [1, 1]);
    assert.notDeepEqual(mine, theirs);
    assert.deepEqual(await answering(environment.client, atNode), mine);
    assert.deepEqual(await answering(environment.pods[0], service), theirs);
    assert.equal((await answering(environment.outside, atNode)).length, 1);
  });

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
    const service = await environment.serve({ name: 'counted', ports: [tcp, refusing, udp] });
    const { connection } = await environment.client.call('open', service);
    await environment.client.call('write', { connection, text: 'twelve bytes' });
    await environment.client.call('read', { connection, bytes: 12 });
    const { socket } = await environment.client.call('udpOpen', {});
    await environment.client.call('udpEcho', { socket, host: service.host, port: 53, bytes: 1000 });
    const refused = environment.client.call('open', { host: service.host, port: 81 });
    // The reset may come before the client has noticed that it is connected.
    await refused.then((connection) => environment.client.call('finish', connection)).catch(isReset);

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
    await environment.serve({ name: 'one-more' });
    await waitFor('another sync is counted', async () => (await count()) > before);
  });

  test('the log is one JSON object per line', () => {
    assert.ok(environment.proxy.log.length > 0);
    for (const line of environment.proxy.log) assert.equal(typeof line.level, 'string', JSON.stringify(line));
  });
});

function isReset(error: unknown): void {
  assert.match(String(error), /ECONNRESET/);
}
