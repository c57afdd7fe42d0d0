import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { endpointName } from '../../../src/model/endpoint.ts';
import { waitFor } from '../../netns/wait.ts';
import { ask, connectTcp, refusal, refusingEndpoint, TcpBackend } from '../../support/tcp.ts';
import { backends, endpointAt, endpointsOf, type RigFactory } from './harness.ts';
import { BLACK_HOLE, narrowPorts, UNREACHABLE } from './network.ts';

/** So many that dialling for one after another would take long. */
const CROWD = 60;

/** Two ports: a listener takes one, and the kernel has only the other for a dial to it. */
const TWO_PORTS = [47_000, 47_001] as const;
/** Outside of them, and of the range that older connections of this namespace have their ports from. */
const CLIENT_PORT = 28_000;

export function retryTests(makeRig: RigFactory): void {
  for (const protocol of ['TCP', 'UDP'] as const) {
    test(`a ${protocol} connection to itself is a refusal`, async (t) => {
      const rig = await makeRig(t);
      if (rig.dialsBeginAnew) return t.skip('a successor needs ports for its self-check');
      narrowPorts(t, ...TWO_PORTS);
      const { name, port } = await rig.open(protocol, []);
      const dead = endpointAt('127.0.0.1', TWO_PORTS.find((each) => each !== port) as number);
      await rig.update(name, backends([dead]));
      const echoed = await (protocol === 'TCP' ? exchangeTcp(t, port) : exchangeUdp(t, port));
      await waitFor('the refusal', () => rig.counters(name).failedRefused > 0 || echoed() !== '');
      if (protocol === 'TCP') await waitFor('the end', () => rig.counters(name).active === 0 || echoed() !== '');
      assert.equal(echoed(), '', 'the client got its own bytes');
    });
  }

  test('refused connections go to the next endpoint, spread evenly', async (t) => {
    const rig = await makeRig(t);
    const dead = refusingEndpoint(t);
    const alive = await Promise.all(['a', 'b', 'c'].map((name) => TcpBackend.named(t, name)));
    const { name, port } = await rig.open('TCP', [dead, ...endpointsOf(alive)]);
    for (let i = 0; i < 12; i++) assert.match(await ask(port), /^[abc]$/);
    const served = alive.map(({ peers }) => peers.length);
    assert.deepEqual(served, [4, 4, 4]);
    const { failedRefused, retries, exhausted } = rig.counters(name);
    // A retry takes a turn, so every third connection meets the dead endpoint. The first may be one of them.
    assert.ok(failedRefused === 3 || failedRefused === 4, `${failedRefused} refusals`);
    assert.deepEqual({ retries, exhausted }, { retries: failedRefused, exhausted: 0 });
    for (const { err, ...event } of await rig.reported('dialFailed', failedRefused)) {
      assert.deepEqual(event, { name, backend: endpointName(dead), reason: 'refused' });
      assert.equal(err, 'ECONNREFUSED (connection refused)');
    }
  });

  test('a silent endpoint is given 250 ms, and delays only the connection that tries it', async (t) => {
    const rig = await makeRig(t);
    if (rig.dialsBeginAnew) return t.skip('a hand-over gives each dial another turn');
    const alive = await TcpBackend.named(t, 'alive');
    const { name, port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80), alive.endpoint]);
    const began = performance.now();
    const times = await Promise.all(
      Array.from({ length: CROWD }, async () => {
        assert.equal(await ask(port), 'alive');
        return performance.now() - began;
      }),
    );
    // Every other one, unless some come so late that retries have taken turns by then.
    const { failedTimeout } = rig.counters(name);
    assert.ok(failedTimeout >= CROWD / 4 && failedTimeout <= (3 * CROWD) / 4, `${failedTimeout} tried it`);
    assert.ok(times.filter((ms) => ms >= 245).length >= failedTimeout, `they waited: ${times}`);
    assert.ok(Math.max(...times) < failedTimeout * 250, `at the same time, not one after another: ${times}`);
    for (const { reason } of await rig.reported('dialFailed', failedTimeout)) assert.equal(reason, 'timeout');
  });

  test('the tries of one connection wait longer and longer: 250 ms, 500 ms, 1 s', async (t) => {
    const rig = await makeRig(t);
    if (rig.dialsBeginAnew) return t.skip('a hand-over begins with the first again');
    const began = performance.now();
    const failures: number[] = [];
    const holes = [81, 82, 83].map((port) => endpointAt(BLACK_HOLE, port));
    const { port } = await rig.open('TCP', holes);
    const client = await connectTcp(port);
    for (const expected of [250, 750, 1750]) {
      await waitFor('a failed try', () => rig.events.dialFailed.length > failures.length);
      failures.push(performance.now() - began);
      const last = failures.at(-1) ?? 0;
      assert.ok(last >= expected - 5, `${last} ms where ${expected} were due`);
    }
    assert.equal(new Set(rig.events.dialFailed.map(({ backend }) => backend)).size, 3, 'a different one each time');
    client.reset();
  });

  test('an unreachable endpoint is skipped', async (t) => {
    const rig = await makeRig(t);
    const alive = await TcpBackend.named(t, 'alive');
    const { name, port } = await rig.open('TCP', [endpointAt(UNREACHABLE, 80), alive.endpoint]);
    for (let i = 0; i < 2; i++) assert.equal(await ask(port), 'alive');
    const { failedUnreachable } = rig.counters(name);
    assert.ok(failedUnreachable > 0);
    for (const { reason } of await rig.reported('dialFailed', failedUnreachable)) assert.equal(reason, 'unreachable');
  });

  for (const [count, tries] of [
    [2, 4],
    [6, 6],
  ] as const) {
    test(`with ${count} dead endpoints there are ${tries} tries, and then the client is reset`, async (t) => {
      const rig = await makeRig(t);
      const dead = Array.from({ length: count }, () => refusingEndpoint(t));
      const { name, port } = await rig.open('TCP', dead);
      assert.equal(await refusal(port), 'ECONNRESET');
      const tried = (await rig.reported('dialFailed', tries)).map(({ backend }) => backend);
      assert.equal(new Set(tried.slice(0, count)).size, count, 'each once before any comes again');
      assert.deepEqual(await rig.reported('clientRefused', 1), [{ name, client: '127.0.0.1', reason: 'exhausted' }]);
      const { exhausted, noEndpoints, retries, failedRefused } = rig.counters(name);
      assert.deepEqual(
        { exhausted, noEndpoints, retries, failedRefused },
        { exhausted: 1, noEndpoints: 0, retries: tries - 1, failedRefused: tries },
      );
      await waitFor('the connection to be over', () => rig.counters(name).active === 0);
    });
  }

  test('a client that gets no endpoint is always reset, whether it has sent something or not', async (t) => {
    const rig = await makeRig(t);
    const none = await rig.open('TCP', []);
    const dead = await rig.open('TCP', [refusingEndpoint(t)]);
    const away = await rig.open('TCP', [endpointAt(UNREACHABLE, 80)]);
    const silent = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80)]);
    const times = (count: number, port: number) =>
      Array.from({ length: count }, (_, i) => refusal(port, i % 2 === 0 ? '' : 'hello'));
    const ends = [none, dead, away].flatMap(({ port }) => times(20, port));
    const endings = await Promise.all([...ends, ...times(2, silent.port)]);
    assert.deepEqual(new Set(endings), new Set(['ECONNRESET']));
  });

  test('without endpoints the client is reset at once, until there are some', async (t) => {
    const rig = await makeRig(t);
    const { name, port } = await rig.open('TCP', []);
    assert.equal(await refusal(port, 'hello?'), 'ECONNRESET');
    assert.deepEqual(await rig.reported('clientRefused', 1), [{ name, client: '127.0.0.1', reason: 'no-endpoints' }]);
    assert.equal(rig.counters(name).noEndpoints, 1);
    await waitFor('the connection to be over', () => rig.counters(name).active === 0);
    await rig.update(name, backends([(await TcpBackend.named(t, 'here now')).endpoint]));
    assert.equal(await ask(port), 'here now');
  });

  test('no other endpoint is tried after one has accepted, even if it closes at once', async (t) => {
    const rig = await makeRig(t);
    const closing = await TcpBackend.start(t, (peer) => peer.end());
    const other = await TcpBackend.named(t, 'other');
    const { name, port } = await rig.open('TCP', [closing.endpoint, other.endpoint]);
    const answers: string[] = [];
    for (let i = 0; i < 6; i++) answers.push(await ask(port));
    assert.equal(answers.filter((answer) => answer === '').length, 3);
    assert.deepEqual([closing.peers.length, other.peers.length], [3, 3]);
    assert.equal(rig.counters(name).retries, 0);
  });

  test('no other endpoint is tried after one has accepted and reset', async (t) => {
    const rig = await makeRig(t);
    const resetting = await TcpBackend.start(t, (peer) => peer.reset());
    const { name, port } = await rig.open('TCP', [resetting.endpoint]);
    for (let i = 1; i <= 10; i++) {
      // An engine in a thread of its own may be done before this one has seen that it is connected.
      const how = await connectTcp(port).then(
        (client) => client.finished(),
        (err: NodeJS.ErrnoException) => err.code,
      );
      assert.equal(how, 'ECONNRESET');
      assert.equal(resetting.peers.length, i);
    }
    assert.equal(rig.counters(name).retries, 0);
    await waitFor('all connections to be over', () => rig.counters(name).active === 0);
  });

  test('trying ends when the client has gone', async (t) => {
    const rig = await makeRig(t);
    const { name, port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80)]);
    const client = await connectTcp(port);
    await waitFor('the connection to begin', () => rig.counters(name).active === 1);
    client.reset();
    await waitFor('the connection to be over', () => rig.counters(name).active === 0);
    const { failedTimeout } = rig.counters(name);
    await sleep(1000);
    assert.equal(rig.counters(name).failedTimeout, failedTimeout, 'the engine goes on dialling');
  });
}

/** Sends something. Returns what has come back by then. */
async function exchangeTcp(t: TestContext, port: number): Promise<() => string> {
  let echoed = '';
  const socket = connect({ host: '127.0.0.1', port, localPort: CLIENT_PORT });
  t.after(() => socket.resetAndDestroy());
  socket.on('error', () => {});
  socket.on('data', (bytes) => {
    echoed += String(bytes);
  });
  await once(socket, 'connect');
  socket.write('hello');
  return () => echoed;
}

async function exchangeUdp(t: TestContext, port: number): Promise<() => string> {
  let echoed = '';
  const socket = createSocket('udp4');
  t.after(() => socket.close());
  socket.on('error', () => {});
  socket.on('message', (bytes) => {
    echoed += String(bytes);
  });
  socket.bind(CLIENT_PORT);
  await once(socket, 'listening');
  socket.send('hello', port, '127.0.0.1');
  return () => echoed;
}
