import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Agent } from '../agent.ts';
import { ApiServer } from '../api-server.ts';
import { TCP, testEnvironment, UDP } from '../harness.ts';
import { serviceObjects, sliceObject } from '../manifests.ts';
import { NODE_ADDRESS, OUTSIDE_ADDRESS, POD_ADDRESSES } from '../topology.ts';

const [POD, OTHER_POD, THIEF] = POD_ADDRESSES;
const KUBELET = 10_250;
const SSH = 2_222;
/** Nobody has it. */
const FREE = '203.0.113.9';

/** Whoever may write a Service chooses its external IPs (CVE-2020-8554). */
describe('the external IPs of a tenant', () => {
  const environment = testEnvironment();
  let api: ApiServer;
  let apiPort: number;

  before(async () => {
    const { node, outside, topology } = environment;
    api = await ApiServer.start(topology.outside, OUTSIDE_ADDRESS);
    apiPort = Number(new URL(api.url).port);
    for (const port of [SSH, KUBELET]) {
      await outside.serve(port, 'name');
      await node.serve(port, 'name');
      // At this address, to answer from it.
      await node.call('listenUdp', { port, mode: 'udp-name', name: 'node', host: NODE_ADDRESS });
    }
    const victim = { name: 'victim', clusterIP: '10.96.7.1', ports: [{ port: 80, target: TCP.name }] };
    await api.set(
      ...serviceObjects(victim),
      sliceObject('victim', victim.ports, [{ address: POD }, { address: OTHER_POD }]),
    );
    // One for each port, because lines of the log about one Service have a limit.
    for (const port of [TCP.name, TCP.echo, SSH, KUBELET, apiPort]) {
      const name = `thief-${port}`;
      const ports = [
        { name: 'tcp', port, target: TCP.name },
        { name: 'udp', port, target: UDP['udp-name'], protocol: 'UDP' as const },
      ];
      const externalIPs = [POD, OTHER_POD, NODE_ADDRESS, OUTSIDE_ADDRESS, FREE];
      const thief = serviceObjects({ name, clusterIP: environment.clusterIP(), ports, externalIPs });
      await api.set(...thief, sliceObject(name, ports, [{ address: THIEF }]));
    }
    await environment.startProxy({ source: ['--master', api.url, '--hostname-override', 'node-1'] });
    // All but one, at the kubelet's port.
    await environment.waitForRules(FREE, 9);
  });

  const clients = (): readonly Agent[] => [environment.client, environment.node, environment.pods[2]];

  /** Who answers there. */
  async function owner(from: Agent, host: string, port: number): Promise<string> {
    const [tcp] = await from.call('outcomes', { attempts: [{ protocol: 'tcp', host, port }], timeoutMs: 60_000 });
    return tcp as string;
  }

  test('get the connections to an address that nobody has', async () => {
    for (const client of clients()) assert.deepEqual(await environment.outcomes(client, FREE, SSH), ['pod-3']);
  });

  test('do not get those to pods, at whatever port', async () => {
    for (const client of clients()) {
      assert.deepEqual(await environment.outcomes(client, POD, TCP.name), ['pod-1']);
      assert.deepEqual(await environment.outcomes(client, OTHER_POD, TCP.name), ['pod-2']);
      // The Service of the pods does not have this port.
      assert.notEqual(await owner(client, POD, TCP.echo), 'pod-3');
    }
  });

  test('do not get those to programs of this node, nor to the kubelet of another', async () => {
    for (const client of clients()) {
      for (const port of [SSH, KUBELET]) {
        assert.deepEqual(await environment.outcomes(client, NODE_ADDRESS, port), ['node'], `${client.name} ${port}`);
      }
      assert.equal(await owner(client, OUTSIDE_ADDRESS, KUBELET), 'outside');
    }
  });

  test('do not get those to the API server, and the log says of each what keeps it', async () => {
    for (const client of clients()) {
      const { body } = await client.call('httpGet', { url: `${api.url}/livez` });
      assert.equal(body, 'ok', client.name);
    }
    const told = environment.proxy.lines({ msg: 'A part of this Service port is left out' });
    const reasons = new Set(told.map(({ reason }) => reason));
    for (const reason of [
      /endpoint of a Service/,
      /endpoint of another/,
      /program on this node/,
      /kubelet/,
      /API server/,
    ]) {
      assert.ok(
        [...reasons].some((each) => reason.test(String(each))),
        `${reason} in ${[...reasons]}`,
      );
    }
  });

  test('are those of the list alone, where there is one', async () => {
    const [listed, unlisted] = ['203.0.113.10', '198.51.100.10'];
    const ports = [{ name: 'tcp', port: TCP.name, target: TCP.name }];
    const externalIPs = [listed, unlisted];
    await api.set(
      ...serviceObjects({ name: 'limited', clusterIP: environment.clusterIP(), ports, externalIPs }),
      sliceObject('limited', ports, [{ address: THIEF }]),
    );
    await environment.waitForRules(unlisted, 1);
    await environment.proxy.stop();
    const args = ['--external-ip-allow-list', '203.0.113.0/24'];
    await environment.startProxy({ source: ['--master', api.url, '--hostname-override', 'node-1'], args });
    await environment.waitForRules(unlisted, 0);
    for (const client of clients()) {
      assert.equal(await owner(client, listed, TCP.name), 'pod-3', client.name);
    }
  });
});
