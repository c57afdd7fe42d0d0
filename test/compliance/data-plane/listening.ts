import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ListenSpec } from '../../../src/model/data-plane.ts';
import type { ProxiedProtocol } from '../../../src/model/service-port.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { ask, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, endpointAt, type Rig, type RigFactory } from './harness.ts';
import { NODE_ADDRESSES } from './network.ts';

const PROTOCOLS = ['TCP', 'UDP'] as const;
const NONE = backends([]);

function spec(protocol: ProxiedProtocol, address = '0.0.0.0', port = 0): ListenSpec {
  return listenSpec({ name: 'test/spec', protocol, address, port });
}

/** Some other program's socket. */
async function occupy(t: TestContext, protocol: ProxiedProtocol, address: string, port = 0): Promise<number> {
  const other = protocol === 'TCP' ? createServer().listen(port, address) : createSocket('udp4').bind(port, address);
  await once(other, 'listening');
  t.after(() => other.close());
  const bound = other.address();
  if (bound === null || typeof bound === 'string') throw new TypeError('not an internet socket');
  return bound.port;
}

function names(rig: Rig): string[] {
  return [...rig.plane.stats()].map(({ name }) => name);
}

/** Whether the Service port answers at this address. */
async function answers(t: TestContext, protocol: ProxiedProtocol, address: string, port: number): Promise<boolean> {
  if (protocol === 'TCP') {
    return ask(port, { to: address }).then(
      () => true,
      () => false,
    );
  }
  const client = await UdpClient.connect(t, port, { to: address });
  return client.ask('?').then(
    () => true,
    () => false,
  );
}

