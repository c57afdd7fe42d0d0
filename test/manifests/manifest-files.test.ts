import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { type Content, ManifestFiles } from '../../src/manifests/manifest-files.ts';
import { foundText } from '../../src/util/found.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

function setUp(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), 'manifests-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const clock = new ManualClock();
  const log = new RecordingLog();
  const served: string[] = [];
  const files = new ManifestFiles({ paths: [dir], isServed: (path) => served.includes(path), clock, log });
  const path = (name: string) => join(dir, name);
  const put = (name: string, text: string) => writeFileSync(path(name), text);
  /** `name: text or status` of what has changed. */
  const scan = async () =>
    (await changesIn(files)).map(({ path, content }) => {
      const what = content.status === 'text' ? content.text : content.status;
      return `${path.replace(`${dir}/`, '')}: ${what}`;
    });
  /** The same once everything has come to rest. */
  const settledScan = async () => {
    await files.scan();
    clock.advance(1_000);
    return scan();
  };
  return { dir, clock, log, served, files, path, put, scan, settledScan };
}

async function changesIn(files: ManifestFiles): Promise<{ path: string; content: Content }[]> {
  const { rested } = await files.scan();
  return rested.flatMap((path) => {
    const content = files.take(path);
    return content === undefined || content === 'changing' ? [] : [{ path, content }];
  });
}

test('a file is handed out once it has come to rest, and again when it has changed', async (t) => {
  const { put, path, scan, settledScan, clock, files } = setUp(t);
  put('a.yaml', 'x');
  assert.equal((await files.scan()).settlesInMs, 50);
  clock.advance(49);
  assert.deepEqual(await scan(), []);
  clock.advance(1);
  assert.deepEqual(await scan(), ['a.yaml: x']);
  assert.equal((await files.scan()).settlesInMs, undefined);
  put('a.yaml', 'y');
  assert.deepEqual(await settledScan(), ['a.yaml: y']);
  rmSync(path('a.yaml'));
  assert.deepEqual(await settledScan(), ['a.yaml: absent']);
  assert.deepEqual(await settledScan(), []);
});

test('a look at touched files alone sees these and those that have not come to rest', async (t) => {
  const { put, path, files, clock, scan, settledScan } = setUp(t);
  for (const name of ['a.yaml', 'b.yaml', 'c.yaml']) put(name, 'x');
  await settledScan();
  for (const name of ['a.yaml', 'b.yaml', 'c.yaml', 'd.yaml']) put(name, 'longer');
  await files.scan(new Map([[path('a.yaml'), 0]]));
  await files.scan(new Map([[path('d.yaml'), 0]]));
  clock.advance(1_000);
  assert.deepEqual((await files.scan(new Map([[path('gone.yaml'), 0]]))).rested, [path('a.yaml'), path('d.yaml')]);
  assert.deepEqual([...files.order], ['a.yaml', 'b.yaml', 'c.yaml', 'd.yaml'].map(path));
  assert.deepEqual(await scan(), ['a.yaml: longer', 'd.yaml: longer']);
  assert.deepEqual(await settledScan(), ['b.yaml: longer', 'c.yaml: longer']);
});

test('what may be a file that is being written waits longer: a smaller one, an empty one, none', async (t) => {
  const { put, path, files, settledScan } = setUp(t);
  const settlesInMs = async () => (await files.scan()).settlesInMs;
  put('a.yaml', 'text');
  await settledScan();
  put('a.yaml', 'tex');
  assert.equal(await settlesInMs(), 200);
  put('a.yaml', '');
  assert.equal(await settlesInMs(), 400);
  rmSync(path('a.yaml'));
  assert.equal(await settlesInMs(), 200);
  put('a.yaml', 'longer');
  assert.equal(await settlesInMs(), 50, 'it has grown again');
});

test('other content of the same size and time of writing is noticed', async (t) => {
  const { put, path, settledScan } = setUp(t);
  put('a.yaml', 'x');
  utimesSync(path('a.yaml'), 1, 1);
  await settledScan();
  put('a.yaml', 'y');
  utimesSync(path('a.yaml'), 1, 1);
  assert.deepEqual(await settledScan(), ['a.yaml: y']);
});

