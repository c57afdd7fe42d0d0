import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { afterEach, before, describe, test } from 'node:test';
import { isAlive } from '../../support/process-state.ts';
import { isFast, TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR, IptablesShims } from '../iptables.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

describe(`the process that starts iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment();
  let shims: IptablesShims;

  before(async () => {
    shims = await IptablesShims.create(environment.temporary('shims'));
  });

  afterEach(async () => {
    shims.holdRestores(false);
    await environment.stopProxies();
  });

  async function start(...args: string[]): Promise<void> {
    await environment.startProxy({
      args: ['--iptables-sync-period', '500ms', '--iptables-min-sync-period', '100ms', ...args],
      env: { PATH: shims.path },
    });
  }

  const children = (pid: number) =>
    readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
    );

  const helper = () => children(environment.proxy.pid)[0]!;

  const healthz = async () =>
    (await environment.node.call('httpGet', { url: 'http://127.0.0.1:10256/healthz' })).status;

  const web = { name: 'web', ports: [{ port: 80, target: TCP.name }], endpoints: POD_ADDRESSES };

  /** A Service whose rules are being written, by a program that hangs before it has written any. Gives its address. */
  async function writeWhileHeld(): Promise<string> {
    const clusterIP = environment.clusterIP();
    shims.holdRestores(true);
    shims.forget();
    environment.write({ ...web, name: 'late', clusterIP });
    await waitFor('iptables hangs', () => shims.restores().length > 0);
    return clusterIP;
  }

  test('an iptables that hangs turns /healthz red while traffic flows; killed, it is run again', async () => {
    await start();
    const { host } = await environment.serve(web);
    const clusterIP = await writeWhileHeld();
    await waitFor('/healthz says 503', async () => (await healthz()) === 503);
    assert.match((await environment.client.call('request', { host, port: 80 })).name, /^pod-/);
    // As the deadline does it.
    for (const pid of children(helper())) process.kill(-pid, 'SIGKILL');
    shims.holdRestores(false);
    await environment.waitForRules(clusterIP, 1);
    await waitFor('/healthz says 200', async () => (await healthz()) === 200);
  });

  test('that hangs delays an upgrade, and the old process serves until then', { skip: !isFast }, async () => {
    await start();
    const clusterIP = await writeWhileHeld();
    process.kill(environment.proxy.pid, 'SIGHUP');
    const said = (msg: string) => environment.proxy.lines({ msg })[0];
    const successor = Number((await waitFor('a successor', () => said('Starting a successor')))['pid']);
    try {
      // More than it takes until the successor wants to have everything. Red or not, there must be an answer.
      for (let count = 0; count < 300; count++) await healthz();
      shims.holdRestores(false);
      await waitFor('the upgrade', () => said('Handed over to the successor'));
      await waitFor('the old process ends', () => !isAlive(environment.proxy.pid));
      await environment.waitForRules(clusterIP, 1);
      await waitFor('/healthz of the new one', () => healthz().catch(() => 0));
    } finally {
      process.kill(successor, 'SIGKILL');
    }
  });

  test('with SIGTERM for all processes at once, the rules that are being written are written to the end', async () => {
    await start();
    await environment.serve(web);
    const clusterIP = await writeWhileHeld();
    const [main, pid] = [environment.proxy.pid, helper()];
    for (const one of [pid, main]) process.kill(one, 'SIGTERM');
    shims.holdRestores(false);
    assert.deepEqual(await environment.proxy.exited(), { code: 0, signal: null });
    await waitFor('the helper has ended', () => !isAlive(pid));
    await environment.waitForRules(clusterIP, 1, 0);
  });
});
