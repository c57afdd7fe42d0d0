import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { Agent } from '../agent.ts';
import { NOBODY, TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { BRIDGE_ADDRESS, NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS } from '../wait.ts';

/** On the node's own interface, and one that is only routed to it. */
const LOCAL_EXTERNAL_IP = '192.168.50.78';
const ROUTED_EXTERNAL_IP = '192.168.50.77';
const LOAD_BALANCER_IP = '203.0.113.10';

const NODE_PORT = 30_080;
const UDP_NODE_PORT = 30_053;

/** `unnumbered`: a pod on an interface of the node that has no address. */
type Place = 'client' | 'node' | 'pod-1' | 'outside' | 'unnumbered';

/** Who must reach what; each row over TCP and UDP. */
const ROWS: readonly (readonly [place: Place, address: string, what: string, nodePort?: 'nodePort'])[] = [
  ['client', '10.96.0.100', 'the ClusterIP'],
  ['node', '10.96.0.100', 'the ClusterIP'],
  ['pod-1', '10.96.0.100', 'the ClusterIP of a Service that it is itself a backend of'],
  ['outside', '10.96.0.100', 'the ClusterIP, when it has a route'],
  ['client', NODE_ADDRESS, 'the NodePort at eth0', 'nodePort'],
  ['client', BRIDGE_ADDRESS, 'the NodePort at the bridge', 'nodePort'],
  ['node', NODE_ADDRESS, 'the NodePort at eth0', 'nodePort'],
  ['node', BRIDGE_ADDRESS, 'the NodePort at the bridge', 'nodePort'],
  ['node', '127.0.0.1', 'the NodePort at loopback', 'nodePort'],
  ['outside', NODE_ADDRESS, 'the NodePort', 'nodePort'],
  ['outside', BRIDGE_ADDRESS, "the NodePort at an address that is not eth0's", 'nodePort'],
  ['client', LOCAL_EXTERNAL_IP, 'an external IP of the node'],
  ['node', LOCAL_EXTERNAL_IP, 'an external IP of the node'],
  ['outside', LOCAL_EXTERNAL_IP, 'an external IP of the node'],
  ['outside', ROUTED_EXTERNAL_IP, 'an external IP that is routed to the node'],
  ['client', ROUTED_EXTERNAL_IP, 'an external IP that no node has'],
  ['node', ROUTED_EXTERNAL_IP, 'an external IP that no node has'],
  ['client', LOAD_BALANCER_IP, 'the load balancer IP'],
  ['node', LOAD_BALANCER_IP, 'the load balancer IP'],
  ['outside', LOAD_BALANCER_IP, 'the load balancer IP'],
  ['unnumbered', '10.96.0.100', 'the ClusterIP'],
  ['unnumbered', NODE_ADDRESS, 'the NodePort at eth0', 'nodePort'],
  ['unnumbered', BRIDGE_ADDRESS, 'the NodePort at the bridge', 'nodePort'],
  ['unnumbered', ROUTED_EXTERNAL_IP, 'an external IP that no node has'],
  ['unnumbered', LOAD_BALANCER_IP, 'the load balancer IP'],
];

for (const bind of ['0.0.0.0', NODE_ADDRESS]) {
  describe(`reaching a Service through iptables-${FLAVOUR} rules, bound to ${bind}`, () => {
    const environment = testEnvironment();
    let places: Record<Place, Agent>;

    before(async () => {
      const { node, outside } = environment.topology;
      places = {
        client: environment.client,
        node: environment.node,
        'pod-1': environment.pods[0],
        outside: environment.outside,
        unnumbered: new Agent(await environment.topology.addUnnumberedPod(), 'unnumbered'),
      };
      await node.ip(`addr add ${LOCAL_EXTERNAL_IP}/24 dev eth0`);
      await outside.ip(`route add ${ROUTED_EXTERNAL_IP}/32 via ${NODE_ADDRESS}`);
      await environment.startProxy({ args: ['--bind-address', bind] });
      await environment.serve({
        name: 'web',
        clusterIP: '10.96.0.100',
        externalIPs: [ROUTED_EXTERNAL_IP, LOCAL_EXTERNAL_IP],
        loadBalancerIPs: [LOAD_BALANCER_IP],
        ports: [
          { name: 'http', port: 80, target: TCP.name, nodePort: NODE_PORT },
          { name: 'dns', port: 53, target: UDP['udp-name'], protocol: 'UDP', nodePort: UDP_NODE_PORT },
        ],
      });
    });

    for (const [place, host, what, nodePort] of ROWS) {
      test(`${place} reaches ${what} over TCP and UDP, and each backend gets an equal share`, async () => {
        const { names, failures } = await places[place].call('requests', {
          host,
          port: nodePort ? NODE_PORT : 80,
          count: 12,
        });
        assert.deepEqual({ names, failures }, { names: { 'pod-1': 4, 'pod-2': 4, 'pod-3': 4 }, failures: {} });
        const flows = await places[place].call('udpFlows', { host, port: nodePort ? UDP_NODE_PORT : 53, count: 6 });
        assert.deepEqual(flows, { 'pod-1': 2, 'pod-2': 2, 'pod-3': 2 });
      });
    }

    for (const from of [BRIDGE_ADDRESS, LOCAL_EXTERNAL_IP]) {
      test(`a process on the node that is bound to ${from} is answered by the address that it asked`, async () => {
        const { name } = await environment.node.call('request', { host: '10.96.0.100', port: 80, from });
        assert.match(name, /^pod-/);
        const { socket } = await environment.node.call('udpOpen', { from });
        for (const [host, port] of [
          ['10.96.0.100', 53],
          [NODE_ADDRESS, UDP_NODE_PORT],
        ] as const) {
          const reply = await environment.node.call('udpAsk', { socket, host, port, text: 'who' });
          assert.equal(reply?.from, `${host}:${port}`);
        }
      });
    }

    test('UDP replies come from the address that was asked', async () => {
      for (const [place, host, port] of [
        ['client', '10.96.0.100', 53],
        ['client', BRIDGE_ADDRESS, UDP_NODE_PORT],
        ['client', NODE_ADDRESS, UDP_NODE_PORT],
        ['outside', ROUTED_EXTERNAL_IP, 53],
        ['outside', NODE_ADDRESS, UDP_NODE_PORT],
        ['node', '127.0.0.1', UDP_NODE_PORT],
      ] as const) {
        const { socket } = await places[place].call('udpOpen', {});
        const reply = await places[place].call('udpAsk', { socket, host, port, text: 'who' });
        assert.equal(reply?.from, `${host}:${port}`, `${place} asked ${host}`);
      }
    });

    test('a pod reaches itself through a Service whose only backend it is', async () => {
      const service = await environment.serve({
        name: 'hairpin',
        ports: [
          { name: 'http', port: 80, target: TCP.name },
          { name: 'dns', port: 53, target: UDP['udp-name'], protocol: 'UDP' },
        ],
        endpoints: [POD_ADDRESSES[0]],
      });
      const reply = await environment.pods[0].call('request', service);
      assert.equal(reply.name, 'pod-1');
      assert.deepEqual(await environment.pods[0].call('udpFlows', { host: service.host, port: 53, count: 2 }), {
        'pod-1': 2,
      });
    });

    test('a backend on the node itself can serve', async () => {
      const port = await environment.node.serve(0, 'name');
      const service = await environment.serve({
        name: 'on-the-node',
        ports: [{ port: 80, target: port }],
        endpoints: [NODE_ADDRESS],
      });
      assert.equal((await environment.client.call('request', service)).name, 'node');
    });

    test('a port of the ClusterIP that the Service does not have is not answered by the Service', async () => {
      await assert.rejects(environment.client.call('request', { host: '10.96.0.100', port: NOBODY, timeoutMs: 300 }));
    });

    test('a ClusterIP, an endpoint and an address of the node may be of 240.0.0.0/4', async () => {
      const { node, outside, pods } = environment.topology;
      const [endpoint, address] = ['241.0.0.11', '240.0.0.10'];
      await pods[0].ip(`addr add ${endpoint}/32 dev eth0`);
      await node.ip(`route add ${endpoint}/32 via ${POD_ADDRESSES[0]}`, `addr add ${address}/32 dev eth0`);
      await outside.ip(`route add ${address}/32 via ${NODE_ADDRESS}`);
      // At this address, to answer from it.
      const served = { port: 0, mode: 'udp-name', name: 'pod-1', host: endpoint } as const;
      const target = await environment.pods[0].call('listenUdp', served);
      const nodePort = environment.nodePort();
      const ports = [
        { name: 'tcp', port: 80, target: TCP.name, nodePort },
        { name: 'udp', port: 80, target, protocol: 'UDP', nodePort } as const,
      ];
      await environment.serve({ name: 'class-e', clusterIP: '240.10.0.1', ports, endpoints: [endpoint] });
      for (const [agent, host, port] of [
        [environment.client, '240.10.0.1', 80],
        [environment.node, '240.10.0.1', 80],
        [environment.outside, address, nodePort],
        [environment.node, address, nodePort],
      ] as const) {
        const attempts = (['tcp', 'udp'] as const).map((protocol) => ({ protocol, host, port }));
        const outcomes = await agent.call('outcomes', { attempts, timeoutMs: PATIENCE_MS });
        assert.deepEqual(outcomes, ['pod-1', 'pod-1'], `${agent.name} at ${host}`);
      }
    });

    if (bind !== '0.0.0.0') {
      test('nothing listens at other addresses of the node', async () => {
        const port = await environment.localPort('test/web:http');
        // From the node itself, as to all others local ports are closed.
        const direct = await environment.node.call('request', { host: NODE_ADDRESS, port });
        assert.match(direct.name, /^pod-/);
        for (const [agent, host] of [
          [environment.node, BRIDGE_ADDRESS],
          [environment.client, BRIDGE_ADDRESS],
          [environment.client, NODE_ADDRESS],
        ] as const) {
          await assert.rejects(agent.call('request', { host, port }), { code: 'ECONNREFUSED' });
        }
      });
    }
  });
}
