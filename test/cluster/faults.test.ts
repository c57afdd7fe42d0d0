import assert from 'node:assert/strict';
import { globSync, renameSync, writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { TCP } from '../netns/harness.ts';
import { Shims } from '../netns/iptables.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { Cluster, type ServedService } from './cluster.ts';

const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;
/** Of the Service default/kubernetes: the first address of the range. */
const API_SERVER = '10.96.0.1';

/** client-go's bound for a connection that has died without a word. */
const NOTICE_MS = 45_000;
/** What a machine that does much else may take beyond that. */
const SLACK_MS = 30_000;
/** Between the server's return and the first change of it that is served: the longest backoff of 30 s, and a list. */
const RECOVERY_MS = 90_000;

const web = (name: string) => ({ name, ports: [{ port: 80, target: TCP.name }] });

interface Stage {
  readonly cluster: Cluster;
  readonly proxy: ProxyProcess;
  /** No rule was written, and the local port is the same. */
  expectNoSync(): Promise<void>;
}

/**
 * Runs `play` while a client sends requests without a pause and keeps one connection open: none of them may fail. Each
 * test has a cluster of its own, so that the long waits overlap.
 */
async function onStage(
  play: (stage: Stage) => Promise<void>,
  env: (cluster: Cluster) => NodeJS.ProcessEnv = () => ({}),
) {
  const cluster = await Cluster.create();
  try {
    const { client } = cluster.environment;
    const shims = await Shims.create(cluster.environment.temporary('shims'));
    const proxy = await cluster.startProxy({ env: { PATH: shims.path, ...env(cluster) } });
    const service = await cluster.serve(web('web'), POD_ADDRESSES);
    await cluster.isUp(service, ALL);
    const echo = await cluster.serve({ name: 'echo', ports: [{ port: 7, target: TCP.echo }] }, POD_ADDRESSES);
    // Until its endpoints are known, rules refuse connections.
    const open = () => client.call('open', { host: echo.host, port: echo.port }).catch(() => undefined);
    const { connection } = await waitFor('the Service echo accepts', open);
    const load = await client.call('startLoad', { host: service.host, port: 80, concurrency: 1 });
    const localPort = () => cluster.environment.localPort('test/web');
    const portBefore = await localPort();
    // The server creates this Service by itself, some time after it is ready.
    await cluster.environment.waitForRules(API_SERVER, 1);
    await cluster.isCarried(API_SERVER);
    shims.forget();

    const expectNoSync = async () => {
      assert.deepEqual(shims.writes(), []);
      assert.equal(await localPort(), portBefore);
    };
    await play({ cluster, proxy, expectNoSync });

    const { names, failures } = await client.call('stopLoad', { load });
    assert.deepEqual(failures, {});
    assert.deepEqual(Object.keys(names).sort(), [...ALL]);
    await client.call('write', { connection, text: 'still there' });
    assert.equal(await client.call('read', { connection, bytes: 11 }), 'still there');
    assert.equal(await localPort(), portBefore);
    await cluster.isUp(service, ALL);
    assert.ok(proxy.running);
  } finally {
    await cluster.remove();
  }
}

/** Gives how many milliseconds after `begun` the proxy notices. */
async function notices({ cluster }: Stage, begun: number): Promise<number> {
  await waitFor('the proxy notices', async () => !(await cluster.apiState()).connected, NOTICE_MS + SLACK_MS);
  return performance.now() - begun;
}

/** `/metrics`, `/healthz` and the log show that the state is old; the proxy is healthy all the same. */
async function showsAge({ cluster, proxy }: Stage): Promise<void> {
  const before = await cluster.apiState();
  await sleep(1_200);
  const after = await cluster.apiState();
  assert.deepEqual([before.connected, after.connected], [false, false]);
  assert.ok(after.staleSeconds > before.staleSeconds + 1, JSON.stringify([before, after]));
  const { status, apiServer } = await cluster.healthz();
  assert.equal(status, 200);
  assert.equal(apiServer.connected, false);
  assert.ok(Math.abs(apiServer.staleForSeconds - after.staleSeconds) < 30, JSON.stringify([apiServer, after]));
  assert.equal(
    proxy.lines({ msg: 'Cannot watch the API server; the last known state is served until it is back' }).length,
    1,
  );
}

async function serves(stage: Stage, name: string, begun: number): Promise<number> {
  return await answers(stage, await stage.cluster.create(web(name), POD_ADDRESSES), begun);
}

/** Gives how many milliseconds after `begun` the Service answers. */
async function answers({ cluster }: Stage, { host }: ServedService, begun: number): Promise<number> {
  const { client } = cluster.environment;
  const ask = () => client.call('request', { host, port: 80, timeoutMs: 1_000 }).catch(() => undefined);
  await waitFor(`the Service at ${host} is served`, ask, RECOVERY_MS);
  return performance.now() - begun;
}

describe('the API server goes away', { concurrency: 3, timeout: 900_000 }, () => {
  test('killed: noticed at once; its return alone changes nothing, and what is created then appears', (context) =>
    onStage(async (stage) => {
      const { cluster, expectNoSync } = stage;
      await cluster.plane.killApiServer();
      const noticed = await notices(stage, performance.now());
      assert.ok(noticed < 20_000, `not after a silence: ${noticed} ms`);
      await showsAge(stage);
      await expectNoSync();
      await cluster.plane.startApiServer();
      const returned = performance.now();
      await waitFor('the proxy follows again', async () => (await cluster.apiState()).connected, RECOVERY_MS);
      await expectNoSync();
      const recovered = await serves(stage, 'after-kill', returned);
      context.diagnostic(
        `noticed after ${noticed.toFixed(0)} ms, the next Service served ${recovered.toFixed(0)} ms after the return`,
      );
      assert.deepEqual(await cluster.apiState(), { connected: true, staleSeconds: 0 });
    }));

  test('killed, and etcd compacted before it is back: the new list brings only what has changed', (context) =>
    onStage(async (stage) => {
      const { cluster, proxy, expectNoSync } = stage;
      // The proxy is cut off while the server works on, so that there are changes that it cannot learn from a watch.
      await block(cluster);
      await cluster.create(web('while-away'), POD_ADDRESSES);
      await cluster.setEndpoints('echo', POD_ADDRESSES.slice(0, 1));
      await cluster.setEndpoints('echo', POD_ADDRESSES);
      await cluster.plane.killApiServer();
      await cluster.plane.compact();
      await expectNoSync();
      await cluster.plane.startApiServer();
      await unblock(cluster);
      const recovered = await serves(stage, 'after-compaction', performance.now());
      const { spec } = await cluster.admin.get('services', 'while-away');
      await cluster.isUp({ host: spec.clusterIP, port: 80 }, ALL);
      context.diagnostic(`the next Service served ${recovered.toFixed(0)} ms after the return`);
      const exchanges = proxy.lines({ msg: 'An exchange with the API server has ended' });
      assert.ok(
        exchanges.some(({ err }) => /too old resource version/.test(String(err))),
        'its version was forgotten',
      );
    }));

  test('stopped (SIGSTOP): noticed within 45 s, recovers after SIGCONT', (context) =>
    onStage(async (stage) => {
      const { cluster, expectNoSync } = stage;
      await sleep(2_000);
      cluster.plane.signalApiServer('SIGSTOP');
      const noticed = await notices(stage, performance.now());
      await showsAge(stage);
      await expectNoSync();
      cluster.plane.signalApiServer('SIGCONT');
      const recovered = await serves(stage, 'after-stop', performance.now());
      context.diagnostic(
        `noticed after ${(noticed / 1_000).toFixed(1)} s, the next Service served ${recovered.toFixed(0)} ms after SIGCONT`,
      );
    }));

  test('its packets dropped: noticed within 45 s; what was created meanwhile appears after it', (context) =>
    onStage(async (stage) => {
      const { cluster, expectNoSync } = stage;
      await block(cluster);
      const begun = performance.now();
      const meanwhile = await cluster.create(web('meanwhile'), POD_ADDRESSES);
      const noticed = await notices(stage, begun);
      await showsAge(stage);
      await expectNoSync();
      await unblock(cluster);
      const recovered = await answers(stage, meanwhile, performance.now());
      context.diagnostic(
        `noticed after ${(noticed / 1_000).toFixed(1)} s, served ${recovered.toFixed(0)} ms after the return`,
      );
    }));

  test('the wall clock jumps by a day, forwards and back: nothing is taken for stale, nothing is disturbed', () => {
    let clock = '';
    return onStage(
      async (stage) => {
        const { cluster, proxy, expectNoSync } = stage;
        for (const offset of ['+1d', '-1d', '+0']) {
          // After a silence it asks on a new connection, for which a certificate of today is not good at any time.
          await cluster.admin.patch('services', 'web', { metadata: { annotations: { 'test/clock': offset } } });
          setClock(clock, offset);
          await waitFor('the proxy has the new time', async () => (await hoursAhead(cluster)) === hours(offset));
          await sleep(1_500);
          assert.deepEqual(await cluster.apiState(), { connected: true, staleSeconds: 0 });
          assert.equal((await cluster.healthz()).status, 200);
          await expectNoSync();
        }
        await serves(stage, 'after-jumps', performance.now());
        assert.equal(proxy.lines({ level: 'error' }).length, 0);
      },
      (cluster) => {
        clock = cluster.environment.temporary('clock');
        setClock(clock, '+0');
        return {
          LD_PRELOAD: fakeTime(),
          FAKETIME_TIMESTAMP_FILE: clock,
          FAKETIME_NO_CACHE: '1',
          // As when somebody sets the clock: only the wall clock jumps.
          FAKETIME_DONT_FAKE_MONOTONIC: '1',
        };
      },
    );
  });
});

/** Drops what the proxy and the server send each other; administrators come by another address. */
async function block({ environment }: Cluster): Promise<void> {
  for (const rule of DROPS) await environment.iptables.must(`-t raw -I PREROUTING ${rule}`);
}

async function unblock({ environment }: Cluster): Promise<void> {
  for (const rule of DROPS) await environment.iptables.must(`-t raw -D PREROUTING ${rule}`);
}

const DROPS = [`-p tcp -d ${NODE_ADDRESS} --dport 6443 -j DROP`, `-p tcp -s ${NODE_ADDRESS} --sport 6443 -j DROP`];

/** Debian's libfaketime, which the package faketime brings. */
function fakeTime(): string {
  const path = globSync('/usr/lib/*/faketime/libfaketimeMT.so.1')[0];
  if (path === undefined) throw new Error('libfaketime is missing; install the Debian package faketime');
  return path;
}

/** In one step, because the proxy may read at any time. */
function setClock(file: string, offset: string): void {
  writeFileSync(`${file}.new`, `${offset}\n`);
  renameSync(`${file}.new`, file);
}

function hours(offset: string): number {
  return { '+1d': 24, '-1d': -24 }[offset] ?? 0;
}

/** By how much the proxy's wall clock is ahead of this machine's, in hours; it tells its time in `/healthz`. */
async function hoursAhead({ environment }: Cluster): Promise<number> {
  const { body } = await environment.node.call('httpGet', { url: 'http://127.0.0.1:10256/healthz' });
  const [date, time] = JSON.parse(body).currentTime.split(' ');
  return Math.round((Date.parse(`${date}T${time}Z`) - Date.now()) / 3_600_000);
}
