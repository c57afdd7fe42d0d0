import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';

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
