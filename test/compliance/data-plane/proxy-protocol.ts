import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { type TestContext, test } from 'node:test';
import { proxyHeader } from '../../../src/engine/proxy-header.ts';
import type { Endpoint, NamedEndpoint } from '../../../src/model/endpoint.ts';
import type { ProxyProtocol, ServicePortName } from '../../../src/model/service.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { connectTcp, refusingEndpoint, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { backends, endpointAt, type Rig, type RigFactory } from './harness.ts';
import { BLACK_HOLE, drop, ip } from './network.ts';

const VERSIONS = ['v1', 'v2'] as const;

const FAMILIES = [
  { node: '127.0.0.1', service: '10.96.0.10', any: '0.0.0.0', tool: 'iptables' },
  { node: '::1', service: 'fd00:96::a', any: '::', tool: 'ip6tables' },
] as const;

async function open(rig: Rig, proxyProtocol: ProxyProtocol, endpoints: readonly NamedEndpoint[]) {
  const service = await rig.open('TCP', []);
  await rig.update(service.name, { ...backends(endpoints), proxyProtocol });
  return service;
}

/** What a backend of this client must see first. */
function headerFor(version: ProxyProtocol, { socket }: TcpPeer, destination?: Endpoint): Buffer {
  const { localAddress = '', localPort = 0, remoteAddress = '', remotePort = 0 } = socket;
  return proxyHeader(
    version,
    endpointAt(localAddress, localPort),
    destination ?? endpointAt(remoteAddress, remotePort),
  );
}

function concat(header: Buffer, text: string): string {
  return Buffer.concat([header, Buffer.from(text)]).toString('latin1');
}

async function assertReceived(backend: TcpPeer, expected: string): Promise<void> {
  await waitFor('the backend to receive it', () => backend.receivedBytes >= expected.length);
  assert.equal(backend.bytes.toString('latin1'), expected);
}

