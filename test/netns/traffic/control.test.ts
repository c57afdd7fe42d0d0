import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, statSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { isAlive } from '../../support/process-state.ts';
import { isFast, type Served, TCP, testEnvironment } from '../harness.ts';
import { PROGRAM } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const [ONE, TWO] = POD_ADDRESSES;

describe('an operator on the node', { timeout: 900_000 }, () => {
  const environment = testEnvironment();
  /** The process that serves now. */
  let pid: number;

  before(async () => {
    await environment.startProxy();
    pid = environment.proxy.pid;
  });

  after(async () => {
    if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  });

  const run = (...argv: string[]) =>
    environment.topology.node.run([PROGRAM, ...argv, `--control-socket=${environment.proxy.controlSocket}`]);

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
      await environment.serve({ name, ports: [{ port: 80, target: TCP.name }], endpoints: POD_ADDRESSES });
    }
    const script = `'${PROGRAM}' list --control-socket='${environment.proxy.controlSocket}' | head -n 1`;
    const {
      code,
      stdout: head,
      stderr,
    } = await environment.topology.node.run(['bash', '-o', 'pipefail', '-c', script]);
    assert.deepEqual([code, stderr, head.split('\n').length], [0, '', 2]);
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
    if (isFast) {
      process.kill(pid, 'SIGHUP');
      const line = await waitFor(
        'the upgrade',
        () => environment.proxy.lines({ msg: 'Handed over to the successor' })[0],
        60_000,
      );
      await waitFor('the old process ends', () => !isAlive(pid));
      pid = Number(line['pid']);
      await waitFor('the socket is the new one’s', async () => {
        const { stdout } = await run('version', '-o', 'json');
        return JSON.parse(stdout).proxy.pid === pid;
      });
    }
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

  test('finds nothing of a proxy that has stopped', async () => {
    process.kill(pid, 'SIGTERM');
    await waitFor('it ends', () => !isAlive(pid));
    assert.equal(existsSync(environment.proxy.controlSocket), false);
    const { code, stderr } = await run('list');
    assert.equal(code, 1);
    assert.match(stderr, /no proxy serves .*: is it running on this node\?/);
  });
});
