import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { before, type TestContext, test } from 'node:test';
import { type Address, parseAddress, parseCidr } from '../../../src/model/address.ts';
import type { ClientFacts, KeptAddresses } from '../../../src/model/client-address.ts';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { backends, endpointAt, type Rig, type RigFactory } from './harness.ts';
import { narrowPorts } from './network.ts';
import { BRIDGE, POD_NETWORKS, type Pod, UPLINK, withPods } from './pods.ts';

const FAMILIES = ['IPv4', 'IPv6'] as const;
type Family = (typeof FAMILIES)[number];

/** At which the pods that serve echo what comes. */
const PORT = 8080;
/** At which nobody listens. */
const NOBODY = 8099;

const EVERYBODY: KeptAddresses = { pods: 'all', others: 'all', clusterIPs: [] };

function addresses(...texts: readonly string[]): readonly Address[] {
  return texts.map((each) => parseAddress(each) as Address);
}

const FACTS: ClientFacts = {
  families: FAMILIES,
  nodeAddresses: addresses(...Object.values(BRIDGE), ...Object.values(UPLINK)),
};

const WITH_POD_NETWORKS: ClientFacts = {
  ...FACTS,
  podCidrs: Object.values(POD_NETWORKS).map((each) => parseCidr(each) as NonNullable<ReturnType<typeof parseCidr>>),
};

interface ServeOptions {
  readonly family?: Family;
  readonly kept?: KeptAddresses;
  readonly protocol?: 'TCP' | 'UDP';
  readonly facts?: ClientFacts;
}

/** A Service port whose endpoints see the addresses of some clients. */
class Kept {
  static #last = 0;
  readonly rig: Rig;
  readonly name: `test/${string}`;
  readonly family: Family;
  readonly port: number;

  private constructor(rig: Rig, name: `test/${string}`, family: Family, port: number) {
    this.rig = rig;
    this.name = name;
    this.family = family;
    this.port = port;
  }

  static async serve(
    rig: Rig,
    endpoints: readonly NamedEndpoint[],
    { family = 'IPv4', kept = EVERYBODY, protocol = 'TCP', facts = FACTS }: ServeOptions = {},
  ): Promise<Kept> {
    rig.plane.knowClients(facts);
    const name = `test/kept-${++Kept.#last}` as const;
    const spec = listenSpec({ name, protocol, family, address: family === 'IPv4' ? '0.0.0.0' : '::', port: 0 });
    const port = await rig.plane.open(spec, { ...backends(endpoints), keptAddresses: kept });
    return new Kept(rig, name, family, port);
  }
}

/** An address and port, as an endpoint reports it. */
function named({ IPv4, IPv6 }: Pod, family: Family, port: number): string {
  return `${family === 'IPv4' ? IPv4 : IPv6}:${port}`;
}

/** Who connected to a pod, or sent a datagram. */
async function seenBy({ agent }: Pod, protocol: 'TCP' | 'UDP' = 'TCP'): Promise<readonly string[]> {
  const { connections, datagrams } = await agent.call('seen', { port: PORT });
  return (protocol === 'TCP' ? connections : datagrams).map(({ remote }) => remote.replace('::ffff:', ''));
}

/** A connection that has had an answer. */
async function connected({ agent }: Pod, host: string, port: number, localPort?: number) {
  const opened = await agent.call('open', { host, port, ...(localPort !== undefined && { localPort }) });
  const { connection } = opened;
  const echo = async (text: string) => {
    await agent.call('write', { connection, text });
    assert.equal(await agent.call('read', { connection, bytes: text.length }), text);
  };
  await echo('hello');
  return { ...opened, echo };
}

async function asked({ agent }: Pod, host: string, port: number, localPort = 0) {
  const opened = await agent.call('udpOpen', { family: host.includes(':') ? 6 : 4, port: localPort });
  const ask = async () => {
    const answer = await agent.call('udpAsk', { socket: opened.socket, host, port, text: 'hello' });
    assert.equal(answer?.text, 'hello');
  };
  await ask();
  return { ...opened, ask };
}

/** The entries of connection tracking that keep an address, as the kernel prints them. */
function keptEntries(...parts: readonly string[]): readonly string[] {
  const lines = readFileSync('/proc/net/nf_conntrack', 'latin1').split('\n');
  return lines.filter((line) => line.includes(' mark=8192 ') && parts.every((part) => line.includes(part)));
}

