import assert from 'node:assert/strict';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { AS_CONTAINER, isAlive } from '../../support/processes.ts';
import { isFast, type Served, TCP, testEnvironment } from '../harness.ts';
import type { ProxyProcess } from '../proxy.ts';
import { waitFor } from '../wait.ts';

const IDLE = 20;
const MIB = 1 << 20;
const FAULTY = fileURLToPath(new URL('../programs/faulty-program.ts', import.meta.url));

describe('a new Pod beside the one that serves (--hand-over-socket)', { skip: !isFast }, () => {
  const environment = testEnvironment();
  let args: readonly string[];
  let serving: ProxyProcess;
  let echo: Served;
  let name: Served;
  let source: Served;

  before(async () => {
    args = ['--hand-over-socket', join(environment.temporary('shared'), 'hand-over.sock')];
    serving = await environment.startProxy({ args, through: AS_CONTAINER });
    const serve = (mode: keyof typeof TCP) =>
      environment.serve({ name: mode, ports: [{ port: 80, target: TCP[mode] }] });
    [echo, name, source] = [await serve('echo'), await serve('name'), await serve('source')];
    await waitFor('it has started', () => serving.lines({ msg: 'Started' }).length > 0);
  });

  /** Starts one that ends as `until` says. */
  const start = (until: (proxy: ProxyProcess) => boolean, options: Parameters<typeof environment.startProxy>[0] = {}) =>
    environment.startProxy({
      through: AS_CONTAINER,
      ...options,
      args: [...args, ...(options.args ?? [])],
      ready: async () => until(environment.proxy),
    });
  const hasStarted = (proxy: ProxyProcess) => proxy.lines({ msg: 'Started' }).length > 0;

  /** What clients see of a change of the process, whatever they are doing. */
  async function underLoad(during: () => Promise<void>): Promise<void> {
    const { client } = environment;
    const idle = await client.call('openMany', { ...echo, count: IDLE });
    const load = await client.call('startLoad', { ...name, concurrency: 4 });
    const transfer = client.call('download', { ...source, bytes: 64 * MIB });
    await during();
    assert.deepEqual((await client.call('stopLoad', { load })).failures, {});
    assert.equal((await transfer).intact, true);
    for (const connection of idle) await client.call('write', { connection, text: 'still' });
    for (const connection of idle) assert.equal(await client.call('read', { connection, bytes: 5 }), 'still');
    for (const connection of idle) await client.call('reset', { connection });
  }

  /** The process of the program, as this machine numbers it. */
  function programOf(proxy: ProxyProcess): number {
    const children = readFileSync(`/proc/${proxy.pid}/task/${proxy.pid}/children`, 'utf8').trim();
    return Number(children.split(' ')[0]);
  }

  test('takes over all that it has, and nobody notices; process 1 of the old one waits for its end', async () => {
    for (let i = 0; i < 3; i++) {
      const old = serving;
      await underLoad(async () => {
        serving = await start(hasStarted);
      });
      const line = await waitFor('the old one to say so', () => old.lines({ msg: 'Handed over to the successor' })[0]);
      assert.equal(line['version'], serving.lines({ msg: 'Started' })[0]?.['version']);
      const pid = programOf(old);
      const command = () => readFileSync(`/proc/${pid}/cmdline`, 'utf8');
      await waitFor('it to stand in', () => command().startsWith('kube-userspace-proxy: handed over'));
      // Or a connection that the new one closes would stay open. The first three are this test's.
      const files = () =>
        readdirSync(`/proc/${pid}/fd`).map((fd) => [fd, readlinkSync(`/proc/${pid}/fd/${fd}`)] as const);
      assert.deepEqual(
        files().filter(([fd, file]) => Number(fd) > 2 && file.startsWith('socket:')),
        [],
      );
      assert.ok(old.running);
      await waitFor('it to hear SIGTERM', () => {
        if (isAlive(pid)) process.kill(pid, 'SIGTERM');
        return !old.running;
      });
      assert.equal((await old.exited()).code, 0);
    }
  });

  test('is refused when it has another engine, and the old one serves on', async () => {
    await underLoad(async () => {
      const refused = await start((proxy) => proxy.lines({ msg: 'Stop' }).length > 0, {
        args: ['--dataplane', 'node'],
      }).catch((error: unknown) => error);
      assert.match(String(refused), /the proxy has ended[\s\S]*its engine cannot take over connections/);
    });
    await waitFor('the old one to say so', () => serving.log.some(({ err }) => /its engine cannot/.test(String(err))));
  });

  for (const fault of ['after hello SIGKILL', 'before adopted SIGKILL', 'before owning SIGKILL']) {
    test(`that dies on the way (${fault}) costs nothing`, async () => {
      const cannot = () => serving.log.filter(({ msg }) => msg.startsWith('Cannot hand over')).length;
      const failed = cannot();
      await underLoad(async () => {
        const env = { KUP_TEST_FAULT: fault };
        // Process 1 gets no signal from itself.
        const dying = await start(() => false, { env, through: [process.execPath], program: FAULTY }).catch(
          (error: unknown) => error,
        );
        assert.match(String(dying), /the proxy has ended/);
      });
      await waitFor('the old one to say so', () => cannot() > failed);
    });
  }

  test('without the socket there is only one proxy of a node', async () => {
    const other = environment.startProxy({ through: AS_CONTAINER, ready: async () => false });
    await assert.rejects(other, /the proxy has ended[\s\S]*another kube-userspace-proxy/);
    assert.deepEqual((await environment.client.call('requests', { ...name, count: 3 })).failures, {});
  });
});
