import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { startSuccessor } from '../../src/handover/successor-process.ts';
import { systemClock } from '../../src/host/system-clock.ts';
import { isAlive } from '../support/process-state.ts';

const SOURCE = join(import.meta.dirname, '../../src/handover');

/** What takes the place of the program on disk: a Node program of this text. */
async function successor(t: TestContext, text: string) {
  const folder = mkdtempSync(join(tmpdir(), 'successor-'));
  const file = join(folder, 'program');
  writeFileSync(join(folder, 'main.mjs'), text);
  writeFileSync(file, `#!/bin/sh\nexec ${process.execPath} ${join(folder, 'main.mjs')} "$@"\n`);
  chmodSync(file, 0o755);
  process.env['KUBE_USERSPACE_PROXY_PROGRAM'] = file;
  const started = await startSuccessor({ clock: systemClock });
  t.after(async () => {
    await started.kill();
    started.channel.close();
    rmSync(folder, { recursive: true });
  });
  return started;
}

const soon = () => systemClock.now() + 20_000;

test('the program on disk gets a channel, and what it starts in turn learns nothing of it', async (t) => {
  const { channel, pid } = await successor(
    t,
    `import { spawnSync } from 'node:child_process';
     import { channelToPredecessor } from '${SOURCE}/successor-process.ts';
     const clock = { now: () => 0, after: (ms, run) => setTimeout(run, ms) };
     const channel = channelToPredecessor(process.env, clock);
     const ls = 'env | grep -c HANDOVER; ls -l /proc/self/fd | grep -c socket';
     const { stdout } = spawnSync('sh', ['-c', ls], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
     await channel.send({ kind: 'hello', versions: [process.pid], program: stdout });`,
  );
  assert.ok(isAlive(pid));
  const { versions, program } = await channel.expect('hello', soon());
  assert.deepEqual(versions, [pid]);
  assert.deepEqual(program.trim().split('\n'), ['0', '0']);
});

test('one that ends at once is noticed as such', async (t) => {
  const { channel } = await successor(t, 'process.exit(3)');
  await assert.rejects(channel.expect('hello', soon()), /ended before it said "hello"/);
});

test('one that ignores everything can be killed, and is dead then', async (t) => {
  const started = await successor(t, "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)");
  assert.ok(isAlive(started.pid));
  await started.kill();
  assert.ok(!isAlive(started.pid));
  await started.kill();
});

test('a program that is not there is a sentence', async () => {
  process.env['KUBE_USERSPACE_PROXY_PROGRAM'] = '/nowhere/at/all';
  await assert.rejects(startSuccessor({ clock: systemClock }), /spawn \/nowhere\/at\/all ENOENT/);
});
