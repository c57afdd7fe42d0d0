import assert from 'node:assert/strict';
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { appendFile, open, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ManifestSource, type ManifestSourceOptions } from '../../src/manifests/manifest-source.ts';
import type { SourceEvent, SourceSink } from '../../src/model/source.ts';
import type { Clock } from '../../src/util/clock.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

/** Ends a wait in vain, and no other. */
const PATIENCE_MS = 60_000;

/** For tests that have to be done with something before the source looks: for it, time goes by more slowly. */
const SLOWNESS = 10;
const slowClock: Clock = {
  ...systemClock,
  now: () => systemClock.now() / SLOWNESS,
  after: (delayMs, callback) => systemClock.after(delayMs * SLOWNESS, callback),
};
/** For so long as that clock tells. */
const slowSleep = (ms: number) => sleep(ms * SLOWNESS);

const GOLDEN = new URL('../golden/services.yaml', import.meta.url).pathname;

const service = (name: string, host: number | string = 1) =>
  `apiVersion: v1\nkind: Service\nmetadata: {name: ${name}}\nspec: {clusterIP: 10.96.0.${host}, ports: [{port: 80}]}\n---\n`;

class RecordingSink implements SourceSink {
  readonly batches: (readonly SourceEvent[])[] = [];
  readonly objects = new Map<string, SourceEvent>();
  syncs = 0;

  apply(events: readonly SourceEvent[]): void {
    this.batches.push(events);
    for (const event of events) {
      const id = `${event.kind} ${event.key}`;
      if (event.value === undefined) this.objects.delete(id);
      else this.objects.set(id, event);
    }
  }

  synced(): void {
    this.syncs += 1;
  }

  /** `name=last octet of its clusterIP` of every Service of the namespace `default`. */
  get services(): string {
    const served = [...this.objects.values()].flatMap(({ kind, key, value }) =>
      kind === 'Service' && value ? [`${key.replace('default/', '')}=${value.clusterIPs[0]?.split('.')[3]}`] : [],
    );
    return served.sort().join(' ');
  }

  get removals(): string[] {
    return this.batches.flat().flatMap(({ key, value }) => (value === undefined ? [key] : []));
  }
}

interface Subject {
  readonly dir: string;
  readonly sink: RecordingSink;
  readonly log: RecordingLog;
  path(name: string): string;
  put(name: string, text: string): void;
  /** Until these are the Services. */
  becomes(services: string): Promise<void>;
}

