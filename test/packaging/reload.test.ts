import assert from 'node:assert/strict';
import { cpSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Environment, type Served } from '../netns/harness.ts';
import { buildOnce, PROGRAM } from '../netns/proxy.ts';
import { waitFor } from '../netns/wait.ts';
import { SUITE } from './chroot.ts';
import { Machine, NAME } from './machine.ts';

const INSTALLED = `usr/sbin/${NAME}`;
const UNIT = join(import.meta.dirname, `../../deploy/${NAME}.service`);

describe(`a hand-over that fails under systemd (of ${SUITE})`, () => {
  let environment: Environment;
  let machine: Machine;
  /** Why there is no machine. */
  let problem: string | undefined;
  let service: Served;

  before(async () => {
    buildOnce();
    environment = await Environment.create();
    try {
      machine = await Machine.boot(environment.topology.node, environment.manifests.directory);
    } catch (error) {
      problem = `systemd cannot be booted here: ${(error as Error).message}`;
      return;
    }
    cpSync(PROGRAM, join(machine.path, INSTALLED));
    cpSync(UNIT, join(machine.path, `etc/systemd/system/${NAME}.service`));
    await machine.configure();
    await machine.run('systemctl', 'start', NAME);
    service = await environment.serve({ name: 'systemd' });
  });

  after(async () => {
    await machine?.stop();
    await environment?.remove();
  });

  const property = (name: string) => machine.property(name);

  const serves = async () =>
    assert.deepEqual((await environment.client.call('requests', { ...service, count: 5 })).failures, {});

  /** Puts another program on disk during `during`, which can wait until it is started. */
  async function replaced(script: string, during: (started: () => Promise<unknown>) => Promise<void>): Promise<void> {
    const program = join(machine.path, INSTALLED);
    // The unit lets its processes write there.
    const trace = `/run/${NAME}/started`;
    renameSync(program, `${program}.whole`);
    writeFileSync(program, `#!/bin/sh\ntouch ${trace}\n${script}\n`, { mode: 0o755 });
    try {
      const isStarted = async () => (await machine.try('test', '-e', trace)).code === 0;
      await during(() => waitFor('the other program to be started', isStarted));
    } finally {
      renameSync(`${program}.whole`, program);
      await machine.try('rm', trace);
    }
  }

  test('a program that cannot take over leaves the service active, with its process and watchdog', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    const main = await property('MainPID');
    await replaced('exit 3', async (started) => {
      await machine.run('systemctl', 'reload', NAME);
      await started();
      await waitFor('that to be over', async () => (await property('ActiveState')) === 'active');
    });
    await machine.watchdogIsFed();
    assert.deepEqual([await property('MainPID'), await property('NRestarts')], [main, '0']);
    await serves();
  });

  test('a stop in the middle ends both, in time', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    await replaced('exec sleep 600', async (started) => {
      await machine.run('systemctl', 'reload', '--no-block', NAME);
      await started();
      await machine.run('systemctl', 'stop', NAME);
    });
    assert.deepEqual([await property('ActiveState'), await property('Result')], ['inactive', 'success']);
    await machine.run('systemctl', 'start', NAME);
    await serves();
  });

  test('a successor that is killed as soon as it is the main process is replaced at once', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    const old = await property('MainPID');
    await machine.run('systemctl', 'reload', '--no-block', NAME);
    const main = `systemctl show --property=MainPID --value ${NAME}`;
    const killedAt = Date.now() / 1000;
    await machine.run('sh', '-c', `while [ "$(${main})" = ${old} ]; do :; done; kill -KILL "$(${main})"`);
    await waitFor('systemd to start another', async () => (await property('NRestarts')) === '1');
    await waitFor('its first sync', async () => (await environment.lastSync()) > killedAt);
    const journal = await waitFor('the journal to have it', async () => {
      const text = await machine.run('journalctl', '--unit', NAME, '--output=cat');
      return text.includes('Main process exited, code=killed, status=9/KILL') && text;
    });
    assert.doesNotMatch(journal, /Watchdog timeout/);
    await serves();
  });
});
