import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { isAlive } from '../../support/processes.ts';
import { isFast, testEnvironment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { PROGRAM } from '../proxy.ts';
import { waitFor } from '../wait.ts';

const NAME = 'kube-userspace-proxy';
const NOBODY = 65_534;
const UNCLAIMED = 'Cannot claim the node; a second proxy on it would go unnoticed';
describe(`one proxy serves a node, with iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment('fresh');

  const node = () => environment.topology.node;
  const second = () => node().run([PROGRAM, '--manifests', environment.manifests.directory, '--control-socket', '']);
  const dump = () => environment.captured.ours();

  async function refusals(pid: number): Promise<void> {
    const rules = await dump();
    const { code, stderr } = await second();
    assert.equal(code, 1);
    assert.equal(
      stderr,
      `kube-userspace-proxy: another kube-userspace-proxy (process ${pid}) serves this node, and two would undo each other's rules; stop that one first (systemctl stop kube-userspace-proxy, or delete its Pod)\n`,
    );
    const cleanup = await node().run([PROGRAM, '--cleanup']);
    assert.equal(cleanup.code, 1);
    assert.equal(
      cleanup.stderr,
      `kube-userspace-proxy: --cleanup: another kube-userspace-proxy (process ${pid}) serves this node and would install its rules again; stop it first\n`,
    );
    assert.deepEqual(await dump(), rules, 'neither has touched a rule');
  }

  test('a second proxy and --cleanup are refused while the first one runs, and not after its end', async () => {
    await environment.startProxy();
    await environment.serve({ name: 'web' });
    await refusals(environment.proxy.pid);
    environment.proxy.kill('SIGKILL');
    await environment.proxy.exited();
    await environment.startProxy();
    assert.deepEqual(environment.proxy.lines({ msg: UNCLAIMED }), []);
    await environment.proxy.stop();
    assert.equal((await node().run([PROGRAM, '--cleanup'])).code, 0);
  });

  test('a successor claims the node, too', { skip: !isFast }, async () => {
    await environment.startProxy();
    // Before, it drops requests to upgrade.
    await waitFor('the end of its own start', () => environment.proxy.log.some(({ msg }) => msg === 'Started'));
    environment.proxy.kill('SIGHUP');
    const { pid } = await waitFor('the upgrade', () =>
      environment.proxy.log.find(({ msg }) => msg.startsWith('Handed over')),
    );
    try {
      await waitFor('the old process ends', () => environment.proxy.running === false);
      await refusals(Number(pid));
    } finally {
      process.kill(Number(pid), 'SIGTERM');
    }
    await waitFor('the new process ends', () => !isAlive(Number(pid)));
  });

  test('another user that has taken the name does not prevent the start', async (t) => {
    const squatter = node().spawn([
      ...[process.execPath, '--eval'],
      `process.setuid(${NOBODY}); require('node:net').createServer().listen({ path: '\\0${NAME}' }, () => console.log('here'))`,
    ]);
    t.after(() => squatter.kill());
    if (squatter.stdout !== null) await once(squatter.stdout, 'data');
    await environment.startProxy();
    const line = await waitFor('the warning', () => environment.proxy.lines({ msg: UNCLAIMED })[0]);
    assert.deepEqual([line['name'], line['pid'], line['uid']], [`@${NAME}`, squatter.pid, NOBODY]);
  });
});
