import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, type TestContext, test } from 'node:test';
import { checkDescriptorLimit, descriptorLimit, measureLoopDelay } from '../../src/kernel/process.ts';
import type { LoopDelayMs } from '../../src/model/metrics.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { until } from '../support/until.ts';

const MODULE = new URL('../../src/kernel/process.ts', import.meta.url);

/** What a process said that ran this, and the code it ended with; it gets a minute. */
async function ended(t: TestContext, program: string, flags: readonly string[] = []) {
  const source = `import { endProcess } from '${MODULE}'; ${program}`;
  const child = spawn(process.execPath, [...flags, '--input-type=module', '--eval', source], {
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: 60_000,
    killSignal: 'SIGKILL',
  });
  t.after(() => child.kill('SIGKILL'));
  const [said, [code]] = await Promise.all([text(child.stdout as Readable), once(child, 'exit')]);
  return { said, code };
}

test('ends with the code, although there is more to do, and after the handlers of "exit"', async (t) => {
  const program = `
    import { Worker } from 'node:worker_threads';
    const worker = new Worker('setInterval(() => {}, 1000)', { eval: true });
    await new Promise((resolve) => worker.once('online', resolve));
    setInterval(() => {}, 1000);
    process.on('exit', (code) => console.log('with', code));
    await endProcess(3);
    console.log('not this');`;
  assert.deepEqual(await ended(t, program), { said: 'with 3\n', code: 3 });
});

test("ends while one of V8's threads waits for a garbage collection by the main thread", async (t) => {
  // The flag has a thread allocate beside the program. About every third that then calls process.exit never ends.
  const program = `
    const until = performance.now() + 60;
    for (const kept = []; performance.now() < until; ) kept.push({ number: kept.length });
    await endProcess(3);`;
  const all = Array.from({ length: 8 }, () => ended(t, program, ['--stress-concurrent-allocation']));
  for (const each of await Promise.all(all)) assert.deepEqual(each, { said: '', code: 3 });
});

test('restores blocking output', async (t) => {
  const program = `import { endProcess } from '${MODULE}'; console.log('said'); await endProcess(0);`;
  const script = '"$0" --input-type=module --eval "$1"; grep flags /proc/self/fdinfo/1';
  const child = spawn('sh', ['-c', script, process.execPath, program], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  const [, flags = ''] = /^said\nflags:\s*(\d+)\n$/.exec(await text(child.stdout as Readable)) ?? [];
  assert.equal(Number.parseInt(flags, 8) & constants.O_NONBLOCK, 0, flags);
});

describe('the limit on open files', () => {
  test('is the soft limit', () => {
    const text =
      'Limit  Soft Limit  Hard Limit  Units\nMax processes  1  2  processes\nMax open files            1024                 524288               files\n';
    assert.equal(descriptorLimit(text), 1_024);
    assert.equal(descriptorLimit(text.replace('1024 ', 'unlimited ')), undefined);
    assert.equal(descriptorLimit(''), undefined);
  });

  test('is warned about once when it is below the UDP flows', () => {
    const log = new RecordingLog();
    checkDescriptorLimit(1, log);
    assert.deepEqual(log.lines, []);
    checkDescriptorLimit(2 ** 40, log);
    assert.deepEqual(
      log.lines.map(({ level, fields }) => [level, fields['udpMaxFlows']]),
      [['warn', 2 ** 40]],
    );
  });
});

/** Waits for a measurement that is like this: whatever else this machine does makes others different. */
async function measured(what: string, take: () => LoopDelayMs | undefined, isSo: (delay: LoopDelayMs) => boolean) {
  await until(what, () => {
    const delay = take();
    return delay !== undefined && isSo(delay);
  });
}

test('an idle event loop has no delay', async () => {
  const take = measureLoopDelay(100);
  await measured('less than that', take, ({ min, mean, p50, p90, p99, max }) => {
    const values = [min, p50, p90, p99, max];
    for (const [index, value] of values.entries()) assert.ok(value >= (values[index - 1] ?? 0), values.join());
    return mean < 50 && max < 50;
  });
});

test('the delay of a blocked event loop is measured', async () => {
  const take = measureLoopDelay(10);
  const cell = new Int32Array(new SharedArrayBuffer(4));
  const takeHeldUp = () => {
    Atomics.wait(cell, 0, 0, 100);
    return take();
  };
  // Between two measurements there is a turn, or part of one, in which it is held up.
  await measured('it is seen', takeHeldUp, ({ min }) => min >= 90);
});
