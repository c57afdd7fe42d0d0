import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { FSWatcher } from 'node:fs';
import { test } from 'node:test';
import { DirectoryWatches } from '../../src/manifests/directory-watches.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

class FakeWatcher extends EventEmitter {
  isClosed = false;

  close(): void {
    this.isClosed = true;
  }
}

function setUp() {
  const log = new RecordingLog();
  const opened: { directory: string; watcher: FakeWatcher; change: () => void }[] = [];
  const failing = new Set<string>();
  let changes = 0;
  const watches = new DirectoryWatches({
    log,
    onChange: () => {
      changes += 1;
    },
    watch: (directory, change) => {
      if (failing.has(directory)) throw new Error(`ENOSPC: ${directory}`);
      const watcher = new FakeWatcher();
      opened.push({ directory, watcher, change });
      return watcher as unknown as FSWatcher;
    },
  });
  const open = () => opened.filter(({ watcher }) => !watcher.isClosed).map(({ directory }) => directory);
  return { watches, log, failing, opened, open, changes: () => changes };
}

test('exactly the given directories are watched, each once', () => {
  const { watches, opened, open } = setUp();
  watches.set(new Map([['/a', '1'], ['/b', '2']])); // biome-ignore format: a table
  watches.set(new Map([['/b', '2'], ['/c', '3']])); // biome-ignore format: a table
  assert.deepEqual(open(), ['/b', '/c']);
  assert.equal(opened.length, 3);
  watches.close();
  assert.deepEqual(open(), []);
});

test('another directory at the same path is watched in place of the old one', () => {
  const { watches, opened, open } = setUp();
  watches.set(new Map([['/a', '1']]));
  watches.set(new Map([['/a', '2']]));
  assert.deepEqual(open(), ['/a']);
  assert.equal(opened[0]?.watcher.isClosed, true);
});

test('a change in a directory is passed on', () => {
  const { watches, opened, changes } = setUp();
  watches.set(new Map([['/a', '1']]));
  opened[0]?.change();
  assert.equal(changes(), 1);
});

test('a directory that cannot be watched is reported once, harms no other and is tried again', () => {
  const { watches, log, failing, open } = setUp();
  failing.add('/a').add('/c');
  const wanted = new Map(['/a', '/b', '/c'].map((path) => [path, '1']));
  watches.set(wanted);
  watches.set(wanted);
  assert.deepEqual(open(), ['/b']);
  assert.deepEqual(log.of('warn').map(({ fields }) => fields), [{ file: '/a', err: 'ENOSPC: /a' }]); // biome-ignore format: short
  failing.clear();
  watches.set(wanted);
  assert.deepEqual(open().sort(), ['/a', '/b', '/c']);
});

test('a watch that fails later is given up and tried again', () => {
  const { watches, opened, open } = setUp();
  watches.set(new Map([['/a', '1']]));
  opened[0]?.watcher.emit('error', new Error('EIO'));
  assert.deepEqual(open(), []);
  watches.set(new Map([['/a', '1']]));
  assert.deepEqual(open(), ['/a']);
});