test('manifests are told by their names and come in the order of these', async (t) => {
  const { put, settledScan } = setUp(t);
  const manifests = ['A.yaml', 'a10.yaml', 'a9.json', 'b.yml'];
  for (const name of ['b.txt', '.b.yaml', 'b.yaml~', 'b.yaml.swp', 'yaml', ...manifests.toReversed()]) put(name, '');
  const names = (await settledScan()).map((change) => change.split(':')[0]);
  assert.deepEqual(names, manifests);
});

test('a file that is too large or no text is refused until it is another one', async (t) => {
  const { put, path, settledScan, files, clock } = setUp(t);
  put('a.yaml', '');
  truncateSync(path('a.yaml'), 64 * 1024 * 1024 + 1);
  writeFileSync(path('b.yaml'), Buffer.from([0x61, 0xff, 0xfe]));
  await files.scan();
  clock.advance(1_000);
  assert.deepEqual(
    (await changesIn(files)).map(({ content }) => content.status === 'refused' && foundText(content.err)),
    ['it is larger than 64 MiB; divide it into several files', 'it is not UTF-8 text'],
  );
  assert.deepEqual(await settledScan(), []);
  put('a.yaml', 'x');
  put('b.yaml', '\ufeffy');
  assert.deepEqual(await settledScan(), ['a.yaml: x', 'b.yaml: y']);
});

test('what is no regular file is no manifest, and opening it is not tried', { timeout: 60_000 }, async (t) => {
  const { path, settledScan, log } = setUp(t);
  execFileSync('mkfifo', [path('a.yaml')]);
  symlinkSync('/dev/zero', path('b.yaml'));
  symlinkSync('nowhere', path('c.yaml'));
  assert.deepEqual(await settledScan(), []);
  assert.deepEqual(log.of('error'), []);
});

test('a file that fails to be read is reported once, tried again and keeps its last good state', async (t) => {
  const { dir, put, path, settledScan, served, log, clock } = setUp(t);
  served.push(path('a.yaml'));
  const alone = new ManifestFiles({ paths: [path('a.yaml')], isServed: () => false, clock, log });
  put('a.yaml', 'x');
  assert.deepEqual(await settledScan(), ['a.yaml: x']);
  rmSync(path('a.yaml'));
  // Looks like a file, and reading it from its start is an EIO.
  symlinkSync('/proc/self/mem', path('a.yaml'));
  for (let round = 0; round < 3; round += 1) assert.deepEqual(await settledScan(), []);
  const reports = () => log.lines.map(({ level, fields }) => `${level} ${fields['file']} ${fields['err'] ?? ''}`);
  assert.deepEqual(reports(), [`error ${path('a.yaml')} EIO: i/o error, read`]);
  for (let round = 0; round < 3; round += 1) {
    clock.advance(1_000);
    assert.deepEqual(await changesIn(alone), []);
  }
  assert.deepEqual(log.of('error').map(({ message }) => message), [
    'Manifests cannot be read; their last good state is kept',
    'Manifests cannot be read; nothing of them is served',
  ]); // biome-ignore format: short
  rmSync(path('a.yaml'));
  put('a.yaml', 'y');
  assert.deepEqual(await settledScan(), ['a.yaml: y']);
  assert.equal(reports().at(-1), `info ${join(dir, 'a.yaml')} `);
});

test('a directory that cannot be listed keeps its files and is reported once', async (t) => {
  const { dir, put, path, settledScan, scan, log } = setUp(t);
  put('a.yaml', 'x');
  await settledScan();
  renameSync(dir, `${dir}-away`);
  t.after(() => rmSync(dir, { force: true }));
  symlinkSync(dir, dir);
  assert.deepEqual(await settledScan(), []);
  assert.deepEqual(await settledScan(), []);
  assert.deepEqual(log.of('error').map(({ fields }) => fields['file']), [dir]); // biome-ignore format: short
  rmSync(dir);
  renameSync(`${dir}-away`, dir);
  assert.deepEqual(await scan(), []);
  assert.deepEqual(log.of('info').map(({ message }) => message), ['Manifests can be read again']); // biome-ignore format: short
  put('a.yaml', 'y');
  assert.deepEqual(await settledScan(), [`${path('a.yaml').replace(`${dir}/`, '')}: y`]);
});

