import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { SavedObject } from '../../src/model/saved-object.ts';
import { StateFile } from '../../src/state/state-file.ts';
import { StateKeeper } from '../../src/state/state-keeper.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { MemoryFiles } from '../fakes/memory-files.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

const PATH = '/state/last-state';

class FailingFiles extends MemoryFiles {
  err: string | undefined;
  creations = 0;

  override async create(path: string) {
    this.creations += 1;
    if (this.err !== undefined) throw new Error(this.err);
    return await super.create(path);
  }
}

function stage(files = new FailingFiles(), isCurrent = () => true) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  let contents: readonly SavedObject[] = [];
  const keeper = new StateKeeper({
    file: new StateFile({ directory: '/state', files, clock }),
    program: '1.0.0',
    provenance: () => ({ node: 'node-1', source: 'kubernetes', bootId: 'boot-1' }),
    contents: () => contents,
    isCurrent,
    clock,
    log,
  });
  /** Each second, so that what a step has begun is done before the next. */
  const pass = async (seconds: number) => {
    for (let second = 0; second < seconds; second++) {
      clock.advance(1_000);
      for (let turn = 0; turn < 20; turn++) {
        await setImmediate();
        clock.advance(0);
      }
    }
  };
  const change = (object: unknown) => {
    contents = [{ object }];
    keeper.changed();
  };
  return { files, log, keeper, clock, pass, change };
}

test('a change is written when it has rested for ten seconds, and the next one a minute later at the earliest', async () => {
  const { files, keeper, pass, change } = stage();
  keeper.start();
  change('one');
  await pass(8);
  change('two');
  await pass(9);
  assert.equal(files.creations, 0);
  await pass(1);
  assert.equal(files.creations, 1);
  change('three');
  await pass(59);
  assert.equal(files.creations, 1);
  await pass(1);
  assert.equal(files.creations, 2);
  assert.match((await files.read(PATH))!.bytes.toString(), /"three"/);
});

test('changes that never rest are written once a minute', async () => {
  const { files, keeper, pass, change } = stage();
  keeper.start();
  for (let second = 0; second < 180; second++) {
    change(second);
    await pass(1);
  }
  assert.equal(files.creations, 3);
});

test('what is the same text again is not written, also by the next process; its time is confirmed', async () => {
  const { files, keeper, pass, change, clock } = stage();
  keeper.start();
  change('one');
  await pass(10);
  change('two');
  change('one');
  await pass(120);
  assert.equal(files.creations, 1);
  assert.equal((await files.read(PATH))!.changedAt, clock.wallNow() - 60_000);
  await keeper.stop();

  const next = stage(files);
  next.keeper.start();
  next.change('one');
  await next.pass(10);
  assert.equal(files.creations, 1);
});

test('an unchanged state is confirmed once an hour while it is current, and not while it may be old', async () => {
  let isCurrent = true;
  const { files, keeper, pass, change, clock } = stage(new FailingFiles(), () => isCurrent);
  const changedAt = async () => (await files.read(PATH))!.changedAt;
  keeper.start();
  change('one');
  await pass(3_601);
  const confirmed = await changedAt();
  assert.equal(confirmed, clock.wallNow() - 1_000);
  isCurrent = false;
  await pass(3_601);
  assert.equal(await changedAt(), confirmed);
  assert.equal(files.creations, 1);
});

test('a flush writes at once what has changed, and resolves when it is there; before the start it does nothing', async () => {
  const { files, keeper, change } = stage();
  change('one');
  await keeper.flush();
  assert.equal(files.creations, 0);
  keeper.start();
  await keeper.flush();
  assert.match((await files.read(PATH))!.bytes.toString(), /"one"/);
});

test('a disk that cannot be written is one fault; the state is there a minute after it can', async () => {
  const { files, log, keeper, pass, change } = stage();
  files.err = 'ENOSPC: no space left on device, write';
  keeper.start();
  change('one');
  await pass(200);
  assert.ok(files.creations > 1);
  assert.deepEqual(
    log.of('error').map(({ message, fields }) => [message.slice(0, 44), fields]),
    [['The last state cannot be written to disk; a ', { file: PATH, err: files.err }]],
  );
  files.err = undefined;
  await pass(60);
  assert.match((await files.read(PATH))!.bytes.toString(), /"one"/);
  assert.deepEqual(
    log.of('info').map(({ message }) => message),
    [`The last state is written to ${PATH} again`],
  );
});

test('a disk that hangs keeps no process from its end', async () => {
  const files = new FailingFiles();
  files.create = () => new Promise(() => {});
  const { keeper, log, change, pass } = stage(files);
  keeper.start();
  change('one');
  const flushed = keeper.flush();
  await pass(5);
  await flushed;
  assert.match(String(log.of('error')[0]?.fields['err']), /longer than 5 s/);
});

test('after a stop nothing is written until the next start', async () => {
  const { files, keeper, pass, change } = stage();
  keeper.start();
  change('one');
  await keeper.stop();
  await pass(120);
  assert.equal(files.creations, 0);
  keeper.start();
  await pass(1);
  assert.equal(files.creations, 1);
});
