import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, type TestContext, test } from 'node:test';
import { close } from '../../src/sys/descriptor.ts';
import { AF_INET, SOCK_SEQPACKET, SOCK_STREAM, socket, socketpair } from '../../src/sys/socket.ts';
import { must } from '../../src/sys/sys-error.ts';
import { programPath, startSuccessor } from '../../src/upgrade/successor-process.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { isAlive } from '../support/processes.ts';

const SOURCE = join(import.meta.dirname, '../../src/upgrade');

const OWN = { execPath: process.execPath, module: process.argv[1] as string };
afterEach(() => {
  process.execPath = OWN.execPath;
  process.argv[1] = OWN.module;
});

/** Starts a Node program of this text as the successor. */
async function successor(t: TestContext, text: string) {
  const folder = mkdtempSync(join(tmpdir(), 'successor-'));
  const file = join(folder, 'main.mjs');
  writeFileSync(file, text);
  process.argv[1] = file;
  const started = await startSuccessor({ program: '1.0', isOffline: true }, systemClock);
  t.after(async () => {
    await started.kill();
    started.channel.close();
    rmSync(folder, { recursive: true });
  });
  return started;
}

const soon = () => ({ untilMs: systemClock.now() + 60_000 });

test('the program on disk gets a channel, and its own child processes do not', async (t) => {
  const { channel, pid } = await successor(
    t,
    `import { spawnSync } from 'node:child_process';
     import { findPredecessor } from '${SOURCE}/successor-process.ts';
     const clock = { now: () => 0, after: (ms, run) => setTimeout(run, ms) };
     const { channel, isOffline } = await findPredecessor(process.env, clock);
     const ls = 'echo ' + isOffline + '; env | grep -c HANDOVER; ls -l /proc/self/fd | grep -c socket';
     const { stdout } = spawnSync('sh', ['-c', ls], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
     await channel.send({ kind: 'hello', versions: [process.pid], program: stdout });
     setInterval(() => {}, 1000);`,
  );
  assert.ok(isAlive(pid));
  const { versions, program } = await channel.expect('hello', soon());
  assert.deepEqual(versions, [pid]);
  assert.deepEqual(program.trim().split('\n'), ['true', '0', '0']);
});

test('the end of a successor is noticed at once', async (t) => {
  const { channel } = await successor(t, 'process.exit(3)');
  await assert.rejects(channel.expect('hello', soon()), /ended before it said "hello"/);
});

test('a successor that ignores signals can be killed, and is dead then', async (t) => {
  const started = await successor(t, "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)");
  assert.ok(isAlive(started.pid));
  await started.kill();
  assert.ok(!isAlive(started.pid));
  await started.kill();
});

test('a missing program is reported in a sentence', async () => {
  process.execPath = '/nowhere/at/all';
  await assert.rejects(
    startSuccessor({ program: '1.0', isOffline: false }, systemClock),
    /spawn \/nowhere\/at\/all ENOENT/,
  );
});

/** A program that opens the channel to its predecessor, and prints the result. */
const ASKING = `
  import { findPredecessor } from '${SOURCE}/successor-process.ts';
  import { systemClock } from '${SOURCE}/../util/system-clock.ts';
  try {
    await findPredecessor(process.env, systemClock);
    console.log('a predecessor');
  } catch (error) {
    console.log(error.message);
  }
  process.exit();
`;

/** What that program prints, started `through` something else. */
async function asked(
  t: TestContext,
  through: readonly string[],
  { fd3 = 'ignore', env = {} }: { fd3?: number | 'ignore'; env?: NodeJS.ProcessEnv } = {},
): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'asking-'));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'main.mjs'), ASKING);
  const [file, ...args] = [...through, process.execPath, join(folder, 'main.mjs')];
  const child = spawn(file as string, args, {
    stdio: ['ignore', 'pipe', 'inherit', fd3],
    env: { ...process.env, ...env },
    timeout: 120_000,
    killSignal: 'SIGKILL',
  });
  const [said] = await Promise.all([text(child.stdout as Readable), once(child, 'exit')]);
  return said;
}

