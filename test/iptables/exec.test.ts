import assert from 'node:assert/strict';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { systemClock } from '../../src/host/system-clock.ts';
import { createExec } from '../../src/iptables/exec.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

describe('running a program', () => {
  let temporary: string;
  before(() => {
    temporary = mkdtempSync(join(tmpdir(), 'kup-exec-'));
  });
  after(() => rmSync(temporary, { recursive: true, force: true }));

  const exec = createExec({ clock: systemClock });
  const sh = (script: string, input?: string) =>
    ({ program: 'sh', args: ['-c', script], ...(input === undefined ? {} : { input }) }) as const;

  test('gives it the input and yields output and code, byte for byte', async () => {
    const bytes = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code)).join('');
    assert.deepEqual(await exec(sh('cat; echo why >&2; exit 3', bytes)), {
      outcome: 'exited',
      code: 3,
      stdout: bytes,
      stderr: 'why\n',
    });
  });

  test('passes arguments as they are: no shell reads them', async () => {
    const result = await exec({ program: 'printf', args: ['%s|', 'a b', '$(id)', ';', '*'] });
    assert.equal(result.outcome === 'exited' && result.stdout, 'a b|$(id)|;|*|');
  });

  test('asks for untranslated messages', async () => {
    const result = await exec(sh('echo $LC_ALL'));
    assert.equal(result.outcome === 'exited' && result.stdout, 'C\n');
  });

  test('survives a program that does not read its input', async () => {
    assert.deepEqual(await exec(sh('exit 0', 'x'.repeat(1 << 20))), {
      outcome: 'exited',
      code: 0,
      stdout: '',
      stderr: '',
    });
  });

  test('keeps the end of what it says on stderr, and no more', async () => {
    const result = await exec(sh('head -c 100000 /dev/zero | tr "\\0" x >&2; echo; echo the end >&2'));
    assert.ok(result.outcome === 'exited');
    assert.equal(result.stderr.length, 4096);
    assert.match(result.stderr, /the end\n$/);
  });

  test('that is not there is "missing"', async () => {
    assert.deepEqual(await exec({ program: 'kup-no-such-program', args: [] }), { outcome: 'missing' });
  });

  test('survives that no descriptor is left to start it with', async () => {
    const held: number[] = [];
    try {
      assert.throws(() => {
        for (;;) held.push(openSync('/dev/null', 'r'));
      }, /EMFILE/);
      const result = await exec(sh('exit 0'));
      assert.ok(result.outcome === 'failed' && /EMFILE/.test(result.err));
    } finally {
      for (const descriptor of held) closeSync(descriptor);
    }
    assert.equal((await exec(sh('exit 0'))).outcome, 'exited');
  });

  test('that may not be run, or that a signal ends, is reported', async () => {
    const denied = await exec({ program: '/etc/passwd', args: [] });
    assert.ok(denied.outcome === 'failed' && /EACCES/.test(denied.err));
    const killed = await exec(sh('kill -9 $$'));
    assert.ok(killed.outcome === 'exited' && killed.code === null);
  });

  test('is ended at the deadline with all that it has started, and the next one runs', async () => {
    const clock = new ManualClock();
    const timed = createExec({ clock, timeoutMs: 5000 });
    const pids = join(temporary, 'pids');
    const result = timed(sh(`sleep 600 & echo $$ $! > ${pids}.new; mv ${pids}.new ${pids}; wait`));
    await until(() => existsSync(pids));
    clock.advance(4999);
    const [shell = 0, sleeper = 0] = readFileSync(pids, 'utf8').split(' ').map(Number);
    assert.ok(isAlive(shell) && isAlive(sleeper));
    clock.advance(1);
    assert.deepEqual(await result, { outcome: 'timeout', timeoutMs: 5000 });
    await until(() => !isAlive(shell) && !isAlive(sleeper));
    assert.equal((await timed(sh('exit 0'))).outcome, 'exited');
    assert.equal(clock.pendingTimers, 0);
  });

  test('happens one at a time, in the order of the requests', async () => {
    const journal = join(temporary, 'journal');
    const step = (n: number) => exec(sh(`echo begin ${n} >> ${journal}; sleep 0.02; echo end ${n} >> ${journal}`));
    await Promise.all([step(1), exec({ program: 'kup-no-such-program', args: [] }), step(2), step(3)]);
    const expected = [1, 2, 3].map((n) => `begin ${n}\nend ${n}\n`).join('');
    assert.equal(readFileSync(journal, 'utf8'), expected);
  });
});

async function until(condition: () => boolean): Promise<void> {
  for (const giveUp = performance.now() + 5000; !condition(); await delay(5)) {
    assert.ok(performance.now() < giveUp, 'the condition did not come true within 5 s');
  }
}

/** A zombie, which its parent has not yet taken note of, is not alive. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