export function proxyProtocolTests(makeRig: RigFactory): void {
  for (const version of VERSIONS) {
    test(`${version}: the header comes first and once, and does not count`, async (t) => {
      const rig = await makeRig(t);
      const server = await TcpBackend.start(t);
      const { name, port } = await open(rig, version, [server.endpoint]);
      const client = await connectTcp(port);
      client.send('request');
      const backend = await waitFor('the backend to accept', () => server.peers[0]);
      const header = headerFor(version, client);
      await assertReceived(backend, concat(header, 'request'));
      client.end(' and more');
      assert.equal(await backend.finished(), 'end');
      assert.equal(backend.bytes.toString('latin1'), concat(header, 'request and more'));
      backend.end('answer');
      assert.equal(await client.finished(), 'end');
      assert.equal(client.text, 'answer');
      await waitFor('the connection to be over', () => rig.counters(name).active === 0);
      const { receivedBytes, sentBytes } = rig.counters(name);
      assert.deepEqual({ receivedBytes, sentBytes }, { receivedBytes: 16, sentBytes: 6 });
      const [share] = rig.plane.statsOf(name)?.endpoints ?? [];
      assert.equal(share?.counters.receivedBytes, 16);
    });
  }

  test('a server that speaks first gets the header of a client that sends nothing', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t, (peer) => peer.send('220 ready'));
    const { port } = await open(rig, 'v1', [server.endpoint]);
    const client = await connectTcp(port);
    await client.hasReceived(9);
    await assertReceived(server.peers[0] as TcpPeer, concat(headerFor('v1', client), ''));
    client.end();
  });

  test('a client that ends its direction without a byte has its header, and gets its answer', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t);
    const { port } = await open(rig, 'v2', [server.endpoint]);
    const client = await connectTcp(port);
    client.end();
    // A dial that is begun anew leaves a connection without a byte behind.
    const backend = await waitFor('the header', () => server.peers.find(({ receivedBytes }) => receivedBytes > 0));
    assert.equal(await backend.finished(), 'end');
    assert.deepEqual(backend.bytes, headerFor('v2', client));
    backend.end('answer');
    assert.equal(await client.finished(), 'end');
    assert.equal(client.text, 'answer');
  });

  test('the endpoint that answers after others have failed has the header once', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t);
    const endpoints = [refusingEndpoint(t), endpointAt(BLACK_HOLE, 80), server.endpoint];
    const { port } = await open(rig, 'v2', endpoints);
    // Whatever the order of turns, some of them meet each dead one first.
    const clients = await Promise.all(Array.from({ length: 6 }, () => connectTcp(port)));
    for (const [index, client] of clients.entries()) client.end(`client ${index}`);
    await waitFor('all to arrive', () => server.peers.filter(({ hasEnded }) => hasEnded).length === clients.length);
    const received = server.peers.map(({ bytes }) => bytes.toString('latin1'));
    const expected = clients.map((client, index) => concat(headerFor('v2', client), `client ${index}`));
    assert.deepEqual(received.sort(), expected.sort());
    for (const peer of server.peers) peer.end();
    for (const client of clients) assert.equal(await client.finished(), 'end');
    if (!rig.dialsBeginAnew) await waitFor('a failed dial', () => rig.events.dialFailed.length > 0);
  });

  test('an endpoint that resets at once resets its client', async (t) => {
    const rig = await makeRig(t);
    const resetting = await TcpBackend.start(t, (peer) => peer.reset());
    const { name, port } = await open(rig, 'v1', [resetting.endpoint]);
    for (let i = 0; i < 10; i++) {
      // An engine in a thread of its own may be done before this one has seen that it is connected.
      const how = await connectTcp(port).then(
        (client) => client.finished(),
        (err: NodeJS.ErrnoException) => err.code,
      );
      assert.equal(how, 'ECONNRESET');
    }
    await waitFor('all connections to be over', () => rig.counters(name).active === 0);
    const { receivedBytes, retries } = rig.counters(name);
    assert.deepEqual({ receivedBytes, retries }, { receivedBytes: 0, retries: 0 });
  });

  test('an endpoint that never acknowledges the header counts as dead, although the client sends nothing', async (t) => {
    const rig = await makeRig(t, { tcpUserTimeoutMs: 500 });
    const server = await TcpBackend.start(t);
    const { port } = await open(rig, 'v2', [server.endpoint]);
    // The handshake passes, and nothing else.
    drop(t, 'INPUT', ...`-p tcp --dport ${server.endpoint.port} --tcp-flags PSH PSH`.split(' '));
    const client = await connectTcp(port);
    assert.equal(await client.finished(), 'ECONNRESET');
    assert.deepEqual(
      server.peers.map(({ receivedBytes }) => receivedBytes),
      [0],
    );
  });

  test('a change holds for the next connection', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t);
    const { name, port } = await rig.open('TCP', [server.endpoint]);
    const expected: string[] = [];
    for (const proxyProtocol of [undefined, 'v1', 'v2', undefined] as const) {
      await rig.update(name, { ...backends([server.endpoint]), ...(proxyProtocol && { proxyProtocol }) });
      const client = await connectTcp(port);
      client.send('bytes');
      const backend = await waitFor('the backend to accept', () => server.peers[expected.length]);
      const header = proxyProtocol === undefined ? Buffer.alloc(0) : headerFor(proxyProtocol, client);
      expected.push(concat(header, 'bytes'));
      await assertReceived(backend, expected.at(-1) as string);
    }
    assert.deepEqual(
      server.peers.map(({ bytes }) => bytes.toString('latin1')),
      expected,
    );
  });

  for (const { node, service, any, tool } of FAMILIES) {
    test(`${tool}: the header names what the client asked for, before NAT`, async (t) => {
      const rig = await makeRig(t);
      const server = await TcpBackend.start(t);
      const name: ServicePortName = 'test/asked-for';
      const spec = listenSpec({ name, protocol: 'TCP', address: any, port: 0 });
      const port = await rig.plane.open(spec, { ...backends([server.endpoint]), proxyProtocol: 'v1' });
      redirect(t, { tool, from: service, to: node.includes(':') ? `[${node}]:${port}` : `${node}:${port}` });
      const client = await connectTcp(80, { to: service });
      const backend = await waitFor('the backend to accept', () => server.peers[0]);
      await assertReceived(backend, concat(headerFor('v1', client, endpointAt(service, 80)), ''));
      client.end();
    });
  }
}

/** As a rule for a Service does: port 80 of an address that nobody has. */
function redirect(t: TestContext, { tool, from, to }: { tool: string; from: string; to: string }): void {
  ip('route', 'add', from, 'dev', 'lo');
  const change = (how: string) =>
    execFileSync(tool, `-w -t nat ${how} OUTPUT -p tcp -d ${from} --dport 80 -j DNAT --to ${to}`.split(' '));
  change('-A');
  t.after(() => {
    change('-D');
    ip('route', 'del', from, 'dev', 'lo');
  });
}
