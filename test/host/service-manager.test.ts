import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { ServiceManager } from '../../src/host/service-manager.ts';
import { machineUptimeMs } from '../../src/host/system-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { NotifySocket } from '../support/notify-socket.ts';
import { until } from '../support/until.ts';

function manager(path: string | undefined) {
  const log = new RecordingLog();
  const env = path === undefined ? {} : { NOTIFY_SOCKET: path };
  return { log, manager: new ServiceManager({ env, uptimeMs: () => 12.3456789, log }) };
}

function socketPath(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'notify-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return join(folder, 'socket');
}

for (const [what, pathOf] of [
  ['a path', socketPath],
  ['an abstract name', () => `@kup-test-${process.pid}`],
] as const) {
  test(`systemd hears of each state at ${what}`, async (t) => {
    const socket = await NotifySocket.listen(pathOf(t));
    t.after(() => socket.close());
    const { manager: systemd, log } = manager(socket.path);
    await systemd.ready();
    await systemd.reloading();
    await systemd.successor(77);
    await systemd.stopping();
    await until('all to arrive', () => socket.lines.length === 4);
    assert.deepEqual(socket.lines, ['READY=1', 'RELOADING=1 MONOTONIC_USEC=12345', 'MAINPID=77', 'STOPPING=1']);
    assert.deepEqual(log.lines, []);
  });
}

test('without NOTIFY_SOCKET nothing is said', async () => {
  for (const path of [undefined, '']) {
    const { manager: systemd, log } = manager(path);
    await systemd.ready();
    assert.deepEqual(log.lines, []);
  }
});

test('where nobody listens, that is logged once and nothing fails', async (t) => {
  for (const path of [socketPath(t), `/${'x'.repeat(200)}`]) {
    const { manager: systemd, log } = manager(path);
    await systemd.ready();
    await systemd.stopping();
    assert.equal(log.of('warn').length, 1);
  }
});

test('the clock is the one that all processes share', () => {
  const ms = machineUptimeMs();
  assert.ok(Math.abs(ms - Number(process.hrtime.bigint()) / 1e6) < 1000);
});
