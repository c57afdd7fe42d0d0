import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { settle, until } from '../../support/until.ts';
import { controlServer, folder, serving } from './served.ts';

const RETRY_MS = 5_000;
const NOBODY = 65_534;

function mode(path: string): string {
  return (statSync(path).mode & 0o777).toString(8);
}

function isReached(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false));
    socket.on('close', () => socket.destroy()).on('connect', () => socket.destroy());
  });
}

/** Leaves the socket of a killed process at this path. */
function stale(path: string): void {
  const script = `require('node:net').createServer().listen(process.argv[1], () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync(process.execPath, ['-e', script, path]);
  assert.ok(lstatSync(path).isSocket());
}

async function startedAt(t: TestContext, path: string) {
  const parts = controlServer(t, path);
  parts.server.start();
  await serving(parts.log);
  return parts;
}

/** Starts a server that cannot have its path, and expects this reason. */
async function refusedAt(t: TestContext, path: string, reason: RegExp) {
  const parts = controlServer(t, path);
  parts.server.start();
  await until('the reason is logged', () => parts.log.of('error').length > 0);
  assert.match(String(parts.log.of('error')[0]?.fields['err']), reason);
  return {
    ...parts,
    retry: () => {
      parts.clock.advance(RETRY_MS);
      return serving(parts.log);
    },
  };
}

describe('the socket', () => {
  test('is open to its owner only, in a folder that is made for it and stays', async (t) => {
    const path = join(folder(t), 'a/b/control.sock');
    const { server } = await startedAt(t, path);
    assert.equal(mode(path), '600');
    assert.equal(mode(join(path, '..')), '700');
    assert.equal(mode(join(path, '../..')), '700');
    assert.deepEqual(readdirSync(join(path, '..')), ['control.sock']);
    const bound = readFileSync('/proc/net/unix', 'utf8').match(new RegExp(`${join(path, '..')}\\S*`, 'g'));
    assert.equal(bound?.length, 1);
    assert.match(String(bound), /\/\.\w{6}\/control\.sock$/, 'ss shows its name');
    await server.close();
    assert.deepEqual(readdirSync(join(path, '..')), []);
  });

  test('keeps the mode of an existing folder', async (t) => {
    const directory = folder(t);
    chmodSync(directory, 0o755);
    await startedAt(t, join(directory, 'control.sock'));
    assert.equal(mode(directory), '755');
  });

  const asRoot = { skip: process.getuid?.() !== 0 && 'needs root' };
  for (const [whose, spoil, repair, reason] of [
    [
      'everybody',
      (at) => chmodSync(at, 0o777),
      (at) => chmodSync(at, 0o1777),
      /every user can replace files in .*; take/,
    ],
    ['another user', (at) => chownSync(at, NOBODY, NOBODY), (at) => chownSync(at, 0, 0), /belongs to user 65534/],
    [
      'a group that is not root’s',
      (at) => {
        chownSync(at, 0, NOBODY);
        chmodSync(at, 0o770);
      },
      (at) => chmodSync(at, 0o1770),
      /group 65534 can replace files in .*; take that away/,
    ],
  ] satisfies [string, (at: string) => void, (at: string) => void, RegExp][]) {
    test(`is not made where ${whose} could put another in its place`, asRoot, async (t) => {
      const directory = folder(t);
      spoil(directory);
      const { retry } = await refusedAt(t, join(directory, 'control.sock'), reason);
      assert.deepEqual(readdirSync(directory), []);
      repair(directory);
      await retry();
    });
  }

  test(
    'is not made below a folder that another user could replace, nor where a link leads to one',
    asRoot,
    async (t) => {
      const above = folder(t);
      mkdirSync(join(above, 'a/b'), { recursive: true });
      const link = join(folder(t), 'link');
      symlinkSync(join(above, 'a/b'), link);
      chmodSync(above, 0o777);
      for (const directory of [join(above, 'a/b'), link]) {
        const reason = new RegExp(`^every user can replace files in ${above}; take`);
        const { retry } = await refusedAt(t, join(directory, 'control.sock'), reason);
        assert.deepEqual(readdirSync(directory), []);
        chmodSync(above, 0o755);
        await retry();
        chmodSync(above, 0o777);
        rmSync(join(directory, 'control.sock'));
      }
    },
  );

  test('cannot be opened by another user', asRoot, async (t) => {
    const directory = folder(t);
    chmodSync(directory, 0o755);
    const path = join(directory, 'control.sock');
    await startedAt(t, path);
    const script = `require('node:net').connect(process.argv[1]).on('connect', () => process.exit(0)).on('error', ({ code }) => { console.log(code); process.exit(1); })`;
    const as = (uid: number) => spawnSync(process.execPath, ['-e', script, path], { uid, gid: uid, encoding: 'utf8' });
    const other = as(NOBODY);
    assert.deepEqual([other.status, other.stdout], [1, 'EACCES\n'], other.stderr);
    assert.equal(as(0).status, 0);
  });

  test('does not replace one that is served, until that one is gone', async (t) => {
    const path = join(folder(t), 'control.sock');
    const first = await startedAt(t, path);
    const { ino } = lstatSync(path);
    const { log, clock, retry } = await refusedAt(t, path, /^another process serves it, .*--control-socket$/);
    assert.match(
      log.lines[0]?.message ?? '',
      /^Cannot serve HTTP here; retrying every 5 s; subcommands do not reach this process; see --control-socket$/,
    );
    assert.equal(lstatSync(path).ino, ino);
    clock.advance(RETRY_MS);
    await until('it has tried again', () => clock.pendingTimers === 1);
    assert.equal(log.lines.length, 1, 'told once');
    await first.server.close();
    await retry();
    assert.equal(await isReached(path), true);
  });

  test('never removes a file or a symbolic link', async (t) => {
    const directory = folder(t);
    const file = join(directory, 'file');
    const link = join(directory, 'link');
    writeFileSync(file, 'precious');
    symlinkSync(file, link);
    for (const path of [file, link]) {
      const { server } = await refusedAt(t, path, /not a socket is in its place; remove it/);
      await server.close();
    }
    assert.equal(readFileSync(file, 'utf8'), 'precious');
    assert.ok(lstatSync(link).isSymbolicLink());
  });

  test('is not served when its path is taken at the last moment, and is when it is free', async (t) => {
    const path = join(folder(t), 'control.sock');
    stale(path);
    const { server, log, clock } = controlServer(t, path);
    server.start();
    // Now it tests whether a process serves the path.
    rmSync(path);
    mkdirSync(join(path, 'full'), { recursive: true });
    await until('it is logged', () => log.of('error').length > 0);
    rmSync(path, { recursive: true });
    clock.advance(RETRY_MS);
    await serving(log);
    assert.equal(await isReached(path), true);
  });

  test('leaves no file where it cannot be made', async (t) => {
    const directory = folder(t);
    writeFileSync(join(directory, 'file'), '');
    await refusedAt(
      t,
      join(directory, 'file/control.sock'),
      /is no directory; remove it, or give another --control-socket/,
    );
    await refusedAt(t, join(directory, 'x'.repeat(120)), /./);
    assert.deepEqual(readdirSync(directory), ['file']);
  });
});

describe('a server that is closed', () => {
  test('does not remove the socket of another server at its path', async (t) => {
    const path = join(folder(t), 'control.sock');
    const first = await startedAt(t, path);
    rmSync(path);
    await startedAt(t, path);
    await first.server.close();
    assert.equal(await isReached(path), true);
  });

  test('closes also when its files are gone', async (t) => {
    const path = join(folder(t), 'made/control.sock');
    const { server } = await startedAt(t, path);
    rmSync(join(path, '..'), { recursive: true });
    await server.close();
  });

  test('before it listens never does', async (t) => {
    const path = join(folder(t), 'control.sock');
    const { server } = controlServer(t, path);
    server.start();
    await server.close();
    await settle();
    assert.equal(existsSync(path), false);
  });

  test('does not retry', async (t) => {
    const directory = folder(t);
    mkdirSync(join(directory, 'control.sock'));
    const { server, clock, log } = controlServer(t, join(directory, 'control.sock'));
    server.start();
    await until('it will try again', () => clock.pendingTimers === 1);
    await server.close();
    assert.equal(clock.pendingTimers, 0);
    assert.equal(log.of('error').length, 1);
  });
});

describe('of two servers', () => {
  test('that replace a dead one at the same time, one is reached, and only that one removes the socket', async (t) => {
    const path = join(folder(t), 'control.sock');
    stale(path);
    const servers = [controlServer(t, path), controlServer(t, path)];
    for (const { server } of servers) server.start();
    await until('both have tried', () => servers.every(({ log }) => log.lines.length > 0));
    assert.equal(await isReached(path), true);
    assert.deepEqual(readdirSync(join(path, '..')), ['control.sock']);
    const states: boolean[] = [];
    for (const { server } of servers) {
      await server.close();
      states.push(await isReached(path));
    }
    assert.equal(states.at(-1), false);
    assert.deepEqual(readdirSync(join(path, '..')), []);
  });

  test('the predecessor is gone before the successor listens', async (t) => {
    const path = join(folder(t), 'control.sock');
    let current = await startedAt(t, path);
    for (let round = 0; round < 20; round++) {
      const closed = current.server.close();
      const next = controlServer(t, path);
      // At the same time, or after the predecessor has closed.
      if (round % 2 === 1) await closed;
      next.server.start();
      await closed;
      await until('the successor has tried', () => next.log.lines.length > 0);
      if (next.log.of('error').length > 0) next.clock.advance(RETRY_MS);
      await serving(next.log);
      assert.equal(await isReached(path), true);
      assert.deepEqual(readdirSync(join(path, '..')), ['control.sock']);
      current = next;
    }
  });
});