/** Redirects a Service's address, until the test ends. */
function redirect(t: TestContext, protocol: 'tcp' | 'udp', family: Family, address: string, localPort: number): void {
  const tool = family === 'IPv4' ? 'iptables' : 'ip6tables';
  const to = family === 'IPv4' ? `${BRIDGE.IPv4}:${localPort}` : `[${BRIDGE.IPv6}]:${localPort}`;
  const rule = `PREROUTING -p ${protocol} -d ${address} --dport 80 -j DNAT --to-destination ${to}`.split(' ');
  execFileSync(tool, ['-w', '-t', 'nat', '-A', ...rule]);
  t.after(() => execFileSync(tool, ['-w', '-t', 'nat', '-D', ...rule]));
}

export function clientAddressTests(makeRig: RigFactory): void {
  const pods = withPods();
  before(async () => {
    for (const { agent } of [pods.server, pods.otherServer]) {
      await agent.call('listenTcp', { port: PORT, mode: 'echo', name: '', host: '::' });
      await agent.call('listenUdp', { port: PORT, mode: 'udp-echo', name: '', host: '::' });
    }
    // The first packets on a new link may be lost (neighbour discovery), and with them the port of the first attempt.
    // From the node, too: the port of a flow whose answer comes after its end is taken.
    for (const pod of [pods.server, pods.otherServer]) {
      for (const family of FAMILIES) {
        const socket = connect({ host: pod[family], port: PORT });
        await once(socket, 'connect');
        socket.destroy();
      }
      for (const client of [pods.client, pods.otherClient]) {
        for (const family of FAMILIES) await connected(client, pod[family], PORT);
      }
    }
  });
  let lastClientPort = 41_000;
  /** A port that no other connection has. */
  const clientPort = () => ++lastClientPort;
  const endpoint = (pod: Pod, family: Family = 'IPv4', port = PORT) => endpointAt(pod[family], port);

  for (const family of FAMILIES) {
    test(`${family}: an endpoint sees a client's address and port over TCP`, async (t) => {
      const { port } = await Kept.serve(await makeRig(t), [endpoint(pods.server, family)], { family });
      const { localPort } = await connected(pods.client, BRIDGE[family], port);
      assert.ok((await seenBy(pods.server)).includes(named(pods.client, family, localPort)));
    });

    test(`${family}: and over UDP, for as long as the flow lasts`, async (t) => {
      // An answer that came after the end of its flow would take the port.
      const rig = await makeRig(t, { udpIdleTimeoutMs: 1000 });
      const { port } = await Kept.serve(rig, [endpoint(pods.server, family)], { family, protocol: 'UDP' });
      const { port: localPort, ask } = await asked(pods.client, BRIDGE[family], port);
      await ask();
      const name = named(pods.client, family, localPort);
      assert.equal((await seenBy(pods.server, 'UDP')).filter((each) => each === name).length, 2);
      await waitFor('its entry to go with the flow', () => keptEntries(`dport=${localPort}`).length === 0);
      // Another flow, from the same port.
      await ask();
      assert.equal((await seenBy(pods.server, 'UDP')).filter((each) => each === name).length, 3);
    });

    test(`${family}: for no longer than connection tracking remembers it, whatever that is now`, async (t) => {
      const rig = await makeRig(t, { udpIdleTimeoutMs: 60_000, udpFirstReplyTimeoutMs: 60_000 });
      const { port } = await Kept.serve(rig, [endpoint(pods.server, family)], { family, protocol: 'UDP' });
      const file = '/proc/sys/net/netfilter/nf_conntrack_udp_timeout';
      const before = readFileSync(file, 'latin1');
      t.after(() => writeFileSync(file, before));
      await asked(pods.client, BRIDGE[family], port);
      writeFileSync(file, '1');
      // The engine looks at it every second.
      await waitFor('a client whose entry has ended to be seen', async () => {
        const { port: localPort, ask } = await asked(pods.client, BRIDGE[family], port);
        await waitFor('the end of its entry', () => keptEntries(`dport=${localPort}`).length === 0);
        await ask();
        const name = named(pods.client, family, localPort);
        return (await seenBy(pods.server, 'UDP')).filter((each) => each === name).length === 2;
      });
    });

    test(`${family}: a host outside is seen, too`, async (t) => {
      const { port } = await Kept.serve(await makeRig(t), [endpoint(pods.server, family)], { family });
      const { localPort } = await connected(pods.outside, UPLINK[family], port);
      assert.ok((await seenBy(pods.server)).includes(named(pods.outside, family, localPort)));
    });

    test(`${family}: only some destinations of a client, as the kernel knows them`, async (t) => {
      const rig = await makeRig(t);
      const [internal, external] = family === 'IPv4' ? ['10.96.7.1', '10.96.7.2'] : ['fd00:96::7:1', 'fd00:96::7:2'];
      const kept: KeptAddresses = { pods: 'internal', others: 'external', clusterIPs: addresses(internal) };
      for (const protocol of ['TCP', 'UDP'] as const) {
        const options = { family, protocol, kept, facts: WITH_POD_NETWORKS };
        const { port } = await Kept.serve(rig, [endpoint(pods.server, family)], options);
        const ask = protocol === 'TCP' ? connected : asked;
        const isSeen = async (pod: Pod, host: string) => {
          const localPort = clientPort();
          await ask(pod, host, 80, localPort);
          return (await seenBy(pods.server, protocol)).includes(named(pod, family, localPort));
        };
        const rules = protocol.toLowerCase() as 'tcp' | 'udp';
        for (const address of [internal, external]) redirect(t, rules, family, address, port);
        assert.equal(await isSeen(pods.client, internal), true);
        assert.equal(await isSeen(pods.client, external), false);
        assert.equal(await isSeen(pods.outside, internal), false);
        assert.equal(await isSeen(pods.outside, external), true);
      }
    });
  }

  test('nobody is seen before it is known who is a client, and the node never is', async (t) => {
    const rig = await makeRig(t);
    const spec = listenSpec({ name: 'test/unknown', protocol: 'TCP', address: '0.0.0.0', port: 0 });
    const port = await rig.plane.open(spec, { ...backends([endpoint(pods.server)]), keptAddresses: EVERYBODY });
    const isSeen = async () => {
      const localPort = clientPort();
      await connected(pods.client, BRIDGE.IPv4, port, localPort);
      return (await seenBy(pods.server)).includes(named(pods.client, 'IPv4', localPort));
    };
    assert.equal(await isSeen(), false);
    for (const facts of [
      { ...FACTS, families: ['IPv6'] as const },
      { ...FACTS, nodeAddresses: addresses(pods.client.IPv4) },
    ]) {
      rig.plane.knowClients(facts);
      assert.equal(await isSeen(), false);
    }
    rig.plane.knowClients(FACTS);
    assert.equal(await isSeen(), true);
  });

  test('the next endpoint sees the client, too', async (t) => {
    const rig = await makeRig(t);
    const { name, port } = await Kept.serve(rig, [endpoint(pods.otherServer, 'IPv4', NOBODY), endpoint(pods.server)]);
    for (const localPort of [clientPort(), clientPort()]) {
      await connected(pods.client, BRIDGE.IPv4, port, localPort);
      assert.ok((await seenBy(pods.server)).includes(named(pods.client, 'IPv4', localPort)));
    }
    assert.ok(rig.counters(name).failedRefused > 0);
    assert.deepEqual(keptEntries(`dport=${NOBODY}`), []);
  });

  test('an endpoint that answers late sees the client', async (t) => {
    const rig = await makeRig(t);
    const before = (await seenBy(pods.server)).length;
    const { port } = await Kept.serve(rig, [endpoint(pods.server)]);
    const answers = '-p tcp --tcp-flags SYN,ACK SYN,ACK -j DROP'.split(' ');
    pods.server.run('iptables', '-w', '-A', 'OUTPUT', ...answers);
    const connecting = connected(pods.client, BRIDGE.IPv4, port);
    await waitFor('the first attempt to fail', () => rig.events.dialFailed.length > 0);
    // It is answered later, for the endpoint sends its answer again.
    pods.server.run('iptables', '-w', '-D', 'OUTPUT', ...answers);
    const { echo } = await connecting;
    await echo('again');
    const seen = (await seenBy(pods.server)).slice(before);
    assert.ok(seen.length > 0);
    for (const each of seen) assert.match(each, new RegExp(`^${pods.client.IPv4}:`));
  });

  test('two clients with one port keep their addresses at one endpoint', async (t) => {
    const localPort = clientPort();
    const { port } = await Kept.serve(await makeRig(t), [endpoint(pods.server)]);
    const one = await connected(pods.client, BRIDGE.IPv4, port, localPort);
    const other = await connected(pods.otherClient, BRIDGE.IPv4, port, localPort);
    const seen = await seenBy(pods.server);
    for (const pod of [pods.client, pods.otherClient]) assert.ok(seen.includes(named(pod, 'IPv4', localPort)));
    await one.echo('one');
    await other.echo('other');
  });

  test('a port outside of the range of this node is seen', async (t) => {
    const { port } = await Kept.serve(await makeRig(t), [endpoint(pods.server)]);
    await connected(pods.client, BRIDGE.IPv4, port, 1234);
    assert.ok((await seenBy(pods.server)).includes(named(pods.client, 'IPv4', 1234)));
  });

  test('a client that uses its port again is seen with it again', async (t) => {
    const localPort = clientPort();
    const { port } = await Kept.serve(await makeRig(t), [endpoint(pods.server)]);
    const name = named(pods.client, 'IPv4', localPort);
    for (let round = 1; round <= 3; round++) {
      const { connection } = await connected(pods.client, BRIDGE.IPv4, port, localPort);
      assert.equal((await seenBy(pods.server)).filter((each) => each === name).length, round);
      await pods.client.agent.call('reset', { connection });
      await waitFor('the end of the connection', () =>
        keptEntries(`dport=${localPort}`).every((each) => each.includes('CLOSE')),
      );
    }
  });

  test("a client's own connection to the endpoint from the same port goes on beside", async (t) => {
    const localPort = clientPort();
    const { port } = await Kept.serve(await makeRig(t), [endpoint(pods.server)]);
    const direct = await connected(pods.client, pods.server.IPv4, PORT, localPort);
    const before = (await seenBy(pods.server)).length;
    const through = await connected(pods.client, BRIDGE.IPv4, port, localPort);
    const [seen = ''] = (await seenBy(pods.server)).slice(before);
    assert.match(seen, new RegExp(`^${pods.client.IPv4}:`));
    assert.notEqual(seen, named(pods.client, 'IPv4', localPort));
    for (const text of ['one', 'two']) {
      await direct.echo(text);
      await through.echo(text);
    }
  });

  test('a client that is the endpoint sees the node', async (t) => {
    const rig = await makeRig(t);
    const { port } = await Kept.serve(rig, [endpoint(pods.server)]);
    const udp = await Kept.serve(rig, [endpoint(pods.server)], { protocol: 'UDP' });
    for (const protocol of ['TCP', 'UDP'] as const) {
      const before = (await seenBy(pods.server, protocol)).length;
      if (protocol === 'TCP') await connected(pods.server, BRIDGE.IPv4, port);
      else await asked(pods.server, BRIDGE.IPv4, udp.port);
      const [seen = ''] = (await seenBy(pods.server, protocol)).slice(before);
      assert.match(seen, new RegExp(`^${BRIDGE.IPv4}:`));
    }
  });

  for (const family of FAMILIES) {
    test(`${family}: an endpoint at an address of the node sees the client`, async (t) => {
      const rig = await makeRig(t);
      for (const address of [BRIDGE[family], UPLINK[family]]) {
        const seen: string[] = [];
        const server = createServer((socket) => {
          seen.push(`${socket.remoteAddress}:${socket.remotePort}`);
          socket.on('error', () => {}).pipe(socket);
        });
        t.after(() => server.close());
        await once(server.listen({ host: address, port: 0 }), 'listening');
        const { port } = await Kept.serve(rig, [endpointAt(address, (server.address() as AddressInfo).port)], {
          family,
        });
        const { connection, localPort } = await connected(pods.client, BRIDGE[family], port);
        assert.deepEqual(seen, [named(pods.client, family, localPort)]);
        await pods.client.agent.call('reset', { connection });
      }
    });
  }

  test('the end of a stream and a reset pass both ways', async (t) => {
    const localPort = clientPort();
    const { port } = await Kept.serve(await makeRig(t), [endpoint(pods.server)]);
    const { agent } = pods.client;
    const ending = await connected(pods.client, BRIDGE.IPv4, port);
    await agent.call('end', { connection: ending.connection });
    assert.match((await agent.call('finish', { connection: ending.connection })).how, /^(ended|closed)$/);
    const reset = await connected(pods.client, BRIDGE.IPv4, port, localPort);
    await agent.call('reset', { connection: reset.connection });
    await waitFor('the endpoint to see the reset', async () => {
      const { connections } = await pods.server.agent.call('seen', { port: PORT });
      return connections.some(({ remote, outcome }) => remote.endsWith(`:${localPort}`) && outcome === 'reset');
    });
    const broken = await connected(pods.client, BRIDGE.IPv4, port);
    await pods.server.agent.call('unlisten', { port: PORT });
    assert.equal((await agent.call('finish', { connection: broken.connection })).how, 'ECONNRESET');
    await pods.server.agent.call('listenTcp', { port: PORT, mode: 'echo', name: '', host: '::' });
    await pods.server.agent.call('listenUdp', { port: PORT, mode: 'udp-echo', name: '', host: '::' });
  });

  /** The client has ended its direction, and connection tracking takes the connection for closed. */
  async function takenForClosed(t: TestContext, rig: Rig, localPort: number) {
    const held: Socket[] = [];
    const server = createServer({ allowHalfOpen: true }, (socket) => held.push(socket.resume().on('error', () => {})));
    t.after(() => server.close());
    await once(server.listen({ host: BRIDGE.IPv4, port: 0 }), 'listening');
    const { port: serverPort } = server.address() as AddressInfo;
    const { port } = await Kept.serve(rig, [endpointAt(BRIDGE.IPv4, serverPort)]);
    const { agent } = pods.client;
    const { connection } = await agent.call('open', { host: BRIDGE.IPv4, port, localPort });
    await agent.call('write', { connection, text: 'hello' });
    await waitFor('the question', () => held[0]?.bytesRead === 5);
    // Before connection tracking sees them, as if they were lost.
    const acknowledgements = `OUTPUT -p tcp --sport ${serverPort} --tcp-flags ALL ACK -j DROP`.split(' ');
    execFileSync('iptables', ['-w', '-t', 'raw', '-A', ...acknowledgements]);
    await agent.call('end', { connection });
    await waitFor('the end', () => held[0]?.readableEnded);
    await waitFor('the second end', () => keptEntries(`dport=${serverPort}`).some((each) => each.includes('LAST_ACK')));
    execFileSync('iptables', ['-w', '-t', 'raw', '-D', ...acknowledgements]);
    // Or forgets it: see `shortTimeWait`.
    await waitFor('its taking the connection for closed', () =>
      keptEntries(`dport=${serverPort}`).some((each) => each.includes('TIME_WAIT')),
    );
    const answer = async () => {
      held[0]?.end('answer');
      return (await agent.call('finish', { connection })).text;
    };
    return { port, held, answer };
  }

  test('a half-closed connection whose end was sent twice gets its answer while connection tracking remembers it', async (t) => {
    const { answer } = await takenForClosed(t, await makeRig(t), clientPort());
    assert.equal(await answer(), 'answer');
  });

  test('and also where another client comes from its port meanwhile', async (t) => {
    const localPort = clientPort();
    const { port, held, answer } = await takenForClosed(t, await makeRig(t), localPort);
    const { agent } = pods.otherClient;
    const { connection } = await agent.call('open', { host: BRIDGE.IPv4, port, localPort });
    await agent.call('write', { connection, text: 'other' });
    await waitFor('its question', () => held[1]?.bytesRead === 5);
    assert.equal(held[1]?.remoteAddress?.replace('::ffff:', ''), pods.otherClient.IPv4);
    assert.equal(await answer(), 'answer');
  });

  test('while one local port is free towards an endpoint, it is found', async (t) => {
    const [first, last] = [61_500, 61_799];
    narrowPorts(t, first, last);
    const rig = await makeRig(t);
    // A hand-over dials anew, and the port of the dial before is taken for a while if the endpoint had answered.
    await rig.stay();
    const { port } = await Kept.serve(rig, [endpoint(pods.server)]);
    // Some engines use the upper half alone.
    const free = port === last ? last - 1 : last;
    // Another program has all others.
    for (let localPort = first; localPort <= last; localPort++) {
      if (localPort === port || localPort === free) continue;
      const socket = connect({ host: pods.server.IPv4, port: PORT, localPort });
      t.after(() => socket.resetAndDestroy());
      await once(socket, 'connect');
    }
    const { localPort } = await connected(pods.client, BRIDGE.IPv4, port);
    assert.ok((await seenBy(pods.server)).includes(named(pods.client, 'IPv4', localPort)));
  });

  test('without a local port the dial fails, and no endpoint sees the node', async (t) => {
    narrowPorts(t, 61_500, 61_503);
    const rig = await makeRig(t);
    const { name, port } = await Kept.serve(rig, [endpoint(pods.server)]);
    const before = (await seenBy(pods.server)).length;
    // The listener itself may have one of the ports.
    await assert.rejects(async () => {
      for (let i = 0; i < 5; i++) await connected(pods.client, BRIDGE.IPv4, port);
    });
    await waitFor('the failure to be counted', () => rig.counters(name).failedOther > 0);
    const [event] = rig.events.dialFailed;
    assert.equal(event?.err, "the client's address cannot be kept: no local port is free for it");
    const seen = (await seenBy(pods.server)).slice(before);
    assert.ok(seen.length > 0);
    for (const each of seen) assert.match(each, new RegExp(`^${pods.client.IPv4}:`));
  });
}
