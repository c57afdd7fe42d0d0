import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { selfCheck } from '../../src/sys/self-check.ts';

/** Runs the check in a process that takes itself for another machine than it is, once koffi's addon is loaded. */
function checkOnMachine(arch: string): string {
  const script = `
    await import('koffi');
    Object.defineProperty(process, 'arch', { value: '${arch}' });
    const { selfCheck } = await import('${new URL('../../src/sys/self-check.ts', import.meta.url)}');
    try { selfCheck(); console.log('sound'); } catch (err) { console.log(err.message); }`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: import.meta.dirname,
    encoding: 'utf8',
  });
  return stdout + stderr;
}

test('the layouts hold on this machine, and nothing is left behind', () => {
  const before = readdirSync('/proc/self/fd').length;
  selfCheck();
  assert.equal(readdirSync('/proc/self/fd').length, before);
});

test('another machine’s layout of epoll events is refused', () => {
  const other = process.arch === 'x64' ? 'arm64' : 'x64';
  assert.equal(checkOnMachine(process.arch).trim(), 'sound');
  assert.match(checkOnMachine(other), /^an epoll event should be .* and is .*: the layouts of this machine differ/);
});

test('a machine without known layouts is refused', () => {
  assert.match(checkOnMachine('riscv64'), /^linux on riscv64 is not supported/);
});

test('the check leaves room for nothing that is inherited by child processes', () => {
  // Every descriptor of this folder is closed at exec: a child of iptables must not keep connections open.
  const script = `
    import { openListenSocket } from '${new URL('../../src/engine/fast/listen-socket.ts', import.meta.url)}';
    import { eventfd } from '${new URL('../../src/sys/descriptor.ts', import.meta.url)}';
    import { Epoll } from '${new URL('../../src/sys/epoll.ts', import.meta.url)}';
    import { pipe } from '${new URL('../../src/sys/descriptor.ts', import.meta.url)}';
    import { execFileSync } from 'node:child_process';
    const list = () => execFileSync('ls', ['/proc/self/fd'], { encoding: 'utf8' });
    const before = list();
    for (const protocol of ['TCP', 'UDP']) openListenSocket({ name: 'a/b', protocol, address: '127.0.0.1', port: 0 });
    eventfd(); new Epoll(1); pipe(new Int32Array(2));
    console.log(before === list());`;
  const printed = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' });
  assert.equal(printed.trim(), 'true');
});
