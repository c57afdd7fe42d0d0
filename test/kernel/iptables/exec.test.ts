import assert from 'node:assert/strict';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createExec, type Exec } from '../../../src/kernel/iptables/exec.ts';
import { startExecHelper } from '../../../src/kernel/iptables/exec-helper.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { isAlive } from '../../support/process-state.ts';
import { until } from '../../support/until.ts';
import { sh } from './sh.ts';

let temporary: string;
before(() => {
  temporary = mkdtempSync(join(tmpdir(), 'kup-exec-'));
});
after(() => rmSync(temporary, { recursive: true, force: true }));

interface Implementation {
  readonly exec: Exec;
  close(): void;
}

const IMPLEMENTATIONS: readonly [name: string, create: (options?: { timeoutMs: number }) => Implementation][] = [
  ['as our own child', (options) => ({ exec: createExec({ clock: systemClock, ...options }), close: () => {} })],
  ['in the helper', (options) => startExecHelper({ clock: systemClock, log: new RecordingLog(), ...options })],
];

for (const [name, create] of IMPLEMENTATIONS) {
  describe(`running a program ${name}`, () => {
    let implementation: Implementation;
    const exec: Exec = (request) => implementation.exec(request);
    before(() => {
      implementation = create();
    });
    after(() => implementation.close());

    test('gives it the input and yields output and code, byte for byte', async () => {
      const bytes = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code)).join('');
      assert.deepEqual(await exec(sh('cat; echo why >&2; exit 3', bytes)), {
        outcome: 'exited',
        code: 3,
        stdout: bytes,
        stderr: 'why\n',
      });
    });

    test('carries megabytes both ways', async () => {
      const text = Array.from({ length: 4 << 17 }, (_, line) => String(line % 10_000_000).padStart(7, '0')).join('\n');
      const result = await exec(sh('cat', text));
      assert.ok(result.outcome === 'exited' && result.stdout === text, result.outcome);
    });

    test('passes arguments as they are: no shell reads them', async () => {
      const result = await exec({ program: 'printf', args: ['%s|', 'a b', '$(id)', ';', '*', '\u00fc\n'] });
      assert.equal(
        result.outcome === 'exited' && Buffer.from(result.stdout, 'latin1').toString(),
        'a b|$(id)|;|*|ü\n|',
      );
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

    test('that may not be run, or that a signal ends, is reported', async () => {
      const denied = await exec({ program: '/etc/passwd', args: [] });
      assert.ok(denied.outcome === 'failed' && /EACCES/.test(denied.err));
      const killed = await exec(sh('kill -9 $$'));
      assert.ok(killed.outcome === 'exited' && killed.code === null);
    });

    test('is ended at the deadline with all that it has started, and the next one runs', async () => {
      const timed = create({ timeoutMs: 3000 });
      const pids = join(temporary, `pids-${name}`);
      const result = timed.exec(sh(`sleep 600 & echo $$ $! > '${pids}.new'; mv '${pids}.new' '${pids}'; wait`));
      await until('both have started', () => existsSync(pids));
      const [shell = 0, sleeper = 0] = readFileSync(pids, 'utf8').split(' ').map(Number);
      assert.deepEqual(await result, { outcome: 'timeout', timeoutMs: 3000 });
      await until('both have ended', () => !isAlive(shell) && !isAlive(sleeper));
      const next = await timed.exec(sh('echo next'));
      assert.equal(next.outcome === 'exited' && next.stdout, 'next\n');
      timed.close();
    });

    test('happens one at a time, in the order of the requests', async () => {
      const journal = join(temporary, `journal-${name}`);
      const step = (n: number) =>
        exec(sh(`echo begin ${n} >> '${journal}'; sleep 0.02; echo end ${n} >> '${journal}'`));
      await Promise.all([step(1), exec({ program: 'kup-no-such-program', args: [] }), step(2), step(3)]);
      const expected = [1, 2, 3].map((n) => `begin ${n}\nend ${n}\n`).join('');
      assert.equal(readFileSync(journal, 'utf8'), expected);
    });
  });
}

describe('running a program as our own child', () => {
  test('goes by the clock that it is given', async () => {
    const clock = new ManualClock();
    const timed = createExec({ clock, timeoutMs: 5000 });
    const started = join(temporary, 'started');
    const result = timed(sh(`echo $$ > ${started}.new; mv ${started}.new ${started}; sleep 600`));
    await until('it has started', () => existsSync(started));
    clock.advance(4999);
    assert.ok(isAlive(Number(readFileSync(started, 'utf8'))));
    clock.advance(1);
    assert.deepEqual(await result, { outcome: 'timeout', timeoutMs: 5000 });
    assert.equal((await timed(sh('exit 0'))).outcome, 'exited');
    assert.equal(clock.pendingTimers, 0);
  });

  test('survives that no descriptor is left to start it with', async () => {
    const exec = createExec({ clock: systemClock });
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
});
