import assert from 'node:assert/strict';
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { Environment, TCP } from '../netns/harness.ts';
import { PROGRAM as BUILT, buildOnce, type LogLine, type ProxyProcess } from '../netns/proxy.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { isAlive } from '../support/processes.ts';
import { type Chroot, makeChroot } from './chroot.ts';

const PROGRAM = '/opt/proxy/kube-userspace-proxy';

/** Hardened nodes mount these noexec: no file in them can be run, or mapped as code. */
const NOEXEC = ['/tmp', '/run', '/var/tmp', '/dev/shm'];

const HELPER = 'kube-userspace-proxy: iptables helper';

const WEB = { name: 'web', ports: [{ port: 80, target: TCP.name }], endpoints: POD_ADDRESSES };

const argumentsOf = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
const executableOf = (pid: number) => readlinkSync(`/proc/${pid}/exe`);
const nameOf = (pid: number) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
const threadsOf = (pid: number) => readdirSync(`/proc/${pid}/task`);

const childrenOf = (pid: number) =>
  threadsOf(pid).flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );

/** By a rename, as package managers and our build do. */
function install(file: string): void {
  mkdirSync(dirname(file), { recursive: true });
  copyFileSync(BUILT, `${file}.new`);
  renameSync(`${file}.new`, file);
}

