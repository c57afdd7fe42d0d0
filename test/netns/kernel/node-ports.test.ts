import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ServiceView } from '../../../src/model/view.ts';
import { TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { PROGRAM } from '../proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const SSH = 2_222;
const HEALTHZ = 10_256;
const METRICS = 10_249;

describe(`ports of the node itself, with iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment('fresh');

  /** A Service with one endpoint, whose name tells it apart from the others. */
  const service = (name: string, options: { clusterIP?: string; port?: number; nodePort?: number; pod?: number }) => ({
    name,
    clusterIP: options.clusterIP ?? environment.clusterIP(),
    ports: [
      {
        port: options.port ?? 80,
        target: TCP.name,
        ...(options.nodePort !== undefined && { nodePort: options.nodePort }),
      },
    ],
    endpoints: [POD_ADDRESSES[options.pod ?? 0]!],
  });
  const answer = async (host: string, port: number, from = environment.client) =>
    (await from.call('requests', { host, port, count: 1 })).names;
  const isAnsweredBy = (name: string, port: number) =>
    waitFor(`${name} answers at ${port}`, async () => name in (await answer(NODE_ADDRESS, port)));
  const listed = async (name: string) => {
    const list = [PROGRAM, 'list', `test/${name}`, '-o', 'json', `--control-socket=${environment.proxy.controlSocket}`];
    const { services }: { services: readonly ServiceView[] } = JSON.parse(await environment.topology.node.output(list));
    return services.map(({ nodePort, clusterIPs, reason }) => ({ nodePort, clusterIPs, reason }));
  };
  const leftOut = () =>
    environment.proxy
      .lines({ msg: 'A part of this Service port is left out' })
      .map(({ svc, what, reason }) => `${svc} ${what}: ${reason}`)
      .sort();

  test('stay with the program that listens there, until it ends; a Service that has one keeps it', async () => {
    const { node } = environment;
    await node.serve(SSH, 'name');
    const served = service('ssh', { nodePort: SSH });
    environment.write(served);
    environment.write(service('healthz', { nodePort: HEALTHZ }));
    environment.write(service('metrics', { nodePort: METRICS }));
    environment.write(service('own', { clusterIP: NODE_ADDRESS, port: SSH }));
    await environment.startProxy();
    await environment.waitForRules(served.clusterIP, 1);
    for (const from of [environment.client, environment.outside, node]) {
      assert.deepEqual(await answer(NODE_ADDRESS, SSH, from), { node: 1 }, from.name);
    }
    assert.deepEqual(await answer(served.clusterIP, 80), { 'pod-1': 1 }, 'the rest is served');
    const healthz = await environment.outside.call('httpGet', { url: `http://${NODE_ADDRESS}:${HEALTHZ}/healthz` });
    assert.match(healthz.body, /"healthy":true|lastUpdated/);
    assert.match(await environment.metricsText(), /^kubeproxy_/m);
    await waitFor('the lines', () => leftOut().length === 4);
    const program = 'a program on this node listens on that port; stop it, or choose another port';
    const http = "it is an HTTP port of the proxy's own; choose another port";
    assert.deepEqual(leftOut(), [
      `test/healthz NodePort ${HEALTHZ}/TCP: ${http}`,
      `test/metrics NodePort ${METRICS}/TCP: ${http}`,
      `test/own cluster IP ${NODE_ADDRESS}:${SSH}: ${program}`,
      `test/ssh NodePort ${SSH}/TCP: ${program}`,
    ]);
    const reason = `it goes without NodePort ${SSH}/TCP: ${program}`;
    assert.deepEqual(await listed('ssh'), [{ nodePort: 0, clusterIPs: [served.clusterIP], reason }]);

    environment.manifests.remove('own.yaml');
    await node.call('unlisten', { port: SSH });
    await isAnsweredBy('pod-1', SSH);
    await node.serve(SSH, 'name');
    environment.write({ ...served, endpoints: [POD_ADDRESSES[1]!] });
    await isAnsweredBy('pod-2', SSH);
    await environment.proxy.stop();
    await environment.startProxy();
    assert.deepEqual(await answer(NODE_ADDRESS, SSH), { 'pod-2': 1 }, 'its rules say that it has it');
  });

  test('stay with the Service that has them when another wants them, also in the next run', async () => {
    const nodePort = environment.nodePort();
    const clusterIP = environment.clusterIP();
    await environment.startProxy();
    environment.write(service('web', { clusterIP, nodePort, pod: 0 }));
    await environment.waitForRules(clusterIP, 1);
    environment.write(service('later', { clusterIP, nodePort, pod: 1 }));
    const said = { msg: 'Two Service ports claim the same address; one of them goes without it', svc: 'test/later' };
    await waitFor('the conflicts', () => environment.proxy.lines(said).length === 2);
    for (const run of ['first', 'next']) {
      assert.deepEqual(await answer(NODE_ADDRESS, nodePort), { 'pod-1': 1 }, run);
      assert.deepEqual(await answer(clusterIP, 80), { 'pod-1': 1 }, run);
      assert.deepEqual(await listed('web'), [{ nodePort, clusterIPs: [clusterIP], reason: undefined }]);
      const [later] = await listed('later');
      assert.deepEqual([later?.nodePort, later?.clusterIPs], [0, []], run);
      assert.match(later?.reason ?? '', /^it goes without .*: test\/web has it; give one of the two another/);
      if (run === 'next') break;
      await environment.proxy.stop();
      await environment.startProxy();
      await waitFor('the conflicts', () => environment.proxy.lines(said).length === 2);
    }
    environment.manifests.remove('web.yaml');
    await isAnsweredBy('pod-2', nodePort);
    assert.deepEqual((await listed('later'))[0]?.nodePort, nodePort);
  });
});
