import assert from 'node:assert/strict';
import { afterEach, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Agent } from '../agent.ts';
import { NAMING, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { type SliceEndpoint, serviceObjects, sliceObject } from '../manifests.ts';
import type { Outcome } from '../programs/outcomes.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

const HERE = 'node-a';
const ELSEWHERE = 'node-b';
const DRAIN_MS = 1_000;
const LOAD_BALANCER_IP = '203.0.113.10';
const ARGS = [
  ...['--hostname-override', HERE, '--cluster-cidr', '10.244.0.0/16'],
  ...['--endpoint-drain-timeout', `${DRAIN_MS}ms`],
];

/** A Service whose endpoints say who they are, and its EndpointSlice. */
function objects(
  name: string,
  { clusterIP, nodePort, ...spec }: { clusterIP: string; nodePort?: number; [field: string]: unknown },
  endpoints: readonly SliceEndpoint[],
  loadBalancerIPs: readonly string[] = [],
): object[] {
  const ports = NAMING.map((port) => ({ ...port, ...(nodePort !== undefined && { nodePort }) }));
  const service = { name, clusterIP, ports, loadBalancerIPs, spec: { type: 'LoadBalancer', ...spec } };
  return [...serviceObjects(service), sliceObject(name, NAMING, endpoints)];
}

const [LOCAL, REMOTE] = [
  { address: POD_ADDRESSES[0], nodeName: HERE },
  { address: POD_ADDRESSES[1], nodeName: ELSEWHERE },
];

describe(`what a Service asks for, on iptables-${FLAVOUR}`, { timeout: 900_000 }, () => {
  const environment = testEnvironment();

  before(async () => {
    // Each row asks several times.
    await environment.topology.node.refuseAtAnyRate();
    await environment.startProxy({ args: ARGS });
  });
  afterEach(() => {
    environment.manifests.clear();
  });

  async function expect(rows: readonly (readonly [Agent, string, number, readonly Outcome[]])[]): Promise<void> {
    for (const [from, host, port, outcomes] of rows) {
      const timeoutMs = outcomes.includes('timeout') ? 1_000 : PATIENCE_MS;
      const seen = await environment.outcomes(from, host, port, timeoutMs);
      assert.deepEqual(seen, outcomes, `from ${from.name} to ${host}:${port}`);
    }
  }

  test('externalTrafficPolicy Local: from outside to pods of this node, from inside to all', async () => {
    const [clusterIP, nodePort, healthCheckNodePort] = [environment.clusterIP(), 30_180, 30_181];
    const spec = { clusterIP, nodePort, healthCheckNodePort, externalTrafficPolicy: 'Local' };
    const write = (...endpoints: SliceEndpoint[]) =>
      environment.manifests.write('external.yaml', objects('external', spec, endpoints, [LOAD_BALANCER_IP]));
    const { outside, client, node } = environment;
    const check = async () => {
      const url = `http://${NODE_ADDRESS}:${healthCheckNodePort}/`;
      const { status: code, body } = await outside.call('httpGet', { url });
      return [code, JSON.parse(body).localEndpoints];
    };
    write(LOCAL, REMOTE);
    await environment.until(client, clusterIP, 80, ['pod-1', 'pod-2']);
    await expect([
      [outside, NODE_ADDRESS, nodePort, ['pod-1']],
      [outside, LOAD_BALANCER_IP, 80, ['pod-1']],
      [client, NODE_ADDRESS, nodePort, ['pod-1', 'pod-2']],
      [node, NODE_ADDRESS, nodePort, ['pod-1', 'pod-2']],
    ]);
    assert.deepEqual(await check(), [200, 1]);

    write(REMOTE);
    await environment.until(outside, NODE_ADDRESS, nodePort, ['timeout']);
    await environment.until(client, clusterIP, 80, ['pod-2']);
    await expect([
      [client, NODE_ADDRESS, nodePort, ['pod-2']],
      [node, clusterIP, 80, ['pod-2']],
    ]);
    assert.deepEqual(await check(), [503, 0]);
    const metrics = await environment.metricsText();
    const gauge = 'kubeproxy_sync_proxy_rules_no_local_endpoints_total';
    assert.match(metrics, new RegExp(`${gauge}\\{ip_family="IPv4",traffic_policy="external"\\} 2`));
    assert.match(metrics, new RegExp(`${gauge}\\{ip_family="IPv4",traffic_policy="internal"\\} 0`));
    const series = metrics
      .split('\n')
      .filter((line) => /^userspace_proxy_connections_total\{.*service="external"/.test(line));
    assert.equal(series.length, 2, 'one for each Service port, however many listeners it has');
  });

  test('pods are recognised by their interface where their addresses are unknown', async () => {
    await environment.proxy.stop();
    const [clusterIP, nodePort] = [environment.clusterIP(), environment.nodePort()];
    const spec = { clusterIP, nodePort, externalTrafficPolicy: 'Local' };
    const { outside, client } = environment;
    for (const args of [
      ['--detect-local-mode', 'InterfaceNamePrefix', '--pod-interface-name-prefix', 'cbr'],
      ['--detect-local-mode', 'BridgeInterface', '--pod-bridge-interface', 'cbr0'],
    ]) {
      await environment.startProxy({ args: ['--hostname-override', HERE, ...args] });
      environment.manifests.write('external.yaml', objects('external', spec, [LOCAL, REMOTE]));
      await environment.until(client, NODE_ADDRESS, nodePort, ['pod-1', 'pod-2']);
      await expect([[outside, NODE_ADDRESS, nodePort, ['pod-1']]]);
      await environment.proxy.stop();
    }
    await environment.startProxy({ args: ARGS });
  });

  test('without endpoints everybody is refused at once, and served as soon as there is one', async () => {
    const [clusterIP, nodePort] = [environment.clusterIP(), environment.nodePort()];
    const { outside, client, node } = environment;
    const write = (...endpoints: SliceEndpoint[]) =>
      environment.manifests.write('empty.yaml', objects('empty', { clusterIP, nodePort }, endpoints));
    write();
    await environment.until(client, clusterIP, 80, ['ECONNREFUSED']);
    const rows = (outcome: Outcome) =>
      [client, node, outside].flatMap((from) => [
        [from, clusterIP, 80, [outcome]] as const,
        [from, NODE_ADDRESS, nodePort, [outcome]] as const,
      ]);
    await expect(rows('ECONNREFUSED'));
    write(LOCAL);
    await environment.until(client, clusterIP, 80, ['pod-1']);
    await expect(rows('pod-1'));
    const syncs = () => environment.proxy.lines({ msg: 'Rules are in sync' }).length;
    const before = syncs();
    write({ ...LOCAL, conditions: { ready: false } });
    await environment.until(client, clusterIP, 80, ['ECONNREFUSED']);
    // Until then, an entry of connection tracking leads past the rules whoever gets a port again that was served above.
    await waitFor('these entries to be cleared', () => syncs() > before);
    await expect(rows('ECONNREFUSED'));
  });

  test('a connection outlives an endpoint that terminates, and is reset some time after it has gone', async () => {
    const clusterIP = environment.clusterIP();
    const write = (...endpoints: SliceEndpoint[]) =>
      environment.manifests.write('draining.yaml', objects('draining', { clusterIP }, endpoints));
    const { client } = environment;
    write(LOCAL);
    await environment.until(client, clusterIP, 80, ['pod-1']);
    const { connection } = await client.call('open', { host: clusterIP, port: 80 });
    write({ ...LOCAL, conditions: { ready: false, serving: true, terminating: true } }, REMOTE);
    await environment.until(client, clusterIP, 80, ['pod-2']);
    await sleep(2 * DRAIN_MS);
    assert.deepEqual(await client.call('states', { list: [connection] }), ['open']);
    const gone = performance.now();
    write(REMOTE);
    const { how } = await client.call('finish', { connection });
    assert.equal(how, 'ECONNRESET');
    assert.ok(performance.now() - gone >= DRAIN_MS);
  });

  test('a UDP client that never pauses is served once its Service comes, and follows a change of policy', async () => {
    const clusterIP = environment.clusterIP();
    const write = (spec: { nodePort?: number; internalTrafficPolicy?: string }, ...endpoints: SliceEndpoint[]) =>
      environment.manifests.write('late.yaml', objects('late', { clusterIP, ...spec }, endpoints));
    const { client } = environment;
    const { socket } = await client.call('udpOpen', {});
    const ask = async () => {
      const reply = await client.call('udpAsk', { socket, host: clusterIP, port: 80, text: 'who', timeoutMs: 100 });
      return reply?.text.split(' ')[0];
    };
    assert.equal(await ask(), undefined);
    write({}, LOCAL);
    await waitFor('an answer at the same port', async () => (await ask()) === 'pod-1');
    write({}, REMOTE);
    await waitFor('the other endpoint', async () => (await ask()) === 'pod-2');
    write({ internalTrafficPolicy: 'Local', nodePort: environment.nodePort() }, LOCAL, REMOTE);
    await waitFor('the endpoint of this node', async () => (await ask()) === 'pod-1');
  });
});