const socketPair = (type: number) => {
  const ends = new Int32Array(2);
  must('socketpair', socketpair(type, ends));
  return [...ends] as [number, number];
};

const none = () => 'ignore' as const;

for (const [what, fd3, value, expected] of [
  ['not a number', none, 'three', /FD="three" leads to no process that hands over \(it is not a number\)/],
  ['empty', none, '', /FD="" leads to .* \(it is not a number\)/],
  ['negative', none, '-1', /\(it is not a number\)/],
  ['more than any descriptor', none, '999999999', /\(EBADF: bad file descriptor, fstat\)/],
  ['closed', none, '77', /\(EBADF: bad file descriptor, fstat\)/],
  ['a file', none, '3', /\(it is not a socket\)/],
  ['a socket at which nobody answers', () => socketPair(SOCK_SEQPACKET)[0], '3', /did not answer in time/],
  ['a socket of another kind', () => socketPair(SOCK_STREAM)[0], '3', /did not answer in time/],
  ['a socket that is not connected', () => socket(AF_INET, SOCK_STREAM), '3', /ENOTCONN/],
  [
    'a socket whose other end is closed',
    () => {
      const [own, other] = socketPair(SOCK_SEQPACKET);
      close(other);
      return own;
    },
    '3',
    /ended before it said "hello"/,
  ],
] as const) {
  test(`a channel that is ${what} ends the start with a sentence, and soon`, async (t) => {
    const inherited = fd3();
    const said = await asked(t, [], { fd3: inherited, env: { KUBE_USERSPACE_PROXY_HANDOVER_FD: value } });
    if (typeof inherited === 'number') close(inherited);
    assert.match(said, expected);
    assert.match(said, /^KUBE_USERSPACE_PROXY_HANDOVER_FD=.*; only such a process sets it, so unset it\n$/);
  });
}

test('the program itself ends with that sentence, and 1', async () => {
  const child = spawn(process.execPath, [join(SOURCE, '../main.ts'), '--manifests', tmpdir()], {
    stdio: ['ignore', 'inherit', 'pipe'],
    env: { ...process.env, KUBE_USERSPACE_PROXY_HANDOVER_FD: 'three' },
    timeout: 120_000,
    killSignal: 'SIGKILL',
  });
  const [said, [code]] = await Promise.all([text(child.stderr as Readable), once(child, 'exit')]);
  assert.match(said, /^kube-userspace-proxy: KUBE_USERSPACE_PROXY_HANDOVER_FD="three" leads to no process .*\n$/);
  assert.equal(code, 1);
});

test('a blocking socket does not block the start', async (t) => {
  const blocking = `use Socket; $^F = 99; socketpair(my $own, my $other, AF_UNIX, SOCK_SEQPACKET, 0) or die;
    $ENV{KUBE_USERSPACE_PROXY_HANDOVER_FD} = fileno($own); exec @ARGV`;
  assert.match(await asked(t, ['perl', '-e', blocking]), /\(the other process did not answer in time\)/);
});

/** A program, and a link that leads to it. */
function installed(t: TestContext) {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'program-')));
  t.after(() => rmSync(folder, { recursive: true }));
  const [file, link] = [join(folder, 'program-1.0'), join(folder, 'program')];
  writeFileSync(file, '');
  symlinkSync(file, link);
  return { file, link };
}

test('the path of the program is the one that it was called by, even a link', (t) => {
  const { file, link } = installed(t);
  assert.equal(programPath({ argv0: file, execPath: file }), file);
  assert.equal(programPath({ argv0: link, execPath: file }), link);
});

test('a name that leads elsewhere, or nowhere, is not used', (t) => {
  const { file } = installed(t);
  for (const argv0 of ['program', '/bin/sh', '/nowhere/at/all']) {
    assert.equal(programPath({ argv0, execPath: file }), file);
  }
});

test('a file that was replaced during the start is found under its name', (t) => {
  const { file, link } = installed(t);
  const execPath = `${file} (deleted)`;
  assert.equal(programPath({ argv0: file, execPath }), file);
  assert.equal(programPath({ argv0: link, execPath }), link);
  assert.equal(programPath({ argv0: 'program', execPath }), file);
});