describe('the one executable, on the smallest Debian with iptables', () => {
  let chroot: Chroot;
  let environment: Environment;
  let proxy: ProxyProcess | undefined;
  let file: string;

  before(async () => {
    buildOnce();
    environment = await Environment.create();
    chroot = makeChroot(['iptables']);
    file = join(chroot.path, PROGRAM);
    install(file);
  });

  afterEach(async () => {
    await environment.stopProxies();
    proxy = undefined;
  });

  after(async () => {
    await environment?.remove();
    chroot?.remove();
  });

  async function start(engine: string, noexec = NOEXEC): Promise<ProxyProcess> {
    // The first argument is the program that the tests have built; the one in the chroot takes its place.
    const script = `shift; exec ${PROGRAM} "$@"`;
    const binds = [environment.temporary('')];
    proxy = await environment.startProxy({
      through: chroot.command(['sh', '-c', script, 'sh'], { noexec, binds }),
      args: ['--dataplane', engine],
    });
    return proxy;
  }

  /** The file from which a process has mapped koffi's addon, as a path in the chroot. */
  function addonOf(pid: number): string | undefined {
    const path = /\S*koffi\S*\.node$/m.exec(readFileSync(`/proc/${pid}/maps`, 'utf8'))?.[0];
    return path?.replace(chroot.path, '');
  }

  test('needs no Node, and takes neither arguments nor settings for it', () => {
    assert.equal(chroot.run(['find', '/usr', '/opt', '(', '-iname', 'node*', '-o', '-name', '*.node', ')']).stdout, '');
    const run = (...args: string[]) =>
      chroot.try([PROGRAM, ...args], { noexec: NOEXEC, env: { NODE_OPTIONS: '--no-such-option' } });
    assert.match(run('--version').stdout, /^kube-userspace-proxy v\d+\.\d+\.\d+\n$/);
    const { status, stderr } = run('--max-old-space-size=100');
    assert.match(stderr, /--max-old-space-size/);
    assert.equal(status, 1);
  });

  for (const engine of ['fast', 'node']) {
    test(`balances with the ${engine} engine where nothing but itself may be run`, async () => {
      const { pid, log } = await start(engine);
      const service = await environment.serve(WEB);
      const { names, failures } = await environment.client.call('requests', { ...service, count: 9 });
      assert.deepEqual(failures, {});
      assert.deepEqual(Object.values(names), [3, 3, 3]);
      // In a namespace like this one the kernel always refuses some.
      const isComplaint = ({ level, msg }: LogLine) =>
        (level === 'warn' || level === 'error') && !msg.startsWith('The kernel refused some settings');
      assert.deepEqual(log.filter(isComplaint), []);
      // The node engine uses the addon, too: for connection tracking.
      assert.match(addonOf(pid) ?? '', /^\/var\/lib\/kube-userspace-proxy\/koffi-[0-9a-f]{16}\.node$/);
      assert.equal(statSync(join(chroot.path, '/var/lib/kube-userspace-proxy')).mode & 0o777, 0o700);
      const workers = threadsOf(pid).filter((thread) =>
        readFileSync(`/proc/${pid}/task/${thread}/comm`, 'utf8').startsWith('data-plane-'),
      );
      assert.equal(workers.length > 0, engine === 'fast');
    });
  }

  test('uses the addon beside it only when it is the right one', async (t) => {
    const beside = join(dirname(file), 'koffi.node');
    t.after(() => rmSync(beside, { force: true }));
    copyFileSync(join(dirname(BUILT), 'koffi.node'), beside);
    const right = await start('fast');
    assert.equal(addonOf(right.pid), join(dirname(PROGRAM), 'koffi.node'));
    await environment.stopProxies();
    writeFileSync(beside, 'of another version');
    const wrong = await start('fast');
    assert.match(addonOf(wrong.pid) ?? '', /^\/var\/lib\//);
  });

  test('says so where no file can be mapped as code, and serves with the portable engine', async () => {
    const started = await start('auto', [...NOEXEC, '/var/lib', '/var/cache']);
    const line = await waitFor('a warning', () => {
      return started.lines({ level: 'warn' }).find(({ msg }) => msg.startsWith('The fast engine cannot run here'));
    });
    assert.match(String(line['err']), /koffi's addon cannot be loaded from any place \(\/run\/kube-userspace-proxy/);
    const service = await environment.serve(WEB);
    assert.deepEqual((await environment.client.call('requests', { ...service, count: 3 })).failures, {});
  });

  test('is shown by ps with its name and arguments', async () => {
    const { pid } = await start('fast');
    assert.ok(executableOf(pid).endsWith(PROGRAM), executableOf(pid));
    assert.equal(nameOf(pid), 'kube-userspace-');
    assert.deepEqual(argumentsOf(pid).slice(0, 2), [PROGRAM, '--manifests']);
    const [helper, ...others] = childrenOf(pid);
    assert.deepEqual(others, []);
    assert.ok(executableOf(helper!).endsWith(PROGRAM));
    assert.equal(nameOf(helper!), 'kube-userspace-');
    assert.deepEqual(argumentsOf(helper!), [HELPER]);
  });

  test('does not open a debugger port on SIGUSR1', async () => {
    const { pid } = await start('fast');
    const service = await environment.serve(WEB);
    for (const each of [pid, ...childrenOf(pid)]) {
      const caught = /^SigCgt:\s+(\w+)$/m.exec(readFileSync(`/proc/${each}/status`, 'utf8'))?.[1];
      assert.equal(BigInt(`0x${caught}`) & (1n << BigInt(constants.signals.SIGUSR1 - 1)), 0n);
      process.kill(each, 'SIGUSR1');
    }
    assert.deepEqual((await environment.client.call('requests', { ...service, count: 3 })).failures, {});
  });

  test('stays the same program when its file is replaced, until SIGHUP hands over to the new file', async () => {
    const old = await start('fast');
    const service = await environment.serve(WEB);
    install(file);
    assert.match(executableOf(old.pid), / \(deleted\)$/);

    const [first] = childrenOf(old.pid);
    process.kill(first!, 'SIGKILL');
    const second = await waitFor('another helper', () => childrenOf(old.pid).find((child) => child !== first));
    await waitFor('it is our program', () => argumentsOf(second)[0] === HELPER);
    assert.equal(executableOf(second), executableOf(old.pid));

    const load = await environment.client.call('startLoad', { ...service, concurrency: 4 });
    old.kill('SIGHUP');
    const line = await waitFor('the hand-over', () => old.log.find(({ msg }) => msg.startsWith('Handed over')));
    await waitFor('the old process ends', () => !isAlive(old.pid));
    const successor = Number(line['pid']);
    try {
      assert.ok(executableOf(successor).endsWith(PROGRAM), executableOf(successor));
      assert.deepEqual((await environment.client.call('stopLoad', { load })).failures, {});
    } finally {
      process.kill(successor, 'SIGTERM');
      await waitFor('the new process ends', () => !isAlive(successor));
    }
  });
});
