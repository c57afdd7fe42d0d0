import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { ApiServer } from '../api-server.ts';
import { metric, PEERS, testEnvironment } from '../harness.ts';
import { serviceObjects, sliceObject } from '../manifests.ts';
import { CLIENT_ADDRESS, NODE_ADDRESS } from '../topology.ts';

const KUBELET = 10_250;
const OF_POD = 9_444;
const POD = { targetRef: { kind: 'Pod', name: 'in-the-network-of-the-node' } };
const LEFT_OUT = 'userspace_proxy_service_parts_left_out_total';

/**
 * The proxy dials endpoints from the node itself, so what one at the node's own address gets comes by loopback: a rule
 * of INPUT that closes a port of the node to pods by their interface does not see them (docs/adr/0033).
 */
describe("endpoints at the node's own address, and a firewall that closes ports of the node to pods", () => {
  const environment = testEnvironment('fresh');
  let api: ApiServer;
  /** Of a program that is no Pod, and the number of a NodePort. */
  let closed: number;

  before(async () => {
    const { node } = environment;
    api = await ApiServer.start(environment.topology.node);
    closed = environment.nodePort();
    for (const port of [closed, KUBELET, OF_POD]) {
      await node.serve(port, 'peer');
      // At this address, to answer from it.
      await node.call('listenUdp', { port, mode: 'udp-peer', name: 'node', host: NODE_ADDRESS });
    }
  });

  /** Closes the ports, starts a proxy, and gives the cluster IPs of Services that lead to them. */
  async function serveBehindFirewall(...args: readonly string[]) {
    for (const protocol of ['tcp', 'udp']) {
      for (const port of [closed, KUBELET]) {
        await environment.iptables.must(`-A INPUT -i cbr0 -p ${protocol} --dport ${port} -j DROP`);
      }
    }
    const to = async (name: string, target: number, more: object = {}, nodePort?: number) => {
      const clusterIP = environment.clusterIP();
      const ports = PEERS.map((port) => ({ ...port, target, ...(nodePort && { nodePort }) }));
      const service = serviceObjects({ name, clusterIP, ports });
      await api.set(...service, sliceObject(name, ports, [{ address: NODE_ADDRESS, ...more }]));
      return clusterIP;
    };
    const services = {
      intruder: await to('intruder', closed),
      byNodePort: await to('by-node-port', closed, {}, closed),
      kubelet: await to('kubelet', KUBELET, POD),
      pod: await to('pod', OF_POD, POD),
    };
    await environment.startProxy({ source: ['--master', api.url, '--hostname-override', 'node-1'], args });
    return services;
  }

  const throughCluster = [`${CLIENT_ADDRESS}@node`];

  test('are not used to get past it, and that of a Pod serves', async () => {
    const { client, node } = environment;
    const { intruder, byNodePort, kubelet, pod } = await serveBehindFirewall();
    for (const clusterIP of [intruder, byNodePort, kubelet]) {
      for (const from of [client, node]) {
        const outcomes = await environment.outcomes(from, clusterIP, 80, 1_000);
        // The kernel limits its answers to refused UDP.
        assert.deepEqual(
          outcomes.filter((one) => !/^ECONNREFUSED$|timeout|UDP/.test(one)),
          [],
          clusterIP,
        );
      }
    }
    assert.deepEqual(await environment.outcomes(client, pod, 80), throughCluster);
    // The firewall goes on to decide.
    for (const port of [closed, KUBELET]) {
      assert.deepEqual(await environment.outcomes(client, NODE_ADDRESS, port, 1_000), ['timeout'], `port ${port}`);
    }
    // Six endpoints, and a NodePort over TCP and UDP at which the program listens that must not be an endpoint.
    assert.equal(metric(await environment.metricsText(), LEFT_OUT, 'ip_family="IPv4"'), 8);
    const told = environment.proxy.lines({ msg: 'A part of this Service port is left out' });
    assert.equal(told.filter(({ reason }) => /--node-endpoint-ports opens it/.test(String(reason))).length, 6);
  });

  test('are out of reach where a rule closes their port to the mark of the proxy', async () => {
    const { client, iptables, node } = environment;
    const { pod } = await serveBehindFirewall();
    for (const protocol of ['tcp', 'udp']) {
      await iptables.must(`-I INPUT -m mark --mark 0x2000/0x2000 -p ${protocol} --dport ${OF_POD} -j REJECT`);
    }
    const outcomes = await environment.outcomes(client, pod, 80, 1_000);
    assert.deepEqual(
      outcomes.filter((one) => one.includes('@')),
      [],
    );
    assert.deepEqual(await environment.outcomes(node, NODE_ADDRESS, OF_POD), [`${NODE_ADDRESS}@node`]);
  });

  test('serve at the ports that a flag names, whatever it says of clients', async () => {
    const { client } = environment;
    const services = await serveBehindFirewall('--node-endpoint-ports', `${closed},${KUBELET}`);
    for (const clusterIP of Object.values(services)) {
      assert.deepEqual(await environment.outcomes(client, clusterIP, 80), throughCluster, clusterIP);
    }
  });
});