test('a file that keeps changing is reported, and the other files no longer wait for it', async (t) => {
  const { put, files, clock, log, settledScan } = setUp(t);
  for (let count = 0; count < 125; count += 1) {
    put('a.yaml', String(count));
    assert.equal((await files.scan()).settlesInMs, 50);
    assert.deepEqual(log.of('error'), []);
    clock.advance(40);
  }
  put('a.yaml', 'x');
  assert.deepEqual(await files.scan().then(({ rested, settlesInMs }) => [rested, settlesInMs]), [[], undefined]);
  assert.deepEqual(log.of('error').map(({ fields }) => fields['err']), ['it keeps changing']); // biome-ignore format: short
  put('a.yaml', 'rest');
  assert.deepEqual(await settledScan(), ['a.yaml: rest']);
  assert.deepEqual(log.of('info').map(({ message }) => message), ['Manifests can be read again']); // biome-ignore format: short
});

test('a directory that is gone removes nothing; back and empty, it must rest before its files are gone', async (t) => {
  const { dir, put, scan, settledScan, clock, log } = setUp(t);
  put('a.yaml', 'x');
  await settledScan();
  // As `rm -r` does, which is seen in between.
  rmSync(join(dir, 'a.yaml'));
  assert.deepEqual(await scan(), []);
  rmSync(dir, { recursive: true });
  assert.deepEqual(await settledScan(), []);
  assert.equal(log.of('error').length, 1);
  mkdirSync(dir);
  assert.deepEqual(await scan(), []);
  clock.advance(199);
  assert.deepEqual(await scan(), []);
  clock.advance(1);
  assert.deepEqual(await scan(), ['a.yaml: absent']);
});

test('an empty directory in the place of a volume removes nothing', async (t) => {
  const { dir, put, settledScan, log } = setUp(t);
  put('a.yaml', 'x');
  await settledScan();
  renameSync(dir, `${dir}-volume`);
  t.after(() => rmSync(`${dir}-volume`, { recursive: true, force: true }));
  // Always another file system, and empty to those who look for files.
  const other = mkdtempSync('/dev/shm/manifests-');
  t.after(() => rmSync(other, { recursive: true }));
  symlinkSync(other, dir);
  assert.notEqual(statSync(dir).dev, statSync(`${dir}-volume`).dev);
  assert.deepEqual(await settledScan(), []);
  assert.match(String(log.of('error')[0]?.fields['err']), /another file system than before; is a volume not mounted/);
  rmSync(dir);
  renameSync(`${dir}-volume`, dir);
  assert.deepEqual(await settledScan(), []);
  rmSync(join(dir, 'a.yaml'));
  assert.deepEqual(await settledScan(), ['a.yaml: absent']);
});

test('a file that two paths lead to is one file', async (t) => {
  const { dir, path, put, clock, log } = setUp(t);
  put('a.yaml', 'x');
  const files = new ManifestFiles({ paths: [path('a.yaml'), dir], isServed: () => false, clock, log });
  await files.scan();
  clock.advance(1_000);
  assert.deepEqual((await files.scan()).rested, [path('a.yaml')]);
});

test('a file that changes or goes after the look at it is not read before it has come to rest again', async (t) => {
  const { put, path, files, clock, settledScan } = setUp(t);
  put('a.yaml', 'x');
  put('b.yaml', 'x');
  await files.scan();
  clock.advance(50);
  const { rested } = await files.scan();
  put('a.yaml', 'longer');
  rmSync(path('b.yaml'));
  assert.deepEqual(
    rested.map((each) => files.take(each)),
    ['changing', 'changing'],
  );
  assert.deepEqual(await settledScan(), ['a.yaml: longer']);
});