export function listeningTests(makeRig: RigFactory): void {
  for (const protocol of PROTOCOLS) {
    test(`${protocol}: the kernel chooses a port, or it is the one asked for`, async (t) => {
      const rig = await makeRig(t);
      const backend = protocol === 'TCP' ? await TcpBackend.named(t, 'a') : await UdpBackend.named(t, 'a');
      const port = await rig.plane.open(spec(protocol), backends([backend.endpoint]));
      assert.ok(port > 0);
      assert.ok(await answers(t, protocol, '127.0.0.1', port));
      await rig.plane.close('test/spec');
      assert.equal(await rig.plane.open(spec(protocol, '0.0.0.0', port), NONE), port);
    });

    test(`${protocol}: listening at one address leaves the others alone`, async (t) => {
      const rig = await makeRig(t);
      const [address, another] = NODE_ADDRESSES;
      const backend = protocol === 'TCP' ? await TcpBackend.named(t, 'a') : await UdpBackend.named(t, 'a');
      const port = await rig.plane.open(spec(protocol, address), backends([backend.endpoint]));
      assert.ok(await answers(t, protocol, address, port));
      if (protocol === 'TCP') assert.equal(await answers(t, protocol, another, port), false);
      const free = await rig.plane.open(listenSpec({ ...spec(protocol, another, port), name: 'test/another' }), NONE);
      assert.equal(free, port);
    });

    test(`${protocol}: a taken port gives address-in-use, and nothing is left behind`, async (t) => {
      const rig = await makeRig(t);
      const port = await occupy(t, protocol, NODE_ADDRESSES[1]);
      await assert.rejects(rig.plane.open(spec(protocol, '0.0.0.0', port), NONE), (err: Error) => {
        assert.equal(err.name, 'ListenError');
        assert.equal((err as Error & { code?: string }).code, 'address-in-use');
        assert.match(err.message, new RegExp(`${protocol} 0\\.0\\.0\\.0 port ${port} for test/spec`));
        return true;
      });
      assert.deepEqual(names(rig), []);
      // The other addresses of the wildcard are free again, and so is the name.
      assert.equal(await rig.plane.open(spec(protocol, NODE_ADDRESSES[0], port), NONE), port);
    });

    test(`${protocol}: the listeners of a Service port in both families may have one port`, async (t) => {
      const rig = await makeRig(t);
      const port = await rig.plane.open(spec(protocol, '::'), NONE);
      assert.equal(await rig.plane.open(spec(protocol, '0.0.0.0', port), NONE), port);
      assert.deepEqual(
        [...rig.plane.stats()].map(({ id, family }) => [id, family]),
        [
          ['test/spec/IPv6', 'IPv6'],
          ['test/spec', 'IPv4'],
        ],
      );
    });

    test(`${protocol}: an address of another machine gives address-unavailable`, async (t) => {
      const rig = await makeRig(t);
      await assert.rejects(rig.plane.open(spec(protocol, '192.0.2.1'), NONE), { code: 'address-unavailable' });
      assert.deepEqual(names(rig), []);
    });

    test(`${protocol}: a name can be opened once at a time`, async (t) => {
      const rig = await makeRig(t);
      const opening = rig.plane.open(spec(protocol), NONE);
      await assert.rejects(rig.plane.open(spec(protocol), NONE), { name: 'ListenError' });
      await opening;
      await assert.rejects(rig.plane.open(spec(protocol), NONE), { name: 'ListenError' });
      assert.deepEqual(names(rig), ['test/spec']);
      await rig.plane.close('test/spec');
      await rig.plane.open(spec(protocol), NONE);
    });

    test(`${protocol}: a closed port is free as soon as closing has been reported, whatever went through it`, async (t) => {
      const rig = await makeRig(t);
      const backend = protocol === 'TCP' ? await TcpBackend.start(t) : await UdpBackend.echo(t);
      let port = await rig.plane.open(spec(protocol), backends([backend.endpoint]));
      for (let i = 0; i < 10; i++) {
        if (protocol === 'TCP') (await connectTcp(port)).send('stays open');
        else await (await UdpClient.connect(t, port)).ask('hello');
        await rig.plane.close('test/spec');
        port = await rig.plane.open(spec(protocol, '0.0.0.0', port), backends([backend.endpoint]));
      }
    });

    test(`${protocol}: closing while it opens waits for it, and leaves nothing open`, async (t) => {
      const rig = await makeRig(t);
      const port = await rig.plane.open(spec(protocol), NONE);
      await rig.plane.close('test/spec');
      const opening = rig.plane.open(spec(protocol, '0.0.0.0', port), NONE).catch(() => {});
      await rig.plane.close('test/spec');
      await occupy(t, protocol, '0.0.0.0', port);
      await opening;
      assert.deepEqual(names(rig), []);
    });
  }

  test('many Service ports can be opened at once, each with a port of its own', async (t) => {
    const rig = await makeRig(t);
    const opened = await Promise.all(Array.from({ length: 60 }, (_, i) => rig.open(i % 2 === 0 ? 'TCP' : 'UDP', [])));
    for (const protocol of PROTOCOLS) {
      const ports = [...rig.plane.stats()].filter((stats) => stats.protocol === protocol).map((s) => s.localPort);
      assert.equal(new Set(ports).size, 30);
    }
    assert.deepEqual(names(rig).toSorted(), opened.map(({ name }) => name).toSorted());
  });

  test('updating or closing what is not open does nothing, and after a shutdown nothing opens', async (t) => {
    const rig = await makeRig(t);
    rig.plane.update('no/such', NONE);
    await rig.plane.close('no/such');
    await rig.open('TCP', []);
    await rig.plane.shutdown();
    assert.deepEqual(names(rig), []);
    await assert.rejects(rig.plane.open(spec('TCP'), NONE), { name: 'ListenError' });
    await rig.plane.shutdown();
  });

  test('no descriptor is left behind', async (t) => {
    const tcp = await TcpBackend.echo(t);
    const udp = await UdpBackend.echo(t);
    const before = readdirSync('/proc/self/fd').length;
    const rig = await makeRig(t);
    const service = await rig.open('TCP', [tcp.endpoint]);
    const clients = await Promise.all(Array.from({ length: 20 }, () => connectTcp(service.port)));
    const flows = await rig.open('UDP', [udp.endpoint]);
    const flow = await UdpClient.connect(t, flows.port);
    await flow.ask('hello');
    await waitFor('all to be accepted', () => rig.counters(service.name).active === 20);
    clients[0]?.reset();
    clients[1]?.end();
    await rig.plane.shutdown();
    for (const { socket } of clients) socket.destroy();
    for (const socket of tcp.sockets) socket.destroy();
    // The UDP client's own.
    await waitFor('the descriptors to go', () => readdirSync('/proc/self/fd').length <= before + 1);
  });

  test('without a descriptor left, listening neither ends nor burns the processor', async (t) => {
    const rig = await makeRig(t);
    const crowd = new Crowd(t);
    const { port } = await rig.open('TCP', [endpointAt('127.0.0.1', await crowd.serving())]);
    assert.equal(await ask(port), 'here');
    const flows = await rig.open('UDP', [(await UdpBackend.named(t, 'here')).endpoint]);
    const flow = await UdpClient.connect(t, flows.port);

    // No engine can take the place of another without descriptors.
    await rig.stay();
    // The crowd lowers and restores the limit of this process, which cannot start a program without a descriptor.
    await crowd.tell(`starve ${readdirSync('/proc/self/fd').length + 4} ${port}`, 'starved');
    flow.send('a flow would need a descriptor');
    const usage = process.cpuUsage();
    await sleep(1000);
    const { user, system } = process.cpuUsage(usage);
    await crowd.tell('relieve', 'relieved');
    assert.ok(user + system < 500_000, `${user + system} µs of 1,000,000`);
    await waitFor('the listener to serve again', () => ask(port).catch(() => undefined));
    assert.equal(await flow.ask('?'), 'here');
  });
}

