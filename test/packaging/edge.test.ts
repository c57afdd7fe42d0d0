import assert from 'node:assert/strict';
import { cpSync, mkdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Environment } from '../netns/harness.ts';
import { NODE_ADDRESS } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { commandsOf } from '../support/walk.ts';
import { SUITE } from './chroot.ts';
import { Machine, NAME } from './machine.ts';
import { packaged, VERSIONS, WITHIN } from './release.ts';

const WEB = { host: '10.96.0.100', port: 80 };
/** Where the reader has the package. */
const DOWNLOADS = '/root/downloads';

describe(`docs/edge.md, pasted into a fresh machine (${SUITE})`, WITHIN, () => {
  const commands = commandsOf('docs/edge.md');
  const packages = { old: '', new: '' };
  let environment: Environment;
  let machine: Machine;
  /** Why there is no machine. */
  let problem: string | undefined;

  before(async () => {
    for (const which of ['old', 'new'] as const) packages[which] = packaged(which).debianPackage;
    environment = await Environment.create();
    try {
      machine = await Machine.boot(environment.topology.node, environment.manifests.directory);
      download(packages.old);
    } catch (error) {
      problem = `systemd cannot be booted here: ${(error as Error).message}`;
    }
  }, WITHIN);

  after(async () => {
    await machine?.stop();
    await environment?.remove();
  });

  function download(file: string): void {
    const folder = join(machine.path, DOWNLOADS);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    cpSync(file, join(folder, basename(file)));
  }

  let pasted = 0;

  /** Pastes all commands of the next section. Gives what they print. */
  async function paste(heading: string): Promise<string> {
    const section = commands.filter((each) => each.heading === heading);
    assert.deepEqual(section, commands.slice(pasted, pasted + section.length), `${heading} is not the next section`);
    assert.notEqual(section.length, 0, `there are no commands in ${heading}`);
    pasted += section.length;
    const script = section.map((each) => each.script).join('\n');
    return await machine.run('bash', '-euc', `cd ${DOWNLOADS}\n${script}`);
  }

  const served = async () => {
    const { names, failures } = await environment.client.call('requests', { ...WEB, count: 6 });
    assert.deepEqual(failures, {});
    return Object.keys(names).sort();
  };

  test('it installs, checks and starts, and clients are served', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    await paste('Install');
    assert.match(await paste('Describe a Service'), /^The proxy can serve here/m);
    const shown = await paste('Start');
    assert.match(shown, /^TCP {2}10\.96\.0\.100:80 /m);
    assert.match(shown, /the next connection goes to 10\.244\.1\.1[12]:8080/);
    assert.deepEqual(await served(), ['pod-1', 'pod-2']);
    const nodePort = { host: NODE_ADDRESS, port: 30080, count: 4 };
    assert.deepEqual((await environment.outside.call('requests', nodePort)).failures, {});
  });

  test('a change counts without a restart', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    await paste('Change');
    await waitFor('the other pod to serve', async () => (await served()).join() === 'pod-1,pod-3');
  });

  test('the newer package takes over the connections', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    download(packages.new);
    const load = await environment.client.call('startLoad', { ...WEB, concurrency: 4 });
    const before = await machine.property('MainPID');
    await paste('Upgrade');
    await waitFor('the successor to be the main process', async () => (await machine.property('MainPID')) !== before);
    const version = `Running proxy: v${VERSIONS.new} `;
    await waitFor('it to answer', async () => (await machine.try(NAME, 'version')).stdout.includes(version));
    assert.deepEqual((await environment.client.call('stopLoad', { load })).failures, {});
  });

  test('nothing stays', async (t) => {
    if (problem !== undefined) return t.skip(problem);
    await paste('Remove');
    const rules = await environment.iptables.save();
    assert.deepEqual(
      rules.filter((rule) => rule.includes('KUBE-')),
      [],
    );
    assert.equal((await machine.try('find', '/etc', '/usr', '-name', `*${NAME}*`)).stdout, '');
    assert.equal(pasted, commands.length);
  });
});
