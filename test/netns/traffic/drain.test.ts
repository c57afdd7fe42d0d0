import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { isAlive } from '../../support/process-state.ts';
import type { Agent } from '../agent.ts';
import { isFast, TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import type { Attempt } from '../programs/outcomes.ts';
import { PROGRAM } from '../proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

const [ONE, TWO] = POD_ADDRESSES;
const [HTTP, DNS] = [80, 53];
/** In the pods, for a server that answers when the test wants it to. */
const HELD = 9053;

describe(`drained endpoints, on iptables-${FLAVOUR}`, { timeout: 900_000 }, () => {
  const environment = testEnvironment();
  let client: Agent;
  /** The process that serves now. */
  let pid: number;

  before(async () => {
    // The kernel tells a peer of some six unreachable ports, then of one a second.
    await environment.topology.node.output(['sh', '-c', 'echo 0 > /proc/sys/net/ipv4/icmp_ratelimit']);
    // Whoever waits for an answer waits for as long as a slow machine takes.
    await environment.startProxy({ args: ['--udp-first-reply-timeout', '1h'] });
    client = environment.client;
    pid = environment.proxy.pid;
  });
  after(async () => {
    if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  });

  /** A Service whose TCP and UDP endpoints say who they are. */
  const serve = (name: string, endpoints: readonly string[], more = {}) =>
    environment.serve({
      ...{ name, endpoints },
      ports: [
        { name: 'tcp', port: HTTP, target: TCP.name, ...more },
        { name: 'udp', port: DNS, target: UDP['udp-name'], protocol: 'UDP' },
      ],
    });

  async function run(...args: string[]): Promise<string> {
    const argv = [PROGRAM, ...args, '--control-socket', environment.proxy.controlSocket];
    const { code, stdout, stderr } = await environment.topology.node.run(argv);
    assert.equal(code, 0, stderr);
    return stdout;
  }

  /** Who answers a dozen clients over TCP, and a dozen over UDP. */
  async function answering(host: string, timeoutMs: number): Promise<{ tcp: string[]; udp: string[] }> {
    const outcomes = async (protocol: Attempt['protocol'], port: number) => {
      const attempts = Array.from({ length: 12 }, () => ({ protocol, host, port }));
      return [...new Set(await client.call('outcomes', { attempts, timeoutMs }))].sort();
    };
    return { tcp: await outcomes('tcp', HTTP), udp: await outcomes('udp', DNS) };
  }

  async function until(host: string, names: readonly string[]): Promise<void> {
    await waitFor(`${names} at ${host}`, async () => {
      const { tcp, udp } = await answering(host, 1_000);
      return tcp.join() === names.join() && udp.join() === names.join();
    });
  }

  test('get no new connections in any Service and keep those they have; other ports are not affected', async () => {
    const [web, other] = [await serve('web', POD_ADDRESSES), await serve('other', [ONE])];
    const echo = await environment.serve({ name: 'echo', ports: [{ port: HTTP, target: TCP.echo }], endpoints: [ONE] });
    await until(web.host, ['pod-1', 'pod-2', 'pod-3']);
    const { connection } = await client.call('open', echo);
    for (const port of [TCP.name, TCP.echo]) await run('drain', `${ONE}:${port}`);
    await until(web.host, ['pod-2', 'pod-3']);
    await until(other.host, ['ECONNREFUSED']);
    await client.call('write', { connection, text: 'still' });
    assert.equal(await client.call('read', { connection, bytes: 5 }), 'still');
    assert.match(await run('list', 'test/web:tcp', '-o', 'wide'), /10\.244\.1\.11:8080 .* drained/);
    for (const port of [TCP.name, TCP.echo]) await run('undrain', `${ONE}:${port}`);
    await until(web.host, ['pod-1', 'pod-2', 'pod-3']);
    await until(other.host, ['pod-1']);
    await client.call('reset', { connection });
  });

  test('deliver a UDP answer under way, and lose a client that never changes its port', async () => {
    const [pod, other] = environment.pods;
    const server = await pod.call('udpOpen', { port: HELD });
    await other.serve(HELD, 'udp-name');
    const ports = [{ port: DNS, target: HELD, protocol: 'UDP' }] as const;
    const { host, port, clusterIP } = await environment.serve({ name: 'held', ports, endpoints: [ONE] });
    const { socket } = await client.call('udpOpen', {});
    await client.call('udpSend', { socket, host, port, text: 'question' });
    const asked = await pod.call('udpReceive', { socket: server.socket });
    assert.equal(asked?.text, 'question');
    environment.write({ name: 'held', clusterIP, ports, endpoints: [ONE, TWO] });
    await waitFor('both endpoints', async () => (await run('list', 'test/held')).includes(`${TWO}:${HELD}`));

    await run('drain', `${ONE}:${HELD}`);
    await waitFor('the other to be asked', async () => {
      const reply = await client.call('udpAsk', { socket, host, port, text: 'next', timeoutMs: 1_000 });
      return reply?.text.startsWith('pod-2 ');
    });
    const [toHost, toPort] = asked.from.split(':') as [string, string];
    await pod.call('udpSend', { socket: server.socket, host: toHost, port: Number(toPort), text: 'answer' });
    const answer = await waitFor('the answer', async () => {
      const reply = await client.call('udpReceive', { socket });
      return reply?.text === 'answer' && reply;
    });
    assert.equal(answer.from, `${host}:${port}`);
    assert.match(await run('drain', `${ONE}:${HELD}`, '--timeout', '0'), /All connections to .* have ended/);
    await run('undrain', `${ONE}:${HELD}`);
    await client.call('udpClose', { socket });
    await pod.call('udpClose', { socket: server.socket });
  });

  test('that are all of a Service make it refuse at once, at every address, until one is undrained', async () => {
    const nodePort = environment.nodePort();
    const { host } = await serve('all', POD_ADDRESSES.slice(0, 2), { nodePort });
    await until(host, ['pod-1', 'pod-2']);
    for (const pod of POD_ADDRESSES) await run('drain', `${pod}:${TCP.name}`);
    await until(host, ['ECONNREFUSED']);
    const outside = () =>
      environment.outside.call('outcomes', {
        attempts: [{ protocol: 'tcp', host: NODE_ADDRESS, port: nodePort }],
        timeoutMs: PATIENCE_MS,
      });
    assert.deepEqual(await outside(), ['ECONNREFUSED']);
    await run('undrain', `${POD_ADDRESSES[1]}:${TCP.name}`);
    await until(host, ['pod-2']);
    assert.deepEqual(await outside(), ['pod-2']);
    for (const pod of [POD_ADDRESSES[0], POD_ADDRESSES[2]]) await run('undrain', `${pod}:${TCP.name}`);
    await until(host, ['pod-1', 'pod-2']);
  });

  test('stay drained when they come back, and across a hand-over to a successor', { skip: !isFast }, async () => {
    const { host } = await serve('kept', POD_ADDRESSES);
    await until(host, ['pod-1', 'pod-2', 'pod-3']);
    await run('drain', `${ONE}:${TCP.name}`);
    await until(host, ['pod-2', 'pod-3']);
    const service = { name: 'kept', clusterIP: host, ports: [{ name: 'tcp', port: HTTP, target: TCP.name }] };
    process.kill(pid, 'SIGHUP');
    const line = await waitFor(
      'the upgrade',
      () => environment.proxy.lines({ msg: 'Handed over to the successor' })[0],
      60_000,
    );
    await waitFor('the old process ends', () => !isAlive(pid));
    pid = Number(line['pid']);
    await waitFor('the new one answers', async () => {
      const argv = [PROGRAM, 'version', '-o', 'json', '--control-socket', environment.proxy.controlSocket];
      const { stdout } = await environment.topology.node.run(argv);
      return JSON.parse(stdout).proxy.pid === pid;
    });
    const others = ['pod-2', 'pod-3'];
    assert.deepEqual(await answering(host, PATIENCE_MS), { tcp: others, udp: others });
    environment.write({ ...service, endpoints: [POD_ADDRESSES[2]] });
    await waitFor(
      'fewer',
      async () => (await client.call('requests', { host, port: HTTP, count: 6 })).names['pod-2'] === undefined,
    );
    environment.write({ ...service, endpoints: POD_ADDRESSES });
    await waitFor(
      'more',
      async () => (await client.call('requests', { host, port: HTTP, count: 6 })).names['pod-2'] !== undefined,
    );
    assert.equal((await client.call('requests', { host, port: HTTP, count: 12 })).names['pod-1'], undefined);
    await run('undrain', `${ONE}:${TCP.name}`);
    await waitFor(
      'all of them',
      async () => (await client.call('requests', { host, port: HTTP, count: 6 })).names['pod-1'] !== undefined,
    );
  });
});