/**
 * A program that connects more clients than this process has descriptors for. It also runs the backend: in this process
 * the backend would run out of descriptors itself, and libuv would then burn the processor.
 */
class Crowd {
  readonly #child;
  readonly #lines: string[] = [];

  constructor(t: TestContext) {
    this.#child = spawn(process.execPath, ['-e', CROWD, String(process.pid)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    createInterface(this.#child.stdout).on('line', (line) => this.#lines.push(line));
    t.after(() => this.#child.kill());
  }

  /** Sends a command. Resolves when the crowd has answered with this. */
  async tell(line: string, answer: string): Promise<void> {
    this.#child.stdin.write(`${line}\n`);
    await waitFor(`the crowd to say ${answer}`, () => this.#lines.includes(answer));
  }

  /** The port of a backend that says "here". */
  async serving(): Promise<number> {
    const line = await waitFor('the crowd to serve', () => this.#lines.find((each) => each.startsWith('serving ')));
    return Number(line.split(' ')[1]);
  }
}

const CROWD = `
  const { execFileSync } = require('node:child_process');
  const { connect, createServer } = require('node:net');
  const [pid] = process.argv.slice(1);
  const soft = (limit) => execFileSync('prlimit', ['--pid', pid, '--nofile=' + limit + ':']);
  const before = execFileSync('prlimit', ['--pid', pid, '--nofile', '--noheadings', '--output', 'SOFT']).toString().trim();
  const sockets = [];
  require('node:readline').createInterface(process.stdin).on('line', (line) => {
    if (line.startsWith('starve')) {
      const [, limit, port] = line.split(' ');
      soft(limit);
      let settled = 0;
      for (let i = 0; i < 40; i++) {
        const settle = () => ++settled === 40 && console.log('starved');
        sockets.push(connect(port, '127.0.0.1').once('connect', settle).once('error', settle).on('error', () => {}));
      }
    } else {
      soft(before);
      for (const socket of sockets) socket.destroy();
      console.log('relieved');
    }
  });
  const backend = createServer((socket) => socket.on('error', () => {}).end('here'));
  backend.listen(0, '127.0.0.1', () => console.log('serving ' + backend.address().port));
`;
