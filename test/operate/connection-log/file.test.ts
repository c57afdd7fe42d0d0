import assert from 'node:assert/strict';
import {
  chmodSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { ConnectionLogFile, MAX_QUEUED_CHARACTERS } from '../../../src/operate/connection-log/file.ts';
import { entryLine, missingLine } from '../../../src/operate/connection-log/line.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { until } from '../../support/until.ts';
import { entry } from './entries.ts';

/** A disk that takes so many bytes. */
class Disk {
  room = Number.POSITIVE_INFINITY;
  readonly isStopped = Promise.withResolvers<void>();

  readonly write = async (fd: number, bytes: Buffer, offset: number) => {
    const length = Math.min(this.room, bytes.length - offset);
    if (length === 0) throw new Error('ENOSPC: no space left on device, write');
    this.room -= length;
    return { bytesWritten: writeSync(fd, bytes, offset, length) };
  };
}

function rig(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), 'connection-log-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'connections.log');
  const [clock, log, disk] = [new ManualClock(), new RecordingLog(), new Disk()];
  const dropped: (readonly [number, string?])[] = [];
  const open = (at = path) =>
    new ConnectionLogFile({
      ...{ path: at, clock, log, write: disk.write },
      onDropped: (count, err) => dropped.push(err === undefined ? [count] : [count, err]),
    });
  const has = (text: string, at = path) => until(`${at} has it`, () => readFileSync(at, 'utf8') === text);
  return { folder, path, clock, log, disk, dropped, open, has };
}

const NUMBERED = Array.from({ length: 8 }, (_, i) => entry({ receivedBytes: i }));
const LINES = NUMBERED.map(entryLine);