/** Starts a source on `paths` in a new directory, which first gets these files. */
async function start(
  t: TestContext,
  files: Record<string, string>,
  { paths = ['m'], ...options }: Partial<ManifestSourceOptions> = {},
): Promise<Subject> {
  const dir = mkdtempSync(join(tmpdir(), 'manifests-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const path = (name: string) => join(dir, name);
  mkdirSync(path('m'));
  const put = (name: string, text: string) => writeFileSync(path(name), text);
  for (const [name, text] of Object.entries(files)) put(name, text);
  const sink = new RecordingSink();
  const log = new RecordingLog();
  const source = new ManifestSource({ clock: systemClock, ...options, paths: paths.map(path), log });
  await source.start(sink);
  t.after(() => source.stop());
  await within(() => sink.syncs === 1 || 'it has not synced');
  const becomes = (services: string) =>
    within(() => sink.services === services || `${sink.services} is not ${services}`);
  return { dir, sink, log, path, put, becomes };
}

async function within(condition: () => true | string): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  for (;;) {
    const result = condition();
    if (result === true) return;
    if (performance.now() > deadline) assert.fail(`not within ${PATIENCE_MS} ms: ${result}`);
    await sleep(2);
  }
}

test('the first full scan comes in one go and is followed by synced, once', async (t) => {
  const files = { 'm/a.yaml': readFileSync(GOLDEN, 'utf8'), 'm/b.yml': service('b'), 'm/c.json': '{"kind": "List"}' };
  const { sink, log, put, becomes } = await start(t, files);
  assert.equal(sink.batches.length, 1);
  assert.deepEqual([...sink.objects.keys()].sort(), [
    'Endpoints default/web',
    'Endpoints shop/balanced',
    'Endpoints shop/sticky',
    'Service default/b',
    'Service default/web',
    'Service shop/balanced',
    'Service shop/empty',
    'Service shop/sticky',
  ]);
  assert.deepEqual([log.of('error'), log.of('warn')], [[], []]);
  put('m/a.yaml', service('a'));
  await becomes('a=1 b=1');
  assert.equal(sink.syncs, 1);
});

test('an empty directory is synced, too', async (t) => {
  const { sink } = await start(t, {});
  assert.deepEqual([sink.batches, sink.syncs], [[], 1]);
});

test('a path that does not exist is refused in one sentence', async () => {
  const options = { paths: ['/nowhere/a.yaml'], clock: systemClock, log: new RecordingLog() };
  await assert.rejects(new ManifestSource(options).start(new RecordingSink()), {
    message: 'there is no file or directory "/nowhere/a.yaml" to read manifests from',
  });
  await assert.rejects(new ManifestSource({ ...options, paths: ['/dev/null'] }).start(new RecordingSink()), {
    message: '"/dev/null" is neither a file nor a directory of manifests',
  });
});

test('a file that is edited, added, replaced by rename, emptied or removed takes effect', async (t) => {
  const { put, path, becomes, sink } = await start(t, { 'm/a.yaml': service('a') + service('b') });
  put('m/a.yaml', service('a', 2) + service('b'));
  await becomes('a=2 b=1');
  assert.equal(sink.batches[1]?.length, 1, 'only the difference');
  put('m/c.yaml', service('c'));
  await becomes('a=2 b=1 c=1');
  put('new', service('c', 2));
  renameSync(path('new'), path('m/c.yaml'));
  await becomes('a=2 b=1 c=2');
  put('m/c.yaml', '');
  await becomes('a=2 b=1');
  rmSync(path('m/a.yaml'));
  await becomes('');
});

test('a directory that is replaced by rename takes effect, and is watched from then on', async (t) => {
  const { dir, put, path, becomes, sink } = await start(t, { 'm/a.yaml': service('a'), 'm/b.yaml': service('b') });
  mkdirSync(join(dir, 'new'));
  put('new/a.yaml', service('a', 2));
  put('new/c.yaml', service('c'));
  renameSync(path('m'), path('old'));
  renameSync(path('new'), path('m'));
  await becomes('a=2 c=1');
  assert.deepEqual(sink.removals, ['default/b']);
  put('m/c.yaml', service('c', 3));
  await becomes('a=2 c=3');
});

test('a directory that is removed takes its objects with it, and brings them back', async (t) => {
  const { put, path, becomes } = await start(t, { 'm/a.yaml': service('a') });
  rmSync(path('m'), { recursive: true });
  await becomes('');
  mkdirSync(path('m'));
  put('m/a.yaml', service('a', 2));
  await becomes('a=2');
});

test('a single file that is given by itself may be replaced, removed and created again', async (t) => {
  const { put, path, becomes } = await start(t, { 'x.manifest': service('a') }, { paths: ['x.manifest'] });
  put('new', service('a', 2));
  renameSync(path('new'), path('x.manifest'));
  await becomes('a=2');
  rmSync(path('x.manifest'));
  await becomes('');
  put('x.manifest', service('a', 3));
  await becomes('a=3');
});

test('a mounted ConfigMap that is swapped by its link takes effect in one go', async (t) => {
  const { dir, path, put, becomes, sink } = await start(t, {});
  for (const [version, host] of Object.entries({ '..1': 1, '..2': 2 })) {
    mkdirSync(join(dir, 'm', version));
    put(`m/${version}/a.yaml`, service('a', host));
    put(`m/${version}/b.yaml`, service('b', host));
  }
  symlinkSync('..1', path('m/..data'));
  for (const name of ['a.yaml', 'b.yaml']) symlinkSync(join('..data', name), path(`m/${name}`));
  await becomes('a=1 b=1');
  symlinkSync('..2', path('m/..data_tmp'));
  renameSync(path('m/..data_tmp'), path('m/..data'));
  await becomes('a=2 b=2');
  assert.equal(sink.batches.at(-1)?.length, 2);
});

test('a file behind a link to a place that no event comes from takes effect', async (t) => {
  const { dir, path, put, becomes } = await start(t, {});
  mkdirSync(join(dir, 'elsewhere'));
  put('elsewhere/a', service('a'));
  symlinkSync(path('elsewhere/a'), path('m/a.yaml'));
  await becomes('a=1');
  put('elsewhere/a', service('a', 2));
  await becomes('a=2');
});

test('a directory that cannot be watched is reported once, and changes in it are found by looking', async (t) => {
  const watch = () => {
    throw new Error('ENOSPC');
  };
  const { put, path, becomes, log } = await start(t, { 'm/a.yaml': service('a') }, { watch });
  put('m/a.yaml', service('a', 2));
  await becomes('a=2');
  put('m/a.yaml', service('a', 3));
  await becomes('a=3');
  assert.deepEqual(
    log.of('warn').map(({ fields }) => fields),
    [{ file: path('m'), err: 'ENOSPC' }],
  );
});

// They mostly wait, so they do it together.
describe('by a slow clock', { concurrency: true }, () => {
  test('changes wake the scan, without waiting for the regular look', async (t) => {
    // The regular look is the only thing that waits for so long, unless a look itself takes that time.
    const clock: Clock = {
      ...slowClock,
      after: (delayMs, callback) => (delayMs < 450 ? slowClock.after(delayMs, callback) : { cancel: () => {} }),
    };
    const { dir, put, path, becomes } = await start(t, { 'm/a.yaml': service('a') }, { clock });
    put('m/a.yaml', service('a', 2));
    await becomes('a=2');
    put('m/b.yaml', service('b'));
    await becomes('a=2 b=1');
    rmSync(path('m/a.yaml'));
    await becomes('b=1');
    mkdirSync(join(dir, 'new'));
    put('new/c.yaml', service('c'));
    renameSync(path('m'), path('old'));
    renameSync(path('new'), path('m'));
    await becomes('c=1');
    put('m/c.yaml', service('c', 2));
    await becomes('c=2');
  });

  test('a file that is truncated and then written never makes its objects vanish', async (t) => {
    const { path, becomes, sink } = await start(t, { 'm/a.yaml': service('a') + service('b') }, { clock: slowClock });
    await truncate(path('m/a.yaml'));
    await slowSleep(150);
    await appendFile(path('m/a.yaml'), service('a', 2));
    await slowSleep(100);
    await appendFile(path('m/a.yaml'), service('b', 2));
    await becomes('a=2 b=2');
    assert.deepEqual(sink.removals, []);
  });

  test('a file that is removed and soon created again never makes its objects vanish', async (t) => {
    const { path, put, becomes, sink } = await start(t, { 'm/a.yaml': service('a') }, { clock: slowClock });
    rmSync(path('m/a.yaml'));
    await slowSleep(100);
    put('m/a.yaml', service('a', 2));
    await becomes('a=2');
    assert.deepEqual(sink.removals, []);
  });

  test('a file is not read while it is being written', async (t) => {
    const { path, becomes, sink, log } = await start(t, {}, { clock: slowClock });
    const text = [1, 2, 3, 4, 5, 6].map((host) => service(`s${host}`, host)).join('');
    const file = await open(path('m/a.yaml'), 'w');
    for (let at = 0; at < text.length; at += 100) {
      await file.write(text.slice(at, at + 100));
      await slowSleep(10);
    }
    await file.close();
    await becomes('s1=1 s2=2 s3=3 s4=4 s5=5 s6=6');
    assert.equal(sink.batches.length, 1);
    assert.deepEqual(log.of('error'), []);
  });
});

test('a file that does not parse is reported once with its line, and its objects stay until it is fixed', async (t) => {
  const { put, path, becomes, log, sink } = await start(t, { 'm/a.yaml': service('a'), 'm/b.yaml': service('b') });
  put('m/a.yaml', `${service('a', 2)}x: [`);
  const reported = () => log.of('error').length > 0 || 'nothing is reported';
  await within(reported);
  utimesSync(path('m/a.yaml'), 1, 1);
  put('m/b.yaml', service('b', 2));
  await becomes('a=1 b=2');
  assert.deepEqual(
    log.of('error').map(({ fields: { file, document, line } }) => ({ file, document, line })),
    [{ file: path('m/a.yaml'), document: 2, line: 6 }],
  );
  put('m/a.yaml', service('a', 2));
  await becomes('a=2 b=2');
  const infos = log.of('info').filter(({ message }) => message === 'A manifest file is valid again');
  assert.deepEqual(
    infos.map(({ fields }) => fields['file']),
    [path('m/a.yaml')],
  );
  assert.deepEqual(sink.removals, []);
});

test('of several files with one object the first counts, by --manifests and then by name; told once', async (t) => {
  const files = { 'm/a.yaml': service('x', 1), 'm/b.yaml': service('x', 2), 'first.yaml': service('x', 3) };
  const { path, put, becomes, log } = await start(t, files, { paths: ['first.yaml', 'm'] });
  const conflicts = () => log.of('warn').map(({ fields }) => `${fields['file']}: ${fields['others']}`);
  await becomes('x=3');
  put('m/b.yaml', service('x', 4) + service('y'));
  await becomes('x=3 y=1');
  const [first, a, b] = ['first.yaml', 'm/a.yaml', 'm/b.yaml'].map(path);
  assert.deepEqual(conflicts(), [`${first}: ${a}, ${b}`]);
  rmSync(path('first.yaml'));
  await becomes('x=1 y=1');
  assert.deepEqual(conflicts().slice(1), [`${a}: ${b}`]);
  put('m/a.yaml', service('x', 'None').replace('10.96.0.', ''));
  await becomes('y=1');
  rmSync(path('m/a.yaml'));
  await becomes('x=4 y=1');
});

test('an object that moves to another file in one go is never gone', async (t) => {
  const { put, becomes, sink } = await start(t, { 'm/a.yaml': service('a') + service('b') }, { clock: slowClock });
  put('m/a.yaml', service('b', 2));
  put('m/b.yaml', service('a'));
  await becomes('a=1 b=2');
  assert.deepEqual(sink.removals, []);
});

test('a change of many files is delivered together', async (t) => {
  const names = Array.from({ length: 30 }, (_, index) => `s${String(index).padStart(2, '0')}`);
  const { put, becomes, sink } = await start(
    t,
    Object.fromEntries(names.map((name) => [`m/${name}.yaml`, service(name)])),
  );
  for (const name of names) put(`m/${name}.yaml`, service(name, 2));
  await becomes(names.map((name) => `${name}=2`).join(' '));
  assert.ok(sink.batches.length <= 3, `${sink.batches.length} batches`);
});

test('a file that is being written at the start is waited for', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'manifests-'));
  t.after(() => rmSync(dir, { recursive: true }));
  writeFileSync(join(dir, 'a.yaml'), service('a'));
  const sink = new RecordingSink();
  const source = new ManifestSource({ paths: [dir], clock: slowClock, log: new RecordingLog() });
  t.after(() => source.stop());
  writeFileSync(join(dir, 'b.yaml'), service('b'));
  await source.start(sink);
  for (let count = 0; count < 5; count += 1) {
    await slowSleep(20);
    await appendFile(join(dir, 'b.yaml'), service(`b${count}`));
    assert.deepEqual([sink.batches, sink.syncs], [[], 0]);
  }
  await within(() => sink.syncs === 1 || 'it has not synced');
  assert.equal(sink.batches.length, 1);
  assert.equal(sink.objects.size, 7);
});

