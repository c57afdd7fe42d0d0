import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { connectControl } from '../../src/cli/client.ts';
import type { Command, OptionTable } from '../../src/cli/command.ts';
import { UNDRAIN } from '../../src/cli/drain.ts';
import { LOG_LEVEL } from '../../src/cli/log-level.ts';
import { SHOW_VERSION } from '../../src/cli/show-version.ts';
import { WEIGHT } from '../../src/cli/weight.ts';
import { VERSION } from '../../src/config/version.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { served } from '../operate/control/served.ts';
import { RecordingTerminal } from './recording-terminal.ts';
import { runCommand } from './run-command.ts';

async function run<O extends OptionTable>(command: Command<O>, ...argv: string[]) {
  const terminal = new RecordingTerminal();
  const clock = new ManualClock();
  const exit = await runCommand(command, argv, terminal, {
    clock,
    connect: (path) => connectControl(path, clock),
    onInterrupt: () => () => {},
  });
  return { exit, printed: terminal.printed };
}

describe('log-level', () => {
  async function proxy(t: TestContext) {
    const view = new FakeView();
    view.nodeChanges = { verbosity: 2 };
    return await served(t, view);
  }

  test('changes it, and shows the old value', async (t) => {
    const { operations, path } = await proxy(t);
    const { exit, printed } = await run(LOG_LEVEL, '4', '--control-socket', path);
    assert.deepEqual([exit, printed, operations.verbosity], [0, 'The log level is 4 now; it was 2.\n', 4]);
  });

  test('takes a number from 0 to 10 only', async (t) => {
    const { operations, path } = await proxy(t);
    for (const level of ['11', '-1', 'four', '1.5']) {
      await assert.rejects(
        run(LOG_LEVEL, '--control-socket', path, '--', level),
        /must be a whole number from 0 to 10/,
      );
    }
    await assert.rejects(run(LOG_LEVEL), /LEVEL is missing/);
    assert.equal(operations.verbosity, 0);
  });
});

describe('undrain', () => {
  test('undrains an endpoint, and says so when it was not drained', async (t) => {
    const { operations, path } = await served(t);
    operations.weights.set('10.244.0.1:8080', 0);
    const once = () => run(UNDRAIN, '10.244.0.1:8080', '--control-socket', path);
    assert.deepEqual(await once(), { exit: 0, printed: '10.244.0.1:8080 gets new connections again.\n' });
    assert.equal(operations.weights.size, 0);
    assert.deepEqual(await once(), { exit: 0, printed: '10.244.0.1:8080 was not drained.\n' });
  });
});

describe('weight', () => {
  test('sets a weight, drains, and takes back what was set', async (t) => {
    const { operations, path } = await served(t);
    const once = async (weight: string) =>
      (await run(WEIGHT, '10.244.0.1:8080', weight, '--control-socket', path)).printed;
    assert.match(await once('5'), /^10.244.0.1:8080 has the weight 5 on this node/);
    assert.deepEqual([...operations.weights], [['10.244.0.1:8080', 5]]);
    assert.equal(await once('0'), '10.244.0.1:8080 is drained on this node.\n');
    assert.deepEqual([...operations.weights], [['10.244.0.1:8080', 0]]);
    assert.equal(await once('default'), '10.244.0.1:8080 has its own weight again.\n');
    assert.equal(operations.weights.size, 0);
  });

  test('needs an endpoint and a weight', async (t) => {
    const { operations, path } = await served(t);
    const weighed = (...words: string[]) => run(WEIGHT, '--control-socket', path, '--', ...words);
    for (const wrong of ['65536', '-1', '1.5', 'much']) {
      await assert.rejects(weighed('10.244.0.1:8080', wrong), /a weight is a whole number from 0 to 65535, or default/);
    }
    await assert.rejects(weighed(), /IP:PORT is missing/);
    await assert.rejects(weighed('10.244.0.1:8080'), /WEIGHT is missing/);
    await assert.rejects(weighed('10.244.0.1:8080', '1', '2'), /unexpected argument "2"/);
    await assert.rejects(weighed('10.244.0.1', '1'), /not an address with a port/);
    assert.equal(operations.weights.size, 0);
  });
});

describe('version', () => {
  test('shows those of the program and of the proxy', async (t) => {
    const { path } = await served(t);
    assert.deepEqual(await run(SHOW_VERSION, '--control-socket', path), {
      exit: 0,
      printed: `This program:  v${VERSION}\nRunning proxy: v0.1.0 (process 4711, Node.js v24.21.0, fast engine)\n`,
    });
    const { printed } = await run(SHOW_VERSION, '-o', 'json', '--control-socket', path);
    assert.deepEqual(JSON.parse(printed), {
      program: { version: VERSION },
      proxy: { version: '0.1.0', nodeVersion: 'v24.21.0', pid: 4711, engine: 'fast' },
    });
  });

  test('has no control characters', async (t) => {
    const view = new FakeView();
    const strange = { version: '1\u001b]0;x\u0007', nodeVersion: 'v\u009b2J', engine: '\u202e' as 'fast' };
    view.nodeChanges = strange;
    const { path } = await served(t, view);
    const steering = /(?!\n)[\p{Cc}\p{Cf}]/u;
    const text = await run(SHOW_VERSION, '--control-socket', path);
    assert.doesNotMatch(text.printed, steering);
    const json = await run(SHOW_VERSION, '-o', 'json', '--control-socket', path);
    assert.doesNotMatch(json.printed, steering);
    assert.deepEqual(JSON.parse(json.printed).proxy, { ...strange, pid: 4711 });
  });

  test('is shown also without a proxy', async () => {
    const { exit, printed } = await run(SHOW_VERSION, '--control-socket', '/nowhere/control.sock');
    assert.equal(exit, 0);
    assert.match(
      printed,
      new RegExp(`^This program:  v${VERSION}\nRunning proxy: not known \\(no proxy serves /nowhere`),
    );
    const json = await run(SHOW_VERSION, '--output=json', '--control-socket', '/nowhere/control.sock');
    assert.match(JSON.parse(json.printed).proxy.error, /no proxy serves/);
  });
});