describe('the file of the connection log', () => {
  test('gets every entry, is readable by its group only, and keeps what it had', async (t) => {
    const { path, open, has } = rig(t);
    writeFileSync(path, 'before\n');
    chmodSync(path, 0o666);
    const file = open();
    file.ended(NUMBERED.slice(0, 3));
    file.ended(NUMBERED.slice(3));
    await has(`before\n${LINES.join('')}`);
    assert.equal(statSync(path).mode & 0o777, 0o640);
    await file.close();
  });

  test('is opened again when it was renamed; nothing is lost', async (t) => {
    const { path, open, has, log } = rig(t);
    const file = open();
    file.ended(NUMBERED.slice(0, 2));
    await has(LINES.slice(0, 2).join(''));
    renameSync(path, `${path}.1`);
    file.ended(NUMBERED.slice(2, 4));
    await has(LINES.slice(0, 4).join(''), `${path}.1`);
    file.reopen();
    file.ended(NUMBERED.slice(4));
    await until('a new file', () => log.of('info').length === 1);
    await has(LINES.slice(4).join(''));
    renameSync(path, `${path}.2`);
    symlinkSync('/dev/null', path);
    file.reopen();
    await until('the refusal', () => log.of('warn').length === 1);
    file.ended(NUMBERED.slice(0, 1));
    await has([...LINES.slice(4), LINES[0]].join(''), `${path}.2`);
    await file.close();
  });

  /** The disk takes the first line and a part of the second. */
  async function filled(t: TestContext) {
    const { clock, disk, open, path, ...rest } = rig(t);
    const file = open();
    const [first = '', second = ''] = LINES;
    disk.room = first.length + 5;
    file.ended(NUMBERED);
    await until('it tries again later', () => clock.pendingTimers === 1);
    assert.equal(readFileSync(path, 'utf8'), `${first}${second.slice(0, 5)}`);
    return { clock, disk, open, path, file, first, second, ...rest };
  }

  test('loses nothing while a full disk is emptied in time, completes the line, and says both once', async (t) => {
    const { clock, disk, dropped, file, has, log, path, first, second } = await filled(t);
    for (const room of [0, 7]) {
      disk.room = room;
      clock.advance(1_000);
      await until('it tries again later', () => clock.pendingTimers === 1);
    }
    assert.equal(readFileSync(path, 'utf8'), `${first}${second.slice(0, 12)}`);
    assert.equal(log.of('error').length, 1);
    disk.room = Number.POSITIVE_INFINITY;
    clock.advance(1_000);
    await has(LINES.join(''));
    await file.close();
    assert.equal(log.of('info').length, 1);
    assert.deepEqual(dropped, []);
  });

  test('begins another line where another process has written behind a part of one', async (t) => {
    const { clock, disk, file, has, path, first, second } = await filled(t);
    writeFileSync(path, '{"other', { flag: 'a' });
    disk.room = Number.POSITIVE_INFINITY;
    clock.advance(1_000);
    await has(`${first}${second.slice(0, 5)}{"other\n${LINES.slice(1).join('')}`);
    await file.close();
  });

  test('begins another line where a process that was killed has left a part of one', async (t) => {
    const { path, open, has } = rig(t);
    writeFileSync(path, '{"ts":');
    const file = open();
    file.ended(NUMBERED);
    await has(`{"ts":\n${LINES.join('')}`);
    await file.close();
  });

  test('leaves no part of a line in a file that was renamed: the new one gets all of it', async (t) => {
    const { disk, file, has, log, path, first } = await filled(t);
    renameSync(path, `${path}.1`);
    disk.room = Number.POSITIVE_INFINITY;
    file.reopen();
    await until('a new file', () => log.of('info').length > 0);
    await has(LINES.slice(1).join(''));
    assert.equal(readFileSync(`${path}.1`, 'utf8'), first);
    await file.close();
  });

  test('leaves no part of a line at the end, and counts what it could not write', async (t) => {
    const { dropped, file, path, first } = await filled(t);
    await file.close();
    assert.equal(readFileSync(path, 'utf8'), first);
    assert.deepEqual(dropped, [[LINES.length - 1, 'ENOSPC: no space left on device, write']]);
  });

  test('drops what does not fit into memory, and says how many', async (t) => {
    const { clock, dropped, disk, open, path, has } = rig(t);
    const file = open();
    disk.room = 0;
    file.ended(NUMBERED.slice(0, 1));
    await until('it tries again later', () => clock.pendingTimers === 1);
    const length = LINES[0]?.length ?? 0;
    const fitting = Math.floor(MAX_QUEUED_CHARACTERS / length) - 1;
    file.ended(Array.from({ length: fitting + 5 }, () => NUMBERED[0] ?? assert.fail()));
    assert.deepEqual(dropped, [[5, 'ENOSPC: no space left on device, write']]);
    file.lost(2);
    disk.room = Number.POSITIVE_INFINITY;
    file.reopen();
    await until('all of it', () => readFileSync(path, 'utf8').endsWith(missingLine(7, clock.wallNow())));
    assert.equal(statSync(path).size, (fitting + 1) * length + missingLine(7, clock.wallNow()).length);
    file.ended(NUMBERED.slice(1, 2));
    await file.close();
    assert.ok(readFileSync(path, 'utf8').endsWith(LINES[1] ?? ''), 'the end waits for the last line');
    await has(readFileSync(path, 'utf8'));
  });

  for (const [what, make, reason] of [
    ['a directory', (path: string) => path.replace('/connections.log', ''), 'is a directory; name a file in it'],
    ['a path without its directory', (path: string) => `${path}/x/y`, 'its directory does not exist; make it'],
    ['a device', () => '/dev/full', 'is no regular file; name a file, which is made if there is none'],
  ] as const) {
    test(`cannot be ${what}`, (t) => {
      const { path, open } = rig(t);
      assert.throws(() => open(make(path)), new Error(`--connection-log ${JSON.stringify(make(path))}: ${reason}`));
    });
  }

  test('cannot be a symbolic link, which somebody else may have made', (t) => {
    const { path, open } = rig(t);
    symlinkSync('/etc/passwd', path);
    assert.throws(() => open(), /: is a symbolic link, which is not followed; name the file itself$/);
  });
});
