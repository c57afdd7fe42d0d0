import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { NotifySocket } from '../../support/notify-socket.ts';
import { isAlive } from '../../support/processes.ts';
import { isFast, metric, type Served, TCP, testEnvironment, UDP } from '../harness.ts';
import { buildOnce, PROGRAM } from '../proxy.ts';
import { output, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const MIB = 1 << 20;
const IDLE = 20;
const UPGRADES = Number(process.env['KUP_TEST_UPGRADES'] ?? 3);
const CONCURRENCY = 4;
const WAITING = 1_000;
const FAULTY = fileURLToPath(new URL('../programs/faulty-program.ts', import.meta.url));

/** The path of the program on disk, and the file that is there. */
class Installed {
  readonly path: string;
  readonly #folder: string;
  #last = 0;

  constructor(folder: string) {
    mkdirSync(folder);
    this.#folder = folder;
    this.path = join(folder, 'kube-userspace-proxy');
  }

  link(target: string): void {
    symlinkSync(target, join(this.#folder, 'next'));
    renameSync(join(this.#folder, 'next'), this.path);
  }

  /** The program of these sources, with a fault: see `faulty-program.ts`. */
  faulty(fault: string): void {
    this.script(`KUP_TEST_FAULT='${fault}' exec '${process.execPath}' '${FAULTY}' "$@"`);
  }

  script(text: string): void {
    const script = join(this.#folder, `${++this.#last}.sh`);
    writeFileSync(script, `#!/bin/sh\n${text}\n`);
    chmodSync(script, 0o755);
    this.link(script);
  }
}

describe('without the fast engine', { skip: isFast }, () => {
  const environment = testEnvironment({});

  test('the proxy reports that it cannot upgrade, and serves on', async () => {
    const service = await environment.serve({ name: 'web' });
    environment.proxy.kill('SIGHUP');
    const reason = /portable engine cannot pass connections on; use --dataplane fast/;
    await waitFor('the report', () => environment.proxy.log.some(({ msg }) => reason.test(msg)));
    assert.deepEqual((await environment.client.call('requests', { ...service, count: 3 })).failures, {});
  });
});

describe('an upgrade in place (SIGHUP), and one that fails in the middle', { skip: !isFast }, () => {
  const environment = testEnvironment();
  let installed: Installed;
  let systemd: NotifySocket;
  /** The process that serves now. */
  let pid: number;
  let echo: Served;
  let name: Served;
  let source: Served;
  let sink: Served;
  let dns: Served;
  let descriptorsBefore: number;

  before(async () => {
    buildOnce();
    installed = new Installed(environment.temporary('installed'));
    systemd = await NotifySocket.listen(environment.temporary('notify'));
    await start(() => installed.link(PROGRAM));
    [echo, name, source, sink] = [await serve('echo'), await serve('name'), await serve('source'), await serve('sink')];
    dns = await environment.serve({
      name: 'dns',
      affinitySeconds: 600,
      ports: [{ port: 53, target: UDP['udp-name'], protocol: 'UDP' }],
    });
    await underLoad(async () => {});
    await waitFor('all to be closed', async () => (await counted('connections_active')) === 0);
    descriptorsBefore = descriptors();
  });

  after(async () => {
    if (isAlive(pid)) process.kill(pid, 'SIGKILL');
    systemd.close();
  });

  const serve = (mode: keyof typeof TCP) => environment.serve({ name: mode, ports: [{ port: 80, target: TCP[mode] }] });

  async function start(install: () => void): Promise<void> {
    install();
    await environment.startProxy({ program: installed.path, env: { NOTIFY_SOCKET: systemd.path } });
    // Before, it drops requests to upgrade.
    await waitFor('it to say so', () => environment.proxy.lines({ msg: 'Started' })[0]);
    pid = environment.proxy.pid;
  }

  const descriptors = () => readdirSync(`/proc/${pid}/fd`).length;

  /** All that runs on the node. */
  async function processes(): Promise<readonly number[]> {
    const pids = await output(['ip', 'netns', 'pids', environment.topology.node.name]);
    return pids.split('\n').filter(Boolean).map(Number).filter(isAlive);
  }

  const ends = () =>
    environment.proxy.log.filter(({ msg }) =>
      /^(Handed over|Cannot hand over|Cannot upgrade|The successor failed)/.test(msg),
    );

  /** Resolves with the line in which the old process reports the end. */
  async function upgrade(): Promise<Readonly<Record<string, unknown>>> {
    const count = ends().length;
    process.kill(pid, 'SIGHUP');
    return await waitFor('the end of the upgrade', () => ends()[count], 60_000);
  }

  /** All kinds of traffic, for as long as `during` takes. */
  async function underLoad(during: () => Promise<void>) {
    const { client } = environment;
    const idle = await client.call('openMany', { ...echo, count: IDLE });
    const { socket } = await client.call('udpOpen', {});
    const ask = async () => (await client.call('udpAsk', { socket, ...dns, text: 'x' }))?.text.split(' ')[0];
    const backend = await ask();
    const load = await client.call('startLoad', { ...name, concurrency: CONCURRENCY });
    let isOver = false;
    const transfers: boolean[] = [];
    const ways = [
      ['download', source],
      ['upload', sink],
    ] as const;
    const transferring = ways.map(async ([way, target]) => {
      while (!isOver) {
        const done = client.call(way, { ...target, bytes: 16 * MIB }).then(({ intact }) => intact);
        transfers.push(await done.catch(() => false));
      }
    });
    const stop = async () => {
      isOver = true;
      await Promise.all(transferring);
      return client.call('stopLoad', { load });
    };
    // A load that goes on would fail all later tests.
    await during().catch(async (err: unknown) => {
      await stop();
      throw err;
    });
    const { failures, names, ms } = await stop();
    const answers = Object.values(names).reduce((sum, each) => sum + each);
    for (const connection of idle) await client.call('write', { connection, text: 'still' }).catch(() => {});
    for (const connection of idle) await client.call('read', { connection, bytes: 5 });
    const states = new Set(await client.call('states', { list: idle }));
    for (const connection of idle) await client.call('reset', { connection });
    return { states, failures, answers, slowestMs: Math.max(...ms), transfers, sameBackend: (await ask()) === backend };
  }

  /** `had`: the processes that there were before. */
  async function expectToServe(had: readonly number[]): Promise<void> {
    assert.ok(isAlive(pid));
    const told = /^RELOADING=1 MONOTONIC_USEC=\d+ STATUS=,READY=1 STATUS=.*(serves as before|serves again): .+$/;
    await waitFor('systemd to hear that it is over, and of nothing else', () => {
      return told.test(systemd.lines.slice(-2).join());
    });
    await waitFor('all others to be gone', async () => (await processes()).every((each) => had.includes(each)));
    await waitFor('its metrics', async () => (await environment.lastSync()) > 0);
  }

  const counted = async (what: string, ...labels: string[]) =>
    metric(await environment.metricsText(), `userspace_proxy_${what}`, ...labels);
  const connections = () => counted('connections_total', 'service="name"');

  /** The state before, the report of the end, and what clients have seen. */
  async function upgradeToFaulty(t: TestContext, fault: string) {
    const had = await processes();
    const rules = await environment.captured.ours();
    const before = await connections();
    installed.faulty(fault);
    let line: Readonly<Record<string, unknown>> = {};
    const { slowestMs, ...seen } = await underLoad(async () => {
      line = await upgrade();
    });
    t.diagnostic(`${line['err']}; the slowest request took ${Math.round(slowestMs)} ms`);
    return { had, rules, before, line, ...seen };
  }

  for (const [what, fault] of [
    ['is killed before its hello', 'before hello SIGKILL'],
    ['is killed while everything is frozen', 'after hello SIGKILL'],
    ['is killed before it has adopted everything', 'before adopted SIGKILL'],
    ['hangs there', 'before adopted SIGSTOP'],
    ['loses a worker while it adopts', 'worker open'],
    ['is killed when it has everything', 'after adopted SIGKILL'],
    ['is killed before it touches anything', 'before owning SIGKILL'],
    ['hangs there', 'before owning SIGSTOP'],
    ['gets SIGTERM there', 'before owning SIGTERM'],
  ] as const) {
    test(`a successor that ${what} (${fault}) costs nothing: the old process goes on`, async (t) => {
      const { had, rules, before, answers, line, ...seen } = await upgradeToFaulty(t, fault);
      assert.match(String(line['msg']), /^Cannot hand over to a successor; this process serves as before$/);
      assert.deepEqual(seen, {
        states: new Set(['open']),
        failures: {},
        transfers: seen.transfers.map(() => true),
        sameBackend: true,
      });
      await expectToServe(had);
      assert.deepEqual(await environment.captured.ours(), rules);
      assert.equal(await connections(), before + answers);
    });
  }

  test('none of these leaves a descriptor behind', async () => {
    await waitFor('all to be closed', () => descriptors() <= descriptorsBefore);
  });

  for (const [what, fault] of [
    ['is killed when it is about to touch everything', 'after owning SIGKILL'],
    ['is killed when it has gone on', 'before serving SIGKILL'],
    ['hangs there', 'before serving SIGSTOP'],
  ] as const) {
    test(`a successor that ${what} (${fault}) costs what was open, and nobody is refused`, async (t) => {
      const { had, rules, before, answers, line, ...seen } = await upgradeToFaulty(t, fault);
      assert.match(String(line['msg']), /^The successor failed once it had gone on/);
      assert.deepEqual(seen.states, new Set(['ECONNRESET']));
      // Those that were under way, in both. What a dead process had accepted itself may have ended in order.
      const { ECONNRESET = 0, NO_ANSWER = 0, ...others } = seen.failures;
      assert.deepEqual(others, {});
      assert.ok(ECONNRESET + NO_ANSWER <= 2 * CONCURRENCY, JSON.stringify(seen.failures));
      await expectToServe(had);
      assert.deepEqual(await environment.captured.ours(), rules);
      // The successor's own are gone with it.
      const after = await connections();
      assert.ok(after > before && after <= before + answers + 2 * CONCURRENCY, `${before}, ${after}`);
      const { failures } = await environment.client.call('requests', { ...name, count: 20 });
      assert.deepEqual(failures, {});
    });
  }

  test('what a broken file said is served on: the upgrade is refused, with the place, until it is corrected', async () => {
    installed.link(PROGRAM);
    const { manifests, client, proxy } = environment;
    const kept = await environment.serve({ name: 'kept', ports: [{ port: 80, target: TCP.echo }] });
    // Nothing of this one was ever served, so it is in nobody's way.
    manifests.write('never.yaml', 'kind: [');
    manifests.write('kept.yaml', 'apiVersion: v1\nkind: [broken\n');
    const reported = (what: string) => proxy.lines({ msg: what }).length > 0;
    await waitFor('one to be kept', () => reported('A manifest file cannot be used; its last good state is kept'));
    await waitFor('one not', () => reported('A manifest file cannot be used; nothing of it is served'));
    const { connection } = await client.call('open', kept);
    const refusal = await upgrade();
    assert.equal(refusal['msg'], 'Cannot hand over to a successor; this process serves as before');
    assert.match(
      String(refusal['err']),
      /\/kept\.yaml:\d+ cannot be used \(.+\); this process serves what was said before;/,
    );
    await waitFor('systemd to hear why', () => /STATUS=.*\/kept\.yaml:\d/.test(systemd.lines.at(-1) ?? ''));
    await client.call('write', { connection, text: 'still' });
    assert.equal(await client.call('read', { connection, bytes: 5 }), 'still');
    await client.call('reset', { connection: (await client.call('open', kept)).connection });

    environment.write(kept);
    await waitFor('it to be valid', () => reported('A manifest file is valid again'));
    const line = await upgrade();
    assert.match(String(line['msg']), /^Handed over/, JSON.stringify(line));
    await waitFor('the old process to end', () => !isAlive(pid));
    pid = Number(line['pid']);
    await client.call('write', { connection, text: 'still' });
    assert.equal(await client.call('read', { connection, bytes: 5 }), 'still');
    await client.call('reset', { connection });
    manifests.remove('never.yaml');
  });

  test(`${UPGRADES} upgrades in a row lose nothing, half-closed connections and later changes included`, async (t) => {
    installed.link(PROGRAM);
    const { client } = environment;
    const { connection: asking } = await client.call('open', sink);
    await client.call('write', { connection: asking, text: 'question' });
    const { connection: ended } = await client.call('open', await serve('early-end'));
    assert.equal(await client.call('read', { connection: ended, bytes: 3 }), 'bye');
    const rules = await environment.captured.ours();
    const { slowestMs, answers, transfers, ...seen } = await underLoad(async () => {
      for (let round = 0; round < UPGRADES; round++) {
        const line = await upgrade();
        assert.match(String(line['msg']), /^Handed over/, JSON.stringify(line));
        await waitFor('the old process ends', () => !isAlive(pid));
        pid = Number(line['pid']);
        const told = new RegExp(`^RELOADING=1 MONOTONIC_USEC=\\d+ STATUS=,MAINPID=${pid},READY=1$`);
        await waitFor('systemd to hear of it', () => told.test(systemd.lines.slice(-3).join()));
        const synced = () => environment.proxy.log.findLastIndex(({ msg }) => msg === 'Rules are in sync');
        const tookOver = environment.proxy.log.findLastIndex(({ msg }) => msg === 'Took over from the predecessor');
        await waitFor('the first sync of the new one', () => synced() > tookOver);
        await client.call('write', { connection: ended, text: 'more' });
      }
    });
    assert.deepEqual(seen, { states: new Set(['open']), failures: {}, sameBackend: true });
    assert.ok(transfers.length >= 2 && transfers.every((intact) => intact), `${transfers}`);
    await client.call('end', { connection: asking });
    assert.match((await client.call('finish', { connection: asking })).text, /^8 [0-9a-f]{64}$/);
    await client.call('end', { connection: ended });
    assert.match((await client.call('finish', { connection: ended })).how, /^(ended|closed)$/);
    assert.deepEqual(await environment.captured.ours(), rules);
    const pauses = environment.proxy.lines({ msg: 'Handed over to the successor' }).map((line) => line['ms']);
    t.diagnostic(`${answers} requests, slowest ${slowestMs} ms; paused for ${pauses.join(', ')} ms`);

    const later = await environment.serve({ name: 'later', endpoints: [POD_ADDRESSES[1]] });
    assert.deepEqual((await client.call('requests', { ...later, count: 2 })).names, { 'pod-2': 2 });
  });

  test('1,000 clients that wait for an endpoint wait on in the successor', async (t) => {
    installed.link(PROGRAM);
    const { client } = environment;
    const waiting = async () => await counted('clients_waiting', 'service="asleep"');
    const asleep = await environment.serve({
      name: 'asleep',
      annotations: { 'kube-userspace-proxy/wait-for-endpoints': '5m' },
      ports: [{ port: 80, target: TCP.echo }],
      endpoints: [],
    });
    const crowd = await client.call('gather', { ...asleep, count: WAITING });
    await waitFor('all to wait', async () => (await waiting()) === WAITING);
    const line = await upgrade();
    assert.match(String(line['msg']), /^Handed over/, JSON.stringify(line));
    await waitFor('the old process to end', () => !isAlive(pid));
    pid = Number(line['pid']);
    await waitFor('all to wait there', async () => (await waiting()) === WAITING);
    environment.write({ ...asleep, endpoints: [POD_ADDRESSES[0]] });
    const { fates } = await client.call('disperse', { crowd });
    t.diagnostic(`paused for ${line['ms']} ms`);
    assert.deepEqual(fates, { answered: WAITING });
  });

  test('a second request while one is under way is dropped, and a stop ends both', async () => {
    installed.script('exec sleep 60');
    const count = ends().length;
    const starting = () => environment.proxy.lines({ msg: 'Starting a successor' });
    const started = starting().length;
    process.kill(pid, 'SIGHUP');
    const successor = Number((await waitFor('it to be started', () => starting()[started]))['pid']);
    process.kill(pid, 'SIGHUP');
    await waitFor('it to be dropped', () =>
      environment.proxy.log.some(({ msg }) => msg.startsWith('An upgrade is under way already')),
    );
    process.kill(pid, 'SIGTERM');
    assert.deepEqual(await environment.proxy.exited(), { code: 0, signal: null });
    assert.ok(!isAlive(successor));
    assert.equal(ends().length, count, 'a stop is no failure');
    await waitFor('systemd to hear of it', () => systemd.lines.at(-1) === 'STOPPING=1');
  });

  describe('a fault of the old process', () => {
    /** Starts one with a fault, and its successor without one, or from the script `successor`. */
    async function begin(fault: string | undefined, successor?: string): Promise<number> {
      await start(() => (fault === undefined ? installed.link(PROGRAM) : installed.faulty(fault)));
      if (successor !== undefined) installed.script(successor);
      process.kill(pid, 'SIGHUP');
      const line = await waitFor('a successor', () => environment.proxy.lines({ msg: 'Starting a successor' })[0]);
      return Number(line['pid']);
    }

    for (const fault of [undefined, 'before end SIGKILL'] as const) {
      test(`a successor whose predecessor dies too early (${fault ?? 'while it starts'}) ends`, async () => {
        const isDead = environment.temporary('predecessor-is-dead');
        const later = `while [ ! -e '${isDead}' ]; do sleep 0.01; done; exec '${PROGRAM}' "$@"`;
        const successor = await begin(fault, fault === undefined ? later : undefined);
        if (fault === undefined) {
          process.kill(pid, 'SIGKILL');
          await waitFor('its end', () => !isAlive(pid));
          writeFileSync(isDead, '');
        }
        await waitFor('both to end', () => !isAlive(pid) && !isAlive(successor));
        await environment.proxy.exited();
        assert.match(
          environment.proxy.log.at(-1)?.msg ?? '',
          /^kube-userspace-proxy: cannot take over from a predecessor: the .* ended/,
        );
      });
    }

    for (const fault of ['after end SIGKILL', 'after released SIGKILL'] as const) {
      test(`a successor whose predecessor dies after that (${fault}) serves, with every connection`, async () => {
        await start(() => installed.faulty(fault));
        const { failures, states } = await underLoad(async () => {
          process.kill(pid, 'SIGHUP');
          await waitFor('the old process to end', () => !isAlive(pid));
          const tookOver = () => environment.proxy.lines({ msg: 'Took over from the predecessor' })[0];
          await waitFor('the new one to serve', tookOver);
        });
        assert.deepEqual(failures, {});
        assert.deepEqual(states, new Set(['open']));
        pid = Number(environment.proxy.lines({ msg: 'Starting a successor' })[0]?.['pid']);
        process.kill(pid, 'SIGTERM');
        await waitFor('it to end', () => !isAlive(pid));
      });
    }

    test('an old process that is stopped for a while before it lets go hands over all the same', async () => {
      const successor = await begin('before released SIGSTOP');
      await waitFor('it to stop', () => isStopped(pid));
      process.kill(pid, 'SIGCONT');
      await waitFor('it to end', () => !isAlive(pid));
      await waitFor('its end to be noticed', () => !environment.proxy.running);
      pid = successor;
      const { failures } = await environment.client.call('requests', { ...name, count: 5 });
      assert.deepEqual(failures, {});
      process.kill(pid, 'SIGTERM');
      await waitFor('it to end', () => !isAlive(pid));
    });
  });
});

function isStopped(pid: number): boolean {
  return /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
}
