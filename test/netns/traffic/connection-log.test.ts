import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { isAlive } from '../../support/processes.ts';
import { isFast, metric, type Served, TCP, testEnvironment } from '../harness.ts';
import { PROGRAM } from '../proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const MANY = 10_000;

interface Line {
  readonly ts: string;
  readonly began: string;
  readonly svc: string;
  readonly client: string;
  readonly backend?: string;
  readonly end: string;
  readonly ms: number;
  readonly received: number;
  readonly sent: number;
  readonly retries: number;
  readonly failed?: readonly { readonly backend: string; readonly reason: string }[];
  readonly missing?: number;
}

describe('the connection log', { timeout: 600_000 }, () => {
  const environment = testEnvironment();
  let folder: string;
  let path: string;
  /** The process that serves now. */
  let pid: number;

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'connection-log-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${64 << 20}`, 'none', folder]);
    path = join(folder, 'connections.log');
    ({ pid } = await environment.startProxy({ args: ['--connection-log', path] }));
    await waitFor('it to say so', () => environment.proxy.lines({ msg: 'Started' })[0]);
  });

  after(() => {
    if (isAlive(pid)) process.kill(pid, 'SIGKILL');
    execFileSync('umount', ['--lazy', folder]);
    rmSync(folder, { recursive: true });
  });

  /** Of all files, in no order. Throws when a line is no JSON. */
  function lines(of: Pick<Served, 'name'>): Line[] {
    const files = readdirSync(folder).filter((name) => name.startsWith('connections.log'));
    const texts = files.flatMap((name) => readFileSync(join(folder, name), 'utf8').split('\n').slice(0, -1));
    return texts.map((text) => JSON.parse(text) as Line).filter(({ svc }) => svc === `test/${of.name}`);
  }

  const sum = (all: readonly Line[], of: (line: Line) => number) => all.reduce((total, line) => total + of(line), 0);

  async function counted(what: string, { name }: Pick<Served, 'name'>, ...labels: string[]): Promise<number> {
    return metric(await environment.metricsText(), `userspace_proxy_${what}`, `service="${name}"`, ...labels);
  }

  async function allEnded(service: Served): Promise<readonly Line[]> {
    await waitFor('all to end', async () => (await counted('connections_active', service)) === 0);
    const count = await counted('connections_total', service);
    await waitFor(`${count} lines`, () => lines(service).length >= count);
    return lines(service);
  }

  function tail(...args: string[]) {
    const command = [PROGRAM, 'tail', ...args, `--control-socket=${environment.proxy.controlSocket}`];
    const child = environment.topology.node.spawn(command);
    const said = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'] as const) child[name]?.on('data', (text) => (said[name] += text));
    return { child, said };
  }

  test('10,000 connections are 10,000 lines, whose sums are the metrics', async () => {
    // Nothing listens at the node's address, so a dial there fails.
    const service = await environment.serve({ name: 'many', endpoints: [...POD_ADDRESSES, NODE_ADDRESS] });
    const { failures } = await environment.client.call('requests', { ...service, count: MANY, concurrency: 16 });
    assert.deepEqual(failures, {});
    const all = await allEnded(service);
    assert.equal(all.length, MANY);
    const failed = (reason: string) => (line: Line) =>
      line.failed?.filter((each) => each.reason === reason).length ?? 0;
    assert.deepEqual(
      {
        received: sum(all, ({ received }) => received),
        sent: sum(all, ({ sent }) => sent),
        retries: sum(all, ({ retries }) => retries),
        refused: sum(all, failed('refused')),
      },
      {
        received: await counted('received_bytes_total', service),
        sent: await counted('sent_bytes_total', service),
        retries: await counted('connect_retries_total', service),
        refused: await counted('connect_failures_total', service, 'reason="refused"'),
      },
    );
    assert.ok(sum(all, failed('refused')) > 0, 'some dials failed');
    assert.equal(new Set(all.map(({ client, began }) => `${client} ${began}`)).size, MANY);
    assert.deepEqual(new Set(all.map(({ end }) => end)), new Set(['backend-end']));
    assert.ok(all.every(({ ts, began, ms }) => Math.abs(Date.parse(ts) - Date.parse(began) - ms) < 2));
    assert.equal(statSync(path).mode & 0o777, 0o640);
  });

  test('rotation under load loses no line', async () => {
    const service = await environment.serve({ name: 'rotated' });
    const load = await environment.client.call('startLoad', { ...service, concurrency: 4 });
    for (let i = 1; i <= 5; i++) {
      const before = await counted('connections_total', service);
      await waitFor('more traffic', async () => (await counted('connections_total', service)) > before + 50);
      renameSync(path, `${path}.${i}`);
      process.kill(pid, 'SIGUSR2');
      await waitFor('a new file', () => readdirSync(folder).includes('connections.log'));
    }
    const { failures } = await environment.client.call('stopLoad', { load });
    assert.deepEqual(failures, {});
    const all = await allEnded(service);
    assert.equal(all.length, await counted('connections_total', service));
    assert.ok(statSync(path).size > 0 && statSync(`${path}.5`).size > 0);
  });

  test('a reader of tail that stands still costs no connection, and is told what is missing', async () => {
    const service = await environment.serve({ name: 'followed' });
    const { child, said } = tail('test/followed', '-o', 'json');
    try {
      const shown = () => said.stdout.split('\n').slice(0, -1);
      // Those that end before it follows are not shown.
      await waitFor('a line', async () => {
        await environment.client.call('requests', { ...service, count: 1 });
        return shown().length > 0;
      });
      const inFile = (await allEnded(service)).map((line) => JSON.stringify(line));
      await waitFor('the last line', () => shown().at(-1) === inFile.at(-1));
      assert.deepEqual(shown(), inFile.slice(-shown().length));
      const before = inFile.length - shown().length;
      child.kill('SIGSTOP');
      const { failures } = await environment.client.call('requests', { ...service, count: MANY, concurrency: 16 });
      assert.deepEqual(failures, {});
      assert.equal((await allEnded(service)).length, inFile.length + MANY);
      const dropped = metric(
        await environment.metricsText(),
        'userspace_proxy_connection_log_dropped_total',
        'at="tail"',
      );
      assert.ok(dropped > 0, 'more than fits into its queue');
      child.kill('SIGCONT');
      const all = () =>
        said.stdout
          .split('\n')
          .slice(0, -1)
          .map((text) => JSON.parse(text) as Line);
      const told = () => sum(all(), ({ missing }) => missing ?? 1);
      const expected = inFile.length - before + MANY;
      await waitFor('the rest', () => told() >= expected);
      assert.equal(told(), expected);
      assert.equal(
        sum(all(), ({ missing }) => missing ?? 0),
        dropped,
      );
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('a full file system costs no connection, and no line when there is room again', async () => {
    const service = await environment.serve({ name: 'crowded' });
    const filler = join(folder, 'filler');
    const megabyte = Buffer.alloc(1 << 20);
    const fill = () => {
      // Down to the last byte of the page that the log ends in.
      for (const piece of [megabyte, megabyte.subarray(0, 4096), megabyte.subarray(0, 1)]) {
        try {
          for (;;) appendFileSync(filler, piece);
        } catch (error) {
          assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
        }
      }
    };
    fill();
    const count = 3_000;
    const { failures } = await environment.client.call('requests', { ...service, count, concurrency: 16 });
    assert.deepEqual(failures, {});
    assert.equal(await counted('connections_total', service), count);
    assert.ok(statSync(path).size % 4096 === 0, 'it ends with a full page');
    rmSync(filler);
    await waitFor('all lines', () => whole(service).length >= count);
    assert.equal(whole(service).length, count);
    const dropped = metric(
      await environment.metricsText(),
      'userspace_proxy_connection_log_dropped_total',
      'at="file"',
    );
    assert.equal(dropped, 0);
    // The part of a line that fitted stays, in a line of its own.
    renameSync(path, join(folder, 'torn'));
    process.kill(pid, 'SIGUSR2');
    await waitFor('a new file', () => existsSync(path));
  });

  /** Of the current file, without the parts of lines. */
  function whole({ name }: Pick<Served, 'name'>): string[] {
    const texts = readFileSync(path, 'utf8').split('\n');
    return texts.filter((text) => text.startsWith('{') && text.endsWith('}') && text.includes(`"test/${name}"`));
  }

  test('tail of a Service that does not exist', async () => {
    const { code, stderr } = await environment.topology.node.run([
      ...[PROGRAM, 'tail', 'test/nothing:80'],
      `--control-socket=${environment.proxy.controlSocket}`,
    ]);
    assert.equal(code, 1);
    assert.match(stderr, /tail: no Service that this node serves matches test\/nothing:80: names must match exactly/);
  });

  test('an open connection keeps its begin and its bytes through an upgrade, and tail goes on', {
    skip: !isFast,
  }, async () => {
    const service = await environment.serve({ name: 'upgraded', ports: [{ port: 80, target: TCP.echo }] });
    const { child, said } = tail('test/upgraded');
    try {
      await waitFor('it to follow', () => said.stdout.includes('Service'));
      const exchange = async (connection: number, text: string) => {
        await environment.client.call('write', { connection, text });
        assert.equal(await environment.client.call('read', { connection, bytes: text.length }), text);
      };
      const beganMs = Date.now();
      const { connection } = await environment.client.call('open', service);
      await exchange(connection, 'before');
      const openedMs = Date.now();
      process.kill(pid, 'SIGHUP');
      const line = await waitFor(
        'the upgrade',
        () => environment.proxy.lines({ msg: 'Handed over to the successor' })[0],
      );
      pid = Number(line['pid']);
      await exchange(connection, 'and after');
      await waitFor('tail to follow again', () => said.stderr.includes('Following the proxy again'));
      await environment.client.call('end', { connection });
      const [entry] = await allEnded(service);
      assert.deepEqual([entry?.received, entry?.sent, entry?.end], [15, 15, 'client-end']);
      const began = Date.parse(entry?.began ?? '');
      assert.ok(began >= beganMs - 5 && began <= openedMs + 5, `${entry?.began}`);
      const shown = await waitFor('the line', () =>
        said.stdout.split('\n').find((text) => text.includes('client-end')),
      );
      assert.match(shown, / TCP {2}10\.244\.1\.20:\d+ +10\.244\.1\.\d+:8081 +client-end .* 15 +15 test\/upgraded$/);
      assert.ok(shown.length <= 120, `${shown.length} columns`);
    } finally {
      child.kill('SIGINT');
    }
    await waitFor('tail to end', () => child.exitCode !== null);
    assert.equal(child.exitCode, 0, 'Ctrl-C is a clean end');
  });
});
