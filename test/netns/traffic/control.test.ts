import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, statSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { isAlive } from '../../support/processes.ts';
import { isFast, NAMING, type Served, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { PROGRAM } from '../proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

const [ONE, TWO] = POD_ADDRESSES;
const [HTTP, DNS] = [80, 53];
/** In the pods, for a server that answers when the test wants it to. */
const HELD = 9053;

describe(`an operator on the node, with iptables-${FLAVOUR}`, { timeout: 900_000 }, () => {
  const environment = testEnvironment();
  /** The process that serves now. */
  let pid: number;

  before(async () => {
    await environment.topology.node.refuseAtAnyRate();
    // Whoever waits for an answer waits for as long as a slow machine takes.
    ({ pid } = await environment.startProxy({ args: ['--udp-first-reply-timeout', '1h'] }));
  });

  after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'));

  const run = (...argv: string[]) =>
    environment.topology.node.run([PROGRAM, ...argv, `--control-socket=${environment.proxy.controlSocket}`]);

  async function must(...argv: string[]): Promise<string> {
    const { code, stdout, stderr } = await run(...argv);
    assert.equal(code, 0, stderr);
    return stdout;
  }

  /** To a successor, which then serves all that the proxy serves. */
  async function handOver(): Promise<void> {
    const handedOver = () => environment.proxy.lines({ msg: 'Handed over to the successor' });
    const count = handedOver().length;
    process.kill(pid, 'SIGHUP');
    const line = await waitFor('the upgrade', () => handedOver()[count]);
    await waitFor('the old process ends', () => !isAlive(pid));
    pid = Number(line['pid']);
    await waitFor('the socket is the new one’s', async () => {
      const { stdout } = await run('version', '-o', 'json');
      return JSON.parse(stdout).proxy.pid === pid;
    });
  }

  async function exchange(connection: number, text: string): Promise<void> {
    await environment.client.call('write', { connection, text });
    assert.equal(await environment.client.call('read', { connection, bytes: text.length }), text);
  }

  /** A connection that the endpoint has answered. */
  async function echoing(to: Served): Promise<number> {
    const { connection } = await environment.client.call('open', to);
    await exchange(connection, 'hello');
    return connection;
  }

  /** Begins to wait for the connections of a drained endpoint, and has said so. */
  async function drain(endpoint: string) {
    const child = environment.topology.node.spawn([
      ...[PROGRAM, 'drain', endpoint, '--timeout', '10m'],
      `--control-socket=${environment.proxy.controlSocket}`,
    ]);
    const code = once(child, 'close').then(([exitCode]) => exitCode as number | null);
    const said = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'] as const) child[name]?.on('data', (text) => (said[name] += text));
    await waitFor('it waits', () => said.stdout.includes('no new connections'));
    return { child, code, said };
  }

  test('is root', async () => {
    assert.equal(statSync(environment.proxy.controlSocket).mode & 0o777, 0o600);
    const argv = [PROGRAM, 'list', `--control-socket=${environment.proxy.controlSocket}`];
    const { code, stderr } = await environment.topology.node.run([
      'setpriv',
      '--reuid=65534',
      '--clear-groups',
      ...argv,
    ]);
    assert.equal(code, 1);
    assert.match(stderr, /^kube-userspace-proxy list: .* may be opened by root only; run this as root\n$/);
  });

  test('sees which process runs, and may pipe a list to head', async () => {
    const { stdout } = await run('version', '-o', 'json');
    assert.equal(JSON.parse(stdout).proxy.pid, pid);
    for (const name of ['a', 'b', 'c']) {
      await environment.serve({ name });
    }
    const script = `'${PROGRAM}' list --control-socket='${environment.proxy.controlSocket}' | head -n 1`;
    const {
      code,
      stdout: head,
      stderr,
    } = await environment.topology.node.run(['bash', '-o', 'pipefail', '-c', script]);
    assert.deepEqual([code, stderr, head.split('\n').length], [0, '', 2]);
  });

  test('asks and drains with curl as well', async () => {
    const curl = async (path: string, ...options: string[]) => {
      const argv = ['curl', '--silent', '--unix-socket', environment.proxy.controlSocket, `http://localhost${path}`];
      const { code, stdout } = await environment.topology.node.run([...argv, ...options]);
      assert.equal(code, 0);
      return stdout;
    };
    await environment.serve({ name: 'curled', endpoints: [ONE] });
    const lines = () => curl('/v1/services?service=curled');
    const service = JSON.parse(await waitFor('the Service', async () => (await lines()) || undefined));
    const [{ endpoint }] = service.listeners[0].endpoints;
    assert.equal(endpoint.address, ONE);
    const at = `endpoint=${ONE}:${endpoint.port}`;
    assert.deepEqual(JSON.parse(await curl('/v1/undrain', '--data', '')), {
      error: 'endpoint is missing; expected an address with a port, such as 10.244.1.7:80 or [fd00::7]:80',
    });
    const [user] = JSON.parse(await curl(`/v1/drain?${at}`, '--request', 'POST')).users;
    assert.equal(user.isActive, true);
    assert.deepEqual(JSON.parse(await curl('/v1/node')).drained, [`${ONE}:${endpoint.port}`]);
    assert.deepEqual(JSON.parse(await curl(`/v1/undrain?${at}`, '--request', 'POST')), { wasDrained: true });
    assert.match(await curl('/metrics'), /^process_start_time_seconds /m);
  });

  test('changes how much the log says while it runs', async () => {
    const saysMore = () => environment.proxy.log.some(({ v }) => Number(v) > 2);
    assert.equal(saysMore(), false);
    assert.equal((await run('log-level', '10')).stdout, 'The log level is 10 now; it was 2.\n');
    environment.write({
      ...{ name: 'told', clusterIP: environment.clusterIP() },
      ...{ ports: [{ port: 80, target: TCP.name }], endpoints: POD_ADDRESSES },
    });
    await waitFor('the log says more', saysMore);
    assert.equal((await run('log-level', '2')).stdout, 'The log level is 2 now; it was 10.\n');
  });

  test('waits for the connections of a drained endpoint, while a successor takes over, too', async () => {
    const served = { name: 'echo', ports: [{ port: 80, target: TCP.echo }], endpoints: [ONE] };
    const echo = await environment.serve(served);
    const endpoint = `${ONE}:${TCP.echo}`;
    const connection = await echoing(echo);
    const impatient = await run('drain', endpoint, '--timeout', '1s');
    assert.equal(impatient.code, 1);
    assert.match(impatient.stdout, /no new connections from test\/echo \(1 connection\)/);
    assert.match(impatient.stderr, /test\/echo has no other endpoint/);
    assert.match(impatient.stderr, /^1 connection to .* still open; it stays drained, until undrain\.$/m);

    const draining = await drain(endpoint);
    draining.child.kill('SIGINT');
    assert.equal(await draining.code, 130);
    assert.match(draining.said.stderr, /^1 connection to .* still open; it stays drained, until undrain\.$/m);

    const patient = await drain(endpoint);
    if (isFast) await handOver();
    await exchange(connection, 'still');
    await environment.client.call('reset', { connection });
    const code = await patient.code;
    assert.deepEqual([code, patient.said.stdout.split('\n').at(-2)], [0, `All connections to ${endpoint} have ended.`]);
    assert.equal((await run('undrain', endpoint)).stdout, `${endpoint} gets new connections again.\n`);
  });

  test('waits for connections that no counters of a Service include any more', async () => {
    const served = { name: 'left', ports: [{ port: 80, target: TCP.echo }], endpoints: [ONE] };
    const left = await environment.serve(served);
    const endpoint = `${ONE}:${TCP.echo}`;
    const connection = await echoing(left);
    const listed = async () => (await run('list', 'test/left')).stdout.includes(endpoint);
    const impatient = async () => {
      const { code, stderr } = await run('drain', endpoint, '--timeout', '1s');
      assert.equal(code, 1);
      assert.match(stderr, /^1 connection to .* still open; it stays drained, until undrain\.$/m);
    };
    const patient = await drain(endpoint);
    environment.write({ ...left, endpoints: [TWO] });
    await waitFor('the endpoint has left', async () => !(await listed()));
    await impatient();
    environment.write({ ...left, endpoints: [ONE, TWO] });
    await waitFor('it is back', listed);
    await impatient();
    assert.equal(patient.child.exitCode, null);
    await exchange(connection, 'still');
    await environment.client.call('reset', { connection });
    const code = await patient.code;
    assert.deepEqual([code, patient.said.stdout.split('\n').at(-2)], [0, `All connections to ${endpoint} have ended.`]);
    await run('undrain', endpoint);
  });

  describe('drained endpoints', () => {
    const serve = (name: string, endpoints: readonly string[], more = {}) =>
      environment.serve({
        name,
        endpoints,
        ports: NAMING.map((port, index) => ({ ...port, ...(index === 0 && more) })),
      });

    const until = (host: string, names: readonly string[]) => environment.until(environment.client, host, HTTP, names);

    test('get no new connections in any Service and keep those they have; other ports are not affected', async () => {
      const [web, other] = [await serve('web', POD_ADDRESSES), await serve('other', [ONE])];
      const echo = await environment.serve({
        name: 'echo',
        ports: [{ port: HTTP, target: TCP.echo }],
        endpoints: [ONE],
      });
      await until(web.host, ['pod-1', 'pod-2', 'pod-3']);
      const { connection } = await environment.client.call('open', echo);
      for (const port of [TCP.name, TCP.echo]) await must('drain', `${ONE}:${port}`);
      await until(web.host, ['pod-2', 'pod-3']);
      await until(other.host, ['ECONNREFUSED']);
      await environment.client.call('write', { connection, text: 'still' });
      assert.equal(await environment.client.call('read', { connection, bytes: 5 }), 'still');
      assert.match(await must('list', 'test/web:tcp', '-o', 'wide'), /10\.244\.1\.11:8080 .* drained/);
      for (const port of [TCP.name, TCP.echo]) await must('undrain', `${ONE}:${port}`);
      await until(web.host, ['pod-1', 'pod-2', 'pod-3']);
      await until(other.host, ['pod-1']);
      await environment.client.call('reset', { connection });
    });

    test('deliver a UDP answer under way, and lose a client that never changes its port', async () => {
      const [pod, other] = environment.pods;
      const server = await pod.call('udpOpen', { port: HELD });
      await other.serve(HELD, 'udp-name');
      const ports = [{ port: DNS, target: HELD, protocol: 'UDP' }] as const;
      const { host, port, clusterIP } = await environment.serve({ name: 'held', ports, endpoints: [ONE] });
      const { socket } = await environment.client.call('udpOpen', {});
      await environment.client.call('udpSend', { socket, host, port, text: 'question' });
      const asked = await pod.call('udpReceive', { socket: server.socket });
      assert.equal(asked?.text, 'question');
      environment.write({ name: 'held', clusterIP, ports, endpoints: [ONE, TWO] });
      await waitFor('both endpoints', async () => (await must('list', 'test/held')).includes(`${TWO}:${HELD}`));

      await must('drain', `${ONE}:${HELD}`);
      await waitFor('the other to be asked', async () => {
        const reply = await environment.client.call('udpAsk', { socket, host, port, text: 'next', timeoutMs: 1_000 });
        return reply?.text.startsWith('pod-2 ');
      });
      const [toHost, toPort] = asked.from.split(':') as [string, string];
      await pod.call('udpSend', { socket: server.socket, host: toHost, port: Number(toPort), text: 'answer' });
      const answer = await waitFor('the answer', async () => {
        const reply = await environment.client.call('udpReceive', { socket });
        return reply?.text === 'answer' && reply;
      });
      assert.equal(answer.from, `${host}:${port}`);
      assert.match(await must('drain', `${ONE}:${HELD}`, '--timeout', '0'), /All connections to .* have ended/);
      await must('undrain', `${ONE}:${HELD}`);
      await environment.client.call('udpClose', { socket });
      await pod.call('udpClose', { socket: server.socket });
    });

    test('that are all of a Service make it refuse at once, at every address, until one is undrained', async () => {
      const nodePort = environment.nodePort();
      const { host } = await serve('all', POD_ADDRESSES.slice(0, 2), { nodePort });
      await until(host, ['pod-1', 'pod-2']);
      for (const pod of POD_ADDRESSES) await must('drain', `${pod}:${TCP.name}`);
      await until(host, ['ECONNREFUSED']);
      const outside = () =>
        environment.outside.call('outcomes', {
          attempts: [{ protocol: 'tcp', host: NODE_ADDRESS, port: nodePort }],
          timeoutMs: PATIENCE_MS,
        });
      assert.deepEqual(await outside(), ['ECONNREFUSED']);
      await must('undrain', `${POD_ADDRESSES[1]}:${TCP.name}`);
      await until(host, ['pod-2']);
      assert.deepEqual(await outside(), ['pod-2']);
      for (const pod of [POD_ADDRESSES[0], POD_ADDRESSES[2]]) await must('undrain', `${pod}:${TCP.name}`);
      await until(host, ['pod-1', 'pod-2']);
    });

    test('stay drained when they come back, and across a hand-over to a successor', { skip: !isFast }, async () => {
      const { host } = await serve('kept', POD_ADDRESSES);
      await until(host, ['pod-1', 'pod-2', 'pod-3']);
      await must('drain', `${ONE}:${TCP.name}`);
      await until(host, ['pod-2', 'pod-3']);
      const service = { name: 'kept', clusterIP: host, ports: [{ name: 'tcp', port: HTTP, target: TCP.name }] };
      await handOver();
      assert.deepEqual(await environment.outcomes(environment.client, host, HTTP), ['pod-2', 'pod-3']);
      environment.write({ ...service, endpoints: [POD_ADDRESSES[2]] });
      const answers = async (name: string) =>
        (await environment.client.call('requests', { host, port: HTTP, count: 6 })).names[name] !== undefined;
      await waitFor('pod-2 to leave', async () => !(await answers('pod-2')));
      environment.write({ ...service, endpoints: POD_ADDRESSES });
      await waitFor('pod-2 to come back', () => answers('pod-2'));
      assert.equal(await answers('pod-1'), false);
      await must('undrain', `${ONE}:${TCP.name}`);
      await waitFor('pod-1 to serve', () => answers('pod-1'));
    });
  });

  test('finds nothing of a proxy that has stopped', async () => {
    process.kill(pid, 'SIGTERM');
    await waitFor('it ends', () => !isAlive(pid));
    assert.equal(existsSync(environment.proxy.controlSocket), false);
    const { code, stderr } = await run('list');
    assert.equal(code, 1);
    assert.match(stderr, /no proxy serves .*: is it running on this node\?/);
  });
});
