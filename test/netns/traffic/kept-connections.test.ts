import assert from 'node:assert/strict';
import { afterEach, before, beforeEach, describe, test } from 'node:test';
import { Agent } from '../agent.ts';
import { isFast, metric, PEERS, type Served, TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR, Iptables } from '../iptables.ts';
import { PROGRAM, ProxyProcess } from '../proxy.ts';
import { BRIDGE_ADDRESS, CLIENT_ADDRESS, type Namespace, NODE_ADDRESS, OTHER_POD, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const MIB = 1 << 20;
/** Of the proxy's own connections, and so of their entries in connection tracking. */
const MARK = '0x2000';
const CLIENT = `${CLIENT_ADDRESS}@pod-1`;
const NODE = `${BRIDGE_ADDRESS}@pod-1`;

describe(`connections whose endpoints see the client, on iptables-${FLAVOUR}`, { timeout: 900_000 }, () => {
  const environment = testEnvironment('fresh');
  let other: { readonly node: Namespace; readonly pod: Namespace };

  before(async () => {
    other = await environment.topology.addNode();
    const agent = new Agent(other.pod, 'pod-b');
    for (const mode of ['peer', 'udp-peer'] as const) await agent.serve(TCP.peer, mode);
    // An endpoint that refuses.
    await environment.pods[2].call('unlisten', { port: TCP.peer });
  });

  const serve = (name: string, endpoints: readonly string[] = [POD_ADDRESSES[0]]) =>
    environment.serve({ name, ports: PEERS, endpoints });

  const ask = (service: Served, from = environment.client, timeoutMs?: number) =>
    environment.outcomes(from, service.host, service.port, timeoutMs);

  /** The proxy's entries in connection tracking. */
  async function entries(...more: readonly string[]): Promise<string[]> {
    const { stdout } = await environment.topology.node.run(['conntrack', '-L', '--mark', MARK, ...more]);
    return stdout.split('\n').filter(Boolean);
  }

  test('endpoints that refuse or are silent are passed over, and the next one sees the client', async () => {
    await environment.startProxy();
    const refusing = await serve('refusing', [POD_ADDRESSES[2], POD_ADDRESSES[0]]);
    assert.deepEqual(await ask(refusing), [CLIENT], 'over TCP and UDP');
    const second = new Iptables(environment.topology.pods[1]);
    await second.must('-A INPUT -s 10.244.1.0/24 -j DROP');
    const silent = await serve('silent', [POD_ADDRESSES[1], POD_ADDRESSES[0]]);
    const { names, failures } = await environment.client.call('requests', { ...target(silent), count: 4 });
    await second.must('-F INPUT');
    assert.deepEqual([names, failures], [{ [CLIENT]: 4 }, {}]);
    const metrics = await environment.metricsText();
    for (const name of ['refusing', 'silent']) {
      assert.ok(metric(metrics, 'userspace_proxy_connect_retries_total', `service="${name}"`) > 0, name);
    }
  });

  const target = ({ host, port }: Served) => ({ host, port });

  test('large transfers are whole, both ways', async () => {
    await environment.startProxy();
    for (const [mode, way] of [
      ['sink', 'upload'],
      ['source', 'download'],
    ] as const) {
      const ports = [{ port: 80, target: TCP[mode] }];
      const service = await environment.serve({ name: mode, ports, endpoints: [POD_ADDRESSES[0]] });
      const { intact } = await environment.client.call(way, { ...target(service), bytes: 16 * MIB });
      assert.ok(intact, way);
      const { connections } = await environment.pods[0].call('seen', { port: TCP[mode] });
      assert.match(connections.at(-1)?.remote ?? '', new RegExp(`^${CLIENT_ADDRESS}:`));
    }
  });

  test("a client's own connection to the endpoint, from the port that it asks the Service from, works too", async () => {
    await environment.startProxy();
    const ports = [{ port: 80, target: TCP.echo }];
    const service = await environment.serve({ name: 'echo', ports, endpoints: [POD_ADDRESSES[0]] });
    const { client, pods } = environment;
    const direct = { host: POD_ADDRESSES[0], port: TCP.echo };
    for (const [localPort, order] of [
      [45_001, [direct, target(service)]],
      [45_002, [target(service), direct]],
    ] as const) {
      const opened: number[] = [];
      for (const to of order) {
        const { connection } = await client.call('open', { ...to, localPort });
        opened.push(connection);
        for (const each of opened) {
          await client.call('write', { connection: each, text: 'hello' });
          assert.equal(await client.call('read', { connection: each, bytes: 5 }), 'hello');
        }
      }
      const { connections } = await pods[0].call('seen', { port: TCP.echo });
      const clients = connections.slice(-2).map(({ remote }) => remote.split(':')[0]);
      assert.deepEqual(clients, [CLIENT_ADDRESS, CLIENT_ADDRESS]);
      for (const connection of opened) await client.call('reset', { connection });
    }
  });

  test('a client whose port comes round reaches an endpoint that still remembers it, from any local port', async () => {
    await environment.startProxy();
    const { client, node } = environment;
    const service = await environment.serve({ name: 'again', endpoints: [POD_ADDRESSES[0]] });
    // The endpoint closes first. About every second one then refuses a first packet from another local port.
    for (let localPort = 50_001; localPort < 50_020; localPort += 2) {
      const ask = () => client.call('request', { ...target(service), localPort });
      // The proxy itself may have it.
      const listen = { port: localPort, mode: 'sink', name: 'taken', host: '0.0.0.0' } as const;
      await node.call('listenTcp', listen).catch(() => {});
      assert.equal((await ask()).name, 'pod-1');
      await node.call('unlisten', { port: localPort });
      assert.equal((await ask()).name, 'pod-1');
    }
    const count = await environment.metricsText();
    assert.equal(metric(count, 'userspace_proxy_connect_failures_total', 'service="again"'), 0);
  });

  test('an open connection goes on while its endpoint is drained', async () => {
    await environment.startProxy();
    const ports = [{ port: 80, target: TCP.echo }];
    const service = await environment.serve({ name: 'echo', ports, endpoints: [POD_ADDRESSES[0]] });
    const { client } = environment;
    const { connection } = await client.call('open', target(service));
    const drain = ['drain', `${POD_ADDRESSES[0]}:${TCP.echo}`, '--control-socket', environment.proxy.controlSocket];
    await environment.topology.node.output([PROGRAM, ...drain]);
    await environment.until(client, service.host, service.port, ['ECONNREFUSED', 'but over UDP', 'timeout']);
    await client.call('write', { connection, text: 'hello' });
    assert.equal(await client.call('read', { connection, bytes: 5 }), 'hello');
  });

  test('connections and flows go through an upgrade, and new ones are kept after it', { skip: !isFast }, async () => {
    const old = await environment.startProxy();
    const peers = await serve('peers');
    const ports = [
      { name: 'tcp', port: 80, target: TCP.echo },
      { name: 'udp', port: 80, target: UDP['udp-peer'], protocol: 'UDP' as const },
    ];
    const service = await environment.serve({ name: 'echo', ports, endpoints: [POD_ADDRESSES[0]] });
    const { client } = environment;
    const { connection } = await client.call('open', target(service));
    const { socket } = await client.call('udpOpen', {});
    const askFlow = async () => (await client.call('udpAsk', { socket, ...target(service), text: 'who' }))?.text;
    assert.equal(await askFlow(), CLIENT);
    await waitFor('it to say so', () => old.lines({ msg: 'Started' })[0]);
    old.kill('SIGHUP');
    const handedOver = () => old.lines({ msg: 'Handed over to the successor' })[0];
    const { pid } = await waitFor('the upgrade', handedOver).catch((error: Error) => {
      throw new Error(`${error.message}\n${old.tail()}`);
    });
    try {
      await waitFor('the new one to serve', () => old.lines({ msg: 'Took over from the predecessor' })[0]);
      await client.call('write', { connection, text: 'hello' });
      assert.equal(await client.call('read', { connection, bytes: 5 }), 'hello');
      assert.equal(await askFlow(), CLIENT);
      assert.deepEqual(await ask(peers), [CLIENT]);
    } finally {
      // It has the standard streams of the old one, whose end is waited for.
      process.kill(Number(pid), 'SIGTERM');
    }
  });

  test('a crash leaves no connection behind, --cleanup no entry, and the next proxy keeps addresses', async () => {
    await environment.startProxy();
    const peers = await serve('peers');
    const { client } = environment;
    const { connection } = await client.call('open', target(peers));
    assert.deepEqual(await ask(peers), [CLIENT]);
    assert.match((await entries('-p', 'tcp')).join('\n'), / ESTABLISHED .*dst=10\.244\.1\.20 /);
    environment.proxy.kill('SIGKILL');
    await environment.proxy.exited();
    await client.call('finish', { connection });
    await waitFor('the connections to end', async () => !(await entries('-p', 'tcp')).join('').includes('ESTABLISHED'));
    await environment.topology.node.output([PROGRAM, '--cleanup', '--iptables-mode', FLAVOUR]);
    assert.deepEqual(await entries(), []);
    await environment.startProxy();
    await environment.until(client, peers.host, peers.port, [CLIENT]);
  });

  describe('a network policy', () => {
    const names = async (from: Agent, service: Served) => {
      const { names: answered } = await from.call('requests', { ...target(service), count: 2 });
      return Object.keys(answered);
    };

    async function letsClientIn(firewall: Iptables, chain: string, service: Served, name: string): Promise<void> {
      const { client, pods } = environment;
      assert.deepEqual(await names(pods[1], service), [`${POD_ADDRESSES[1]}@${name}`]);
      await firewall.must(`-A ${chain} -m conntrack --ctstate ESTABLISHED -j ACCEPT`);
      await firewall.must(`-A ${chain} -p tcp --dport ${TCP.peer} -s ${CLIENT_ADDRESS} -j ACCEPT`);
      await firewall.must(`-A ${chain} -p tcp --dport ${TCP.peer} -j REJECT --reject-with tcp-reset`);
      try {
        assert.deepEqual(await names(client, service), [`${CLIENT_ADDRESS}@${name}`]);
        assert.deepEqual(await names(pods[1], service), []);
      } finally {
        await firewall.must(`-F ${chain}`);
      }
    }

    test('in the pod lets one client in and keeps another out', async () => {
      await environment.startProxy();
      await letsClientIn(new Iptables(environment.topology.pods[0]), 'INPUT', await serve('here'), 'pod-1');
    });

    test("on the way to the pod's interface, at another node, too", async () => {
      await environment.startProxy();
      await letsClientIn(new Iptables(other.node), 'FORWARD', await serve('far', [OTHER_POD.IPv4]), 'pod-b');
    });
  });

  describe('a bridge that iptables does not see', () => {
    const write = (path: string, value: 0 | 1) =>
      environment.topology.node.output(['sh', '-c', `echo ${value} > ${path}`]);
    const seeAll = (value: 0 | 1) => write('/proc/sys/net/bridge/bridge-nf-call-iptables', value);
    const seeOwn = (value: 0 | 1) => write('/sys/class/net/cbr0/bridge/nf_call_iptables', value);
    const warnings = () =>
      environment.proxy.lines({ level: 'warn' }).flatMap(({ msg }) => (/^Endpoints see/.test(msg) ? [msg] : []));
    const obstacle = (bridge: string) =>
      `Endpoints see this node's address instead of the client's, for IPv4 clients: iptables does not see what passes ${bridge}; ` +
      'sysctl net.bridge.bridge-nf-call-iptables=1';
    const over = () => environment.proxy.lines({ msg: 'Endpoints see the addresses of IPv4 clients again' }).length;

    beforeEach(() => seeAll(0));
    afterEach(async () => {
      await seeAll(1);
      await seeOwn(0);
    });

    async function check(): Promise<string | undefined> {
      const args = ['check', '--manifests', environment.manifests.directory, '--iptables-mode', FLAVOUR];
      const program = new ProxyProcess(environment.topology.node, args);
      await program.exited();
      return program.log.map(({ msg }) => msg).find((line) => /^\S+ +clients /.test(line));
    }

    test('makes endpoints see the node, until it is seen, with one warning', async () => {
      await environment.startProxy();
      const peers = await serve('peers');
      assert.deepEqual(await ask(peers), [NODE]);
      assert.match((await check()) ?? '', /^warn {2}clients +endpoints see this node's .*-iptables=1 → /);
      assert.deepEqual(warnings(), [obstacle('bridge cbr0')]);
      await seeAll(1);
      await environment.until(environment.client, peers.host, peers.port, [CLIENT]);
      assert.match((await check()) ?? '', /^ok {4}clients +endpoints can see the addresses of clients/);
      assert.deepEqual([warnings().length, over()], [1, 1]);
    });

    test('may come and go while the proxy runs, and counts while something is connected to it', async () => {
      const { node } = environment.topology;
      await seeOwn(1);
      await environment.startProxy();
      const peers = await serve('peers');
      assert.deepEqual(await ask(peers), [CLIENT]);
      await node.ip('link add br9 type bridge', 'link add veth9 type veth peer name veth9p', 'link set br9 up');
      await node.ip('link set veth9 master br9');
      await environment.until(environment.client, peers.host, peers.port, [NODE]);
      assert.deepEqual(warnings(), [obstacle('bridge br9')]);
      await node.ip('link del veth9');
      await environment.until(environment.client, peers.host, peers.port, [CLIENT]);
      assert.equal(over(), 1);
      await node.ip('link del br9');
    });
  });

  test('`explain` says whose address an endpoint sees', async () => {
    await environment.startProxy();
    const nodePort = environment.nodePort();
    const ports = [{ port: 80, target: TCP.peer, nodePort }];
    const service = await environment.serve({ name: 'web', ports, endpoints: [POD_ADDRESSES[0]] });
    const explain = async (to: string, from?: string) => {
      const socket = ['--control-socket', environment.proxy.controlSocket];
      const args = ['explain', to, ...(from === undefined ? [] : ['--from', from]), ...socket];
      const text = await environment.topology.node.output([PROGRAM, ...args]);
      const { endpointSees } = JSON.parse(await environment.topology.node.output([PROGRAM, ...args, '-o', 'json']));
      return [text.split('\n')[1], endpointSees.address];
    };
    assert.deepEqual(await explain(`${service.host}:80`, CLIENT_ADDRESS), [
      "The endpoint sees the client's address.",
      'client',
    ]);
    assert.deepEqual(await explain(`${NODE_ADDRESS}:${nodePort}`, CLIENT_ADDRESS), [
      "The endpoint sees this node's address, because externalTrafficPolicy is Cluster.",
      'node',
    ]);
    assert.deepEqual(await explain(`${service.host}:80`), [
      "The endpoint sees this node's address, because the client is this node.",
      'node',
    ]);
  });
});
