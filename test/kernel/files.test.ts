import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, beforeEach, describe, test } from 'node:test';
import { readRegularFile, watchFile } from '../../src/kernel/files.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { until } from '../support/until.ts';

describe('reading a regular file', () => {
  const directory = mkdtempSync(join(tmpdir(), 'kup-file-'));
  after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'file');

  test('returns its text, also through a link', () => {
    writeFileSync(path, 'ä: 1\n');
    symlinkSync(path, join(directory, 'link'));
    assert.equal(readRegularFile(path), 'ä: 1\n');
    assert.equal(readRegularFile(join(directory, 'link')), 'ä: 1\n');
  });

  test('of up to 1 MiB', () => {
    writeFileSync(path, 'x'.repeat(1024 * 1024));
    assert.equal(readRegularFile(path).length, 1024 * 1024);
    writeFileSync(path, 'x'.repeat(1024 * 1024 + 1));
    assert.throws(() => readRegularFile(path), /^Error: has 1048577 bytes; at most 1048576 are read$/);
  });

  test('refuses anything else, without waiting for a pipe', () => {
    const pipe = join(directory, 'pipe');
    execFileSync('mkfifo', [pipe]);
    for (const odd of [directory, '/dev/zero', pipe]) assert.throws(() => readRegularFile(odd), /is no regular file/);
    assert.throws(() => readRegularFile(join(directory, 'missing')), /cannot be read \(ENOENT\); check the path/);
  });
});

describe('watching a file', () => {
  let directory: string;
  let path: string;
  let clock: ManualClock;
  let changes: string[];

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'kup-watch-'));
    path = join(directory, 'config.conf');
    clock = new ManualClock();
    changes = [];
    writeFileSync(path, 'one');
  });

  afterEach(() => rmSync(directory, { recursive: true }));

  function watch(text = 'one'): void {
    watchFile({ path, text, clock, onChange: (changed) => changes.push(changed) });
  }

  /** Lets the watch look once. */
  async function look(): Promise<void> {
    assert.equal(clock.pendingTimers, 1);
    clock.advance(2_000);
    await until('the next look', () => clock.pendingTimers === 1);
  }

  test('reports a new text once, whether written in place or renamed', async () => {
    watch();
    await look();
    assert.deepEqual(changes, []);
    writeFileSync(path, 'two');
    await look();
    await look();
    writeFileSync(`${path}.new`, 'two');
    renameSync(`${path}.new`, path);
    await look();
    writeFileSync(`${path}.new`, 'three');
    renameSync(`${path}.new`, path);
    await look();
    assert.deepEqual(changes, ['two', 'three']);
  });

  test('compares with the text that is known at the start', async () => {
    watch('zero');
    await look();
    writeFileSync(path, 'one');
    await look();
    assert.deepEqual(changes, ['one']);
  });

  test('sees kubelet replace the directory behind a ConfigMap', async () => {
    for (const version of ['1', '2']) {
      mkdirSync(join(directory, version));
      writeFileSync(join(directory, version, 'config.conf'), `version ${version}`);
    }
    rmSync(path);
    symlinkSync('1', join(directory, '..data'));
    symlinkSync('..data/config.conf', path);
    watch('version 1');
    await look();
    symlinkSync('2', join(directory, '..data_tmp'));
    renameSync(join(directory, '..data_tmp'), join(directory, '..data'));
    await look();
    assert.deepEqual(changes, ['version 2']);
  });

  test('a missing or unreadable file is no change; the file is read when it is back', async () => {
    watch();
    rmSync(path);
    await look();
    mkdirSync(path);
    await look();
    assert.deepEqual(changes, []);
    rmSync(path, { recursive: true });
    writeFileSync(path, 'back');
    await look();
    assert.deepEqual(changes, ['back']);
  });
});