test('a defect of the sink does not end the watching', async (t) => {
  const { put, becomes, sink, log } = await start(t, { 'm/a.yaml': service('a') });
  const apply = sink.apply.bind(sink);
  sink.apply = () => {
    sink.apply = apply;
    throw new Error('defect');
  };
  put('m/a.yaml', service('a', 2));
  await within(() => log.of('error').length === 1 || 'nothing is reported');
  assert.match(String(log.of('error')[0]?.fields['err']), /^Error: defect/);
  put('m/a.yaml', service('a', 3));
  await becomes('a=3');
});

test('once stopped, nothing is delivered and nothing keeps the process alive', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'manifests-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const timers = new Set<object>();
  const clock: Clock = {
    ...slowClock,
    after: (delayMs, callback) => {
      const entry = {};
      timers.add(entry);
      const { cancel } = slowClock.after(delayMs, () => {
        timers.delete(entry);
        callback();
      });
      return {
        cancel: () => {
          timers.delete(entry);
          cancel();
        },
      };
    },
  };
  const sink = new RecordingSink();
  const source = new ManifestSource({ paths: [dir], clock, log: new RecordingLog() });
  await source.start(sink);
  assert.ok(process.getActiveResourcesInfo().includes('FSEventWrap'));
  assert.equal(timers.size, 1);
  writeFileSync(join(dir, 'a.yaml'), service('a'));
  await slowSleep(30);
  await source.stop();
  assert.equal(timers.size, 0);
  await within(() => !process.getActiveResourcesInfo().includes('FSEventWrap') || 'it still watches');
  assert.deepEqual(sink.batches, []);
});
