import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bodyOf, type Head } from '../../src/state/format.ts';
import { StateFile } from '../../src/state/state-file.ts';
import { finished } from '../../src/util/wait.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { MemoryFiles } from '../fakes/memory-files.ts';

const CLOCK = new ManualClock();
const HEAD: Head = {
  node: 'node-1',
  source: 'kubernetes',
  cluster: 'uid-1',
  bootId: 'boot-1',
  program: '1.0.0',
  writtenAt: CLOCK.wallNow(),
};
const OWN = { node: 'node-1', source: 'kubernetes' } as const;
const PATH = '/state/last-state';
const HOUR_MS = 3_600_000;

async function written(head: Partial<Head> = {}) {
  const files = new MemoryFiles();
  const file = new StateFile({ directory: '/state', files, clock: CLOCK });
  const place = { file: '/etc/web.yaml', document: 1, line: 3, field: 'items[0]' };
  const body = await finished(CLOCK, bodyOf([{ object: { kind: 'Service' } }, { object: 1, at: place }]));
  await file.write({ ...HEAD, ...head }, body);
  return { files, file };
}

/** Has `change` made from the text of the file. */
async function changed(change: (text: string) => string) {
  const { files, file } = await written();
  const { bytes } = (await files.read(PATH))!;
  await files.remove(PATH);
  const other = await files.create(PATH);
  await other.write(Buffer.from(change(bytes.toString())));
  return file;
}

test('what was written is read, with its places and its time', async () => {
  const { file } = await written();
  const saved = await file.read(OWN, 0);
  assert.deepEqual(saved?.head, HEAD);
  assert.equal(saved?.knownAt, HEAD.writtenAt);
  assert.deepEqual(
    [...(saved?.objects ?? [])],
    [
      { object: { kind: 'Service' } },
      { object: 1, at: { file: '/etc/web.yaml', document: 1, line: 3, field: 'items[0]' } },
    ],
  );
});

test('each byte counts: a file with another byte anywhere, or without its end, is torn', async () => {
  const { files } = await written();
  const { length } = (await files.read(PATH))!.bytes;
  for (let at = 0; at < length; at++) {
    const flip = (text: string) => text.slice(0, at) + (text[at] === '0' ? '1' : '0') + text.slice(at + 1);
    const message = `with another byte ${at}`;
    await assert.rejects((await changed(flip)).read(OWN, 0), { name: 'UnusableState' }, message);
    await assert.rejects((await changed((text) => text.slice(0, at))).read(OWN, 0), /torn or damaged/, `up to ${at}`);
  }
});

const unusable: readonly (readonly [what: string, head: Partial<Head>, why: RegExp])[] = [
  ['another node', { node: 'node-2' }, /it is of another node: node-2/],
  ['another source', { source: 'manifests' }, /it is of another source of Services: manifests/],
];
for (const [what, head, why] of unusable) {
  test(`a state of ${what} is not used`, async () => {
    await assert.rejects((await written(head)).file.read(OWN, 0), why);
  });
}

test('a state of a later format is not used, whatever else it says', async () => {
  const later = await changed((text) => text.replace('"format":1', '"format":2'));
  await assert.rejects(later.read(OWN, 0), /it is of format 2, of a newer program; this one reads up to 1/);
});

test('with a greatest age, an older state is not used, nor one that is yet to come', async () => {
  const { file } = await written({ writtenAt: CLOCK.wallNow() - 2 * HOUR_MS });
  assert.ok(await file.read(OWN, 0));
  assert.ok(await file.read(OWN, 3 * HOUR_MS));
  await assert.rejects(file.read(OWN, HOUR_MS), /it is of 2023-.*, longer ago than --state-max-age/);
  await file.confirm(CLOCK.wallNow());
  assert.equal((await file.read(OWN, HOUR_MS))?.knownAt, CLOCK.wallNow());
  const future = await written({ writtenAt: CLOCK.wallNow() + HOUR_MS });
  await assert.rejects(future.file.read(OWN, 2 * HOUR_MS), /by this machine's clock is yet to come/);
});

test('what is wrong with the file can be asked for, until it was read, written or confirmed without a fault', async () => {
  const { files, file } = await written();
  await assert.rejects(file.read({ ...OWN, node: 'node-2' }, 0));
  const finding = {
    level: 'warn',
    found: 'the state on disk cannot be used: it is of another node: node-1',
    advice: 'correct that, or a start has no last state until one is written anew',
    place: PATH,
  };
  const now = () => file.finding;
  assert.deepEqual(now(), finding);
  await file.read(OWN, 0);
  assert.equal(now(), undefined);
  await files.remove(PATH);
  await assert.rejects(file.confirm(0));
  assert.match(now()?.found ?? '', /^the state on disk cannot be written: /);
  await file.write(HEAD, await finished(CLOCK, bodyOf([])));
  assert.equal(now(), undefined);
});
