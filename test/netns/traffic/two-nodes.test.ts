import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Agent } from '../agent.ts';
import { metric, testEnvironment } from '../harness.ts';
import { Manifests, serviceObjects } from '../manifests.ts';
import { BRIDGE_ADDRESS, NODE_ADDRESS, OUTSIDE_ADDRESS } from '../topology.ts';

const METRICS = 'http://127.0.0.1:10249/metrics';
const PORT = 80;

/**
 * Two nodes, each with a proxy and with an endpoint in its own network whose port is the NodePort's very number: what
 * one proxy sends to the other node's endpoint, the rules there could take for the NodePort again (docs/adr/0019).
 */
describe('endpoints of two nodes with the number of a NodePort', () => {
  const environment = testEnvironment();
  let nodePort: number;
  let clusterIP: string;
  /** What the proxy of the other node is told. */
  let elsewhere: Manifests;

  before(async () => {
    nodePort = environment.nodePort();
    clusterIP = environment.clusterIP();
    elsewhere = new Manifests(environment.temporary('manifests-elsewhere'));
    for (const agent of [environment.node, environment.outside]) {
      await agent.serve(nodePort, 'name');
      await agent.serve(nodePort, 'udp-name');
    }
    tell(environment.manifests, [NODE_ADDRESS, OUTSIDE_ADDRESS]);
    tell(elsewhere, [NODE_ADDRESS, OUTSIDE_ADDRESS]);
    await environment.startProxy();
    await environment.startProxy({
      namespace: environment.topology.outside,
      source: ['--manifests', elsewhere.directory],
      ready: async () => metric(await metrics(environment.outside), SYNCED) > 0,
    });
  });

  const SYNCED = 'kubeproxy_sync_proxy_rules_last_timestamp_seconds';

  function tell(manifests: Manifests, endpoints: readonly string[]): void {
    const both = { port: PORT, target: nodePort, nodePort };
    const ports = [
      { ...both, name: 'tcp' },
      { ...both, name: 'udp', protocol: 'UDP' as const },
    ];
    manifests.write('service.yaml', serviceObjects({ name: 'host', clusterIP, ports, endpoints }));
  }

  async function metrics(agent: Agent): Promise<string> {
    return (await agent.call('httpGet', { url: METRICS }).catch(() => ({ body: '' }))).body;
  }

  /** Of both proxies, since their start. */
  async function carried(): Promise<number> {
    let sum = 0;
    for (const agent of [environment.node, environment.outside]) {
      sum += metric(await metrics(agent), 'userspace_proxy_connections_total');
    }
    return sum;
  }

  /** Who answers so many clients, TCP and UDP; no connection may pass more proxies than `most`. */
  async function asked(client: Agent, host: string, port: number, most: number): Promise<string[]> {
    const count = 6;
    const before = await carried();
    const { names, failures } = await client.call('requests', { host, port, count });
    assert.deepEqual(failures, {});
    const answered = new Set(Object.keys(names));
    for (let i = 0; i < count; i++) {
      const { socket } = await client.call('udpOpen', {});
      const answer = await client.call('udpAsk', { socket, host, port, text: 'who' });
      assert.ok(answer, 'an answer to a datagram');
      answered.add(answer.text.split(' ')[0] as string);
      await client.call('udpClose', { socket });
    }
    const passed = (await carried()) - before;
    assert.ok(passed <= 2 * count * most, `${passed} connections of proxies for ${2 * count} of clients`);
    return [...answered].sort();
  }

  test('each proxy reaches both endpoints, its own among them', async () => {
    assert.deepEqual(await asked(environment.client, clusterIP, PORT, 1), ['node', 'outside']);
    assert.deepEqual(await asked(environment.node, clusterIP, PORT, 1), ['node', 'outside']);
    assert.deepEqual(await asked(environment.outside, clusterIP, PORT, 1), ['node', 'outside']);
    assert.deepEqual(await asked(environment.node, BRIDGE_ADDRESS, nodePort, 1), ['node', 'outside'], 'by NodePort');
  });

  test("packets for an endpoint's own address and port go to that endpoint", async () => {
    assert.deepEqual(await asked(environment.outside, NODE_ADDRESS, nodePort, 0), ['node']);
    assert.deepEqual(await asked(environment.client, OUTSIDE_ADDRESS, nodePort, 0), ['outside']);
    assert.deepEqual(await asked(environment.node, NODE_ADDRESS, nodePort, 0), ['node']);
  });

  test('a proxy that leaves out its own endpoint and dials the other, as earlier versions do, forms no loop', async () => {
    tell(elsewhere, [NODE_ADDRESS]);
    // Until the other proxy takes that address for the NodePort again.
    for (const agent of [environment.client, environment.node]) {
      await environment.until(agent, OUTSIDE_ADDRESS, nodePort, ['node']);
    }
    assert.deepEqual(await asked(environment.client, clusterIP, PORT, 2), ['node']);
    assert.deepEqual(await asked(environment.client, OUTSIDE_ADDRESS, nodePort, 1), ['node']);
    assert.deepEqual(await asked(environment.outside, NODE_ADDRESS, nodePort, 0), ['node']);
  });
});
