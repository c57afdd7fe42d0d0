import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { NotifySocket } from '../../support/notify-socket.ts';
import { isAlive } from '../../support/process-state.ts';
import type { Agent } from '../agent.ts';
import { isFast, TCP, testEnvironment, UDP } from '../harness.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const MIB = 1 << 20;
const UPGRADES = 3;
const IDLE = 50;

describe('an upgrade in place (SIGHUP)', () => {
  const environment = testEnvironment();
  let client: Agent;
  /** The process that serves now. */
  let pid: number;
  let systemd: NotifySocket;

  before(async () => {
    systemd = await NotifySocket.listen(environment.temporary('notify'));
    await environment.startProxy({ env: { NOTIFY_SOCKET: systemd.path } });
    client = environment.client;
    pid = environment.proxy.pid;
  });

  after(async () => {
    if (isAlive(pid)) process.kill(pid, 'SIGKILL');
    systemd.close();
  });

  const serve = (mode: keyof typeof TCP) =>
    environment.serve({ name: mode, ports: [{ port: 80, target: TCP[mode] }], endpoints: POD_ADDRESSES });

  /** Resolves with the line that says how it went. */
  async function upgrade(): Promise<Readonly<Record<string, unknown>>> {
    const ends = () =>
      environment.proxy.log.filter(({ msg }) => /^(Handed over|Cannot hand over|Cannot upgrade)/.test(msg));
    const count = ends().length;
    process.kill(pid, 'SIGHUP');
    return await waitFor('the upgrade', () => ends()[count], 60_000);
  }

  async function succeed(): Promise<void> {
    const line = await upgrade();
    assert.match(String(line['msg']), /^Handed over/, JSON.stringify(line));
    await waitFor('the old process ends', () => !isAlive(pid));
    pid = Number(line['pid']);
    const told = new RegExp(`^RELOADING=1 MONOTONIC_USEC=\\d+,MAINPID=${pid},READY=1$`);
    await waitFor('it says that it is ready', () => told.test(systemd.lines.slice(-3).join()));
    const synced = () => environment.proxy.log.findLastIndex(({ msg }) => msg === 'Rules are in sync');
    const tookOver = environment.proxy.log.findLastIndex(({ msg }) => msg === 'Took over from the predecessor');
    await waitFor('the first sync of the new one', () => synced() > tookOver);
  }

  test('the portable engine reports that it cannot upgrade, and serves on', { skip: isFast }, async () => {
    const service = await serve('name');
    assert.match(String((await upgrade())['msg']), /portable engine cannot pass connections on; use --dataplane fast/);
    assert.deepEqual((await client.call('requests', { ...service, count: 3 })).failures, {});
  });

  test(`${UPGRADES} in a row lose nothing: new connections, transfers, idle ones, half-closed ones, UDP flows`, {
    skip: !isFast,
  }, async (t) => {
    const name = await serve('name');
    const sink = await serve('sink');
    const source = await serve('source');
    const echo = await serve('echo');
    const earlyEnd = await serve('early-end');
    const dns = await environment.serve({
      name: 'dns',
      affinitySeconds: 600,
      ports: [{ port: 53, target: UDP['udp-name'], protocol: 'UDP' }],
      endpoints: POD_ADDRESSES,
    });
    const idle = await client.call('openMany', { ...echo, count: IDLE });
    const { connection: halfClosed } = await client.call('open', sink);
    await client.call('write', { connection: halfClosed, text: 'question' });
    const { connection: ended } = await client.call('open', earlyEnd);
    assert.equal(await client.call('read', { connection: ended, bytes: 3 }), 'bye');
    const { socket } = await client.call('udpOpen', {});
    const ask = async () => (await client.call('udpAsk', { socket, ...dns, text: 'x' }))?.text.split(' ')[0];
    const backend = await ask();
    const rules = await environment.iptables.save();
    const load = await client.call('startLoad', { ...name, concurrency: 4 });
    let isOver = false;
    const transfers: boolean[] = [];
    const transferring = ['upload', 'download'].map(async (way) => {
      while (!isOver) {
        const target = way === 'upload' ? sink : source;
        const { intact } = await client.call(way as 'upload', { ...target, bytes: 32 * MIB });
        transfers.push(intact);
      }
    });

    for (let round = 0; round < UPGRADES; round++) {
      await succeed();
      for (const connection of idle) await client.call('write', { connection, text: `round ${round}` });
      for (const connection of idle) {
        assert.equal(await client.call('read', { connection, bytes: 7 }), `round ${round}`);
      }
      assert.equal(await ask(), backend);
      await client.call('write', { connection: ended, text: 'more' });
    }

    isOver = true;
    await Promise.all(transferring);
    const { failures, names, ms } = await client.call('stopLoad', { load });
    assert.deepEqual(failures, {});
    assert.ok(transfers.length >= 2 && transfers.every((intact) => intact), `${transfers}`);
    assert.deepEqual(new Set(await client.call('states', { list: idle })), new Set(['open']));
    await client.call('end', { connection: halfClosed });
    assert.match((await client.call('finish', { connection: halfClosed })).text, /^8 [0-9a-f]{64}$/);
    await client.call('end', { connection: ended });
    assert.match((await client.call('finish', { connection: ended })).how, /^(ended|closed)$/);
    assert.deepEqual(await environment.iptables.save(), rules);
    const pauses = environment.proxy.lines({ msg: 'Handed over to the successor' }).map((line) => line['ms']);
    t.diagnostic(`${Object.values(names).reduce((sum, each) => sum + each)} requests, slowest ${Math.max(...ms)} ms`);
    t.diagnostic(`${transfers.length} transfers of 32 MiB; paused for ${pauses.join(', ')} ms`);
  });

  test('later changes take effect, and SIGTERM ends the new process in order', {
    skip: !isFast,
  }, async () => {
    const ports = [{ port: 80, target: TCP.name }];
    const service = await environment.serve({ name: 'later', ports, endpoints: [POD_ADDRESSES[1]] });
    assert.deepEqual((await client.call('requests', { ...service, count: 2 })).names, { 'pod-2': 2 });
    process.kill(pid, 'SIGTERM');
    await waitFor('it ends', () => !isAlive(pid));
    await waitFor('systemd to have heard of it', () => systemd.lines.at(-1) === 'STOPPING=1');
  });
});
