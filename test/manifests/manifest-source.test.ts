import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ManifestSource } from '../../src/manifests/manifest-source.ts';
import { parseCidr } from '../../src/model/address.ts';
import { findingText } from '../../src/model/finding.ts';
import type { SavedObject } from '../../src/model/saved-object.ts';
import type { SourceEvent, SourceSink } from '../../src/model/source.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { until } from '../support/until.ts';

/** Real time: a failing test ends after this, no other test waits that long. */
const PATIENCE_MS = 60_000;

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

  addressesOf(key: string): readonly string[] {
    const event = this.objects.get(`Service ${key}`);
    return event?.kind === 'Service' ? (event.value?.clusterIPs ?? []) : [];
  }

  get removals(): string[] {
    return this.batches.flat().flatMap(({ key, value }) => (value === undefined ? [key] : []));
  }
}

/** A source on `paths` in a new directory with these files. Its clock advances only while the test waits. */
async function start(t: TestContext, files: Record<string, string>, paths = ['m'], ranges: readonly string[] = []) {
  const dir = mkdtempSync(join(tmpdir(), 'manifests-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const path = (name: string) => join(dir, name);
  mkdirSync(path('m'));
  const put = (name: string, text: string) => writeFileSync(path(name), text);
  for (const [name, text] of Object.entries(files)) put(name, text);
  const [clock, sink, log] = [new ManualClock(), new RecordingSink(), new RecordingLog()];
  const source = new ManifestSource({
    clock,
    log,
    paths: paths.map(path),
    clusterIpRanges: ranges.flatMap((each) => parseCidr(each) ?? []),
  });
  t.after(() => source.stop());
  await source.start(sink);
  const within = async (condition: () => boolean, what: () => string) => {
    const deadline = performance.now() + PATIENCE_MS;
    while (!condition()) {
      if (performance.now() > deadline) assert.fail(`not within ${PATIENCE_MS} ms: ${what()}`);
      clock.advance(20);
      await sleep(2);
    }
  };
  const synced = () => within(() => sink.syncs === 1, () => 'it has synced'); // biome-ignore format: short
  /** Until these are the Services. */
  const becomes = (services: string) => within(() => sink.services === services, () => `${sink.services} is ${services}`); // biome-ignore format: short
  return { clock, sink, log, source, path, put, within, synced, becomes };
}

test('the first delivery has every object at once; synced() follows once, also for an empty directory', async (t) => {
  const files = { 'm/a.yaml': readFileSync(GOLDEN, 'utf8'), 'm/b.yml': service('b'), 'm/c.json': '{"kind": "List"}' };
  const { sink, log, put, synced, becomes } = await start(t, files);
  await synced();
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

  const empty = await start(t, {});
  await empty.synced();
  assert.deepEqual(empty.sink.batches, []);
});

test('a path that does not exist is refused in one sentence', async () => {
  for (const [path, message] of [
    ['/nowhere/a.yaml', 'there is no file or directory "/nowhere/a.yaml" to read manifests from'],
    ['/dev/null', '"/dev/null" is neither a file nor a directory of manifests'],
  ] as const) {
    const source = new ManifestSource({ paths: [path], clock: new ManualClock(), log: new RecordingLog() });
    await assert.rejects(source.start(new RecordingSink()), { message });
  }
});

test('a file that is edited, added, replaced by rename, emptied or removed takes effect', async (t) => {
  const files = { 'm/a.yaml': service('a') + service('b'), 'x.manifest': service('x') };
  const { put, path, becomes, sink } = await start(t, files, ['m', 'x.manifest']);
  await becomes('a=1 b=1 x=1');
  put('m/a.yaml', service('a', 2) + service('b'));
  await becomes('a=2 b=1 x=1');
  assert.equal(sink.batches[1]?.length, 1, 'only the difference');
  put('m/c.yaml', service('c'));
  await becomes('a=2 b=1 c=1 x=1');
  put('new', service('c', 2));
  renameSync(path('new'), path('m/c.yaml'));
  await becomes('a=2 b=1 c=2 x=1');
  put('m/c.yaml', '');
  await becomes('a=2 b=1 x=1');
  rmSync(path('m/a.yaml'));
  await becomes('x=1');
});

test('a directory that is replaced by rename takes effect', async (t) => {
  const { put, path, becomes, sink } = await start(t, { 'm/a.yaml': service('a'), 'm/b.yaml': service('b') });
  await becomes('a=1 b=1');
  mkdirSync(path('new'));
  put('new/a.yaml', service('a', 2));
  put('new/c.yaml', service('c'));
  renameSync(path('m'), path('old'));
  renameSync(path('new'), path('m'));
  await becomes('a=2 c=1');
  assert.deepEqual(sink.removals, ['default/b']);
});

for (const given of ['m', 'm/']) {
  test(`a given path (${given}) that is gone is a fault: its Services stay until it is back, and nothing else waits`, async (t) => {
    const files = { 'm/a.yaml': service('a'), 'x.manifest': service('x'), 'y.manifest': service('y') };
    const { put, path, becomes, within, sink, source, log } = await start(t, files, [
      given,
      'x.manifest',
      'y.manifest',
    ]);
    await becomes('a=1 x=1 y=1');
    const reports = () => log.of('error').map(({ message, fields }) => `${message} ${fields['file']}`);
    rmSync(path('m'), { recursive: true });
    rmSync(path('x.manifest'));
    put('y.manifest', service('y', 2));
    await within(() => reports().length === 2, () => reports().join()); // biome-ignore format: short
    await becomes('a=1 x=1 y=2');
    const kept = 'Manifests cannot be read; their last good state is kept';
    assert.deepEqual(reports().sort(), [`${kept} ${path('m')}`, `${kept} ${path('x.manifest')}`]);
    const unusable = [...source.unusable()];
    assert.deepEqual(unusable.map(({ place }) => place).sort(), [path('m'), path('x.manifest')]); // biome-ignore format: short
    assert.ok(unusable.every((each) => source.serves(each)));
    const found = [...source.findings()].map(({ level, place }) => `${level} ${place}`);
    assert.deepEqual(found.sort(), [`warn ${path('m')}`, `warn ${path('x.manifest')}`]);
    put('x.manifest', service('x', 2));
    await becomes('a=1 x=2 y=2');
    mkdirSync(path('new'));
    put('new/b.yaml', service('b'));
    renameSync(path('new'), path('m'));
    await becomes('b=1 x=2 y=2');
    assert.deepEqual(sink.removals, ['default/a']);
    assert.deepEqual([[...source.unusable()], [...source.findings()]], [[], []]);
    rmSync(path('m/b.yaml'));
    await becomes('x=2 y=2');
  });
}

test('what cannot be used is a finding: a warning where a last good state is served, and a failure elsewhere', async (t) => {
  const files = { 'm/a.yaml': service('a') + service('b'), 'm/new.yaml': 'x: [', 'm/c.yaml': service('c') };
  const { put, path, becomes, within, source } = await start(t, files);
  await becomes('a=1 b=1 c=1');
  const found = () =>
    [...source.findings()].map((finding) => `${finding.level} ${findingText(finding)}`.replaceAll(`${path('m')}/`, ''));
  put('m/a.yaml', service('a', 2) + service('b', 'x') + service('d', 'x'));
  put('m/c.yaml', 'x: [');
  await within(() => found().length === 4, () => found().join()); // biome-ignore format: short
  const [first, ...others] = found().sort();
  assert.match(first ?? '', /^fail A manifest file cannot be used; nothing of it is served: .* \(new\.yaml:\d+\)$/);
  const kept = 'is not valid; its last good state is kept: spec.clusterIP is "10.96.0.x"';
  assert.match(others[0] ?? '', /^fail Service "default\/d" is not valid; it is left out: .* \(a\.yaml:14\)$/);
  assert.match(others[1] ?? '', /^warn A manifest file cannot be used; its last good state is kept: .* \(c\.yaml:/);
  assert.equal(others[2], `warn Service "default/b" ${kept} (a.yaml:9)`);
});

/**
 * A process that starts with these files, after one that has had others before: what it cannot use of what the other
 * one serves, and what it serves. `isSaved`: it has the state of the other one from disk.
 */
async function succeed(
  t: TestContext,
  before: Record<string, string>,
  now: Record<string, string>,
  { isSaved = false } = {},
) {
  const { put, path, source, synced, within, log } = await start(t, before);
  await synced();
  for (const [name, text] of Object.entries(now)) put(name, text);
  await within(() => log.of('error').length > 0, () => 'it is reported'); // biome-ignore format: short
  // As in a file.
  const saved = JSON.parse(JSON.stringify([...source.contents()])) as SavedObject[];
  const successor = new ManifestSource({
    clock: systemClock,
    log: new RecordingLog(),
    paths: [path('m')],
    ...(isSaved && { saved }),
  });
  t.after(() => successor.stop());
  const sink = new RecordingSink();
  await new Promise<void>((resolve, reject) => {
    successor.start({ apply: (events) => sink.apply(events), synced: resolve }).catch(reject);
  });
  const lost = [...successor.unusable()]
    .filter((each) => source.serves(each))
    .map(({ place }) => place.replace(`${path('m')}/`, ''));
  return { lost, sink };
}

for (const [what, before, now, lost] of [
  ['a file that does not parse', service('a'), 'x: [', ['a.yaml:1']],
  ['an object that is not valid', service('a') + service('b'), service('a') + service('b', 'x'), ['a.yaml:9']],
  ['an object without a name', service('a') + service('b'), service('a') + service('B!', 2), ['a.yaml:8']],
  ['nothing but what it never could', 'x: [', 'x: [', []],
  ['nothing but an object that it never could', service('a', 'x') + service('b'), service('a', 'x'), []],
  ['nothing but an object that never had a name', service('A!') + service('b'), service('A!') + service('b', 2), []],
] as const) {
  test(`a successor cannot use ${what} of what its predecessor serves`, async (t) => {
    assert.deepEqual((await succeed(t, { 'm/a.yaml': before }, { 'm/a.yaml': now })).lost, lost);
  });
}

for (const [what, now, services] of [
  ['a file that does not parse', 'x: [', 'a=1 b=2 other=9'],
  ['an object that is not valid', service('a', 7) + service('b', 'x'), 'a=7 b=2 other=9'],
  ['an object without a name', service('a', 7) + service('B!', 2), 'a=7 b=2 other=9'],
] as const) {
  test(`a successor and a restart serve the last good state of ${what} from disk`, async (t) => {
    const before = { 'm/a.yaml': service('a') + service('b', 2), 'm/b.yaml': service('other', 8) };
    const files = { 'm/a.yaml': now, 'm/b.yaml': service('other', 9) };
    const { lost, sink } = await succeed(t, before, files, { isSaved: true });
    assert.deepEqual([lost, sink.services], [[], services]);
  });
}

test('a file that can be read counts alone, and one that is gone is gone, whatever the disk has', async (t) => {
  const before = { 'm/a.yaml': service('a') + service('b', 2), 'm/b.yaml': service('gone', 8), 'm/c.yaml': 'x: [' };
  const { path, put, source, synced } = await start(t, before);
  await synced();
  const saved = [...source.contents()];
  put('m/a.yaml', service('a'));
  rmSync(path('m/b.yaml'));
  const sink = new RecordingSink();
  const next = new ManifestSource({ clock: systemClock, log: new RecordingLog(), paths: [path('m')], saved });
  t.after(() => next.stop());
  await new Promise<void>((resolve, reject) => {
    next.start({ apply: (events) => sink.apply(events), synced: resolve }).catch(reject);
  });
  assert.equal(sink.services, 'a=1');
});

test('a mounted ConfigMap that is swapped by its link takes effect at once', async (t) => {
  const { path, put, becomes, sink } = await start(t, {});
  for (const [version, host] of Object.entries({ '..1': 1, '..2': 2 })) {
    mkdirSync(path(`m/${version}`));
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

test('a file that does not parse is reported once, and its objects stay until it is fixed', async (t) => {
  const files = { 'm/a.yaml': service('a'), 'm/b.yaml': service('b') };
  const { put, path, becomes, log, sink } = await start(t, files);
  await becomes('a=1 b=1');
  put('m/a.yaml', `${service('a', 2)}x: [`);
  put('m/b.yaml', service('b', 2));
  await becomes('a=1 b=2');
  const reports = log.of('error').map(({ fields: { file, document, line } }) => ({ file, document, line }));
  assert.deepEqual(reports, [{ file: path('m/a.yaml'), document: 2, line: 6 }]);
  put('m/a.yaml', service('a', 2));
  await becomes('a=2 b=2');
  assert.deepEqual(sink.removals, []);
});

test('of several files with one object, the first by --manifests and then by name counts; logged once', async (t) => {
  const files = { 'm/a.yaml': service('x', 1), 'm/b.yaml': service('x', 2), 'first.yaml': service('x', 3) };
  const { path, put, becomes, log } = await start(t, files, ['first.yaml', 'm']);
  const conflicts = () => log.of('warn').map(({ fields }) => `${fields['file']}: ${fields['others']}`);
  await becomes('x=3');
  put('m/b.yaml', service('x', 4) + service('y'));
  await becomes('x=3 y=1');
  const [first, a, b] = ['first.yaml', 'm/a.yaml', 'm/b.yaml'].map(path);
  assert.deepEqual(conflicts(), [`${first}: ${a}, ${b}`]);
  put('first.yaml', '');
  await becomes('x=1 y=1');
  assert.deepEqual(conflicts().slice(1), [`${a}: ${b}`]);
  put('m/a.yaml', service('x', 'None').replace('10.96.0.', ''));
  await becomes('y=1');
  rmSync(path('m/a.yaml'));
  await becomes('x=4 y=1');
});

test('changes of many files are delivered together; an object that moves between files is never gone', async (t) => {
  const names = Array.from({ length: 30 }, (_, index) => `s${String(index).padStart(2, '0')}`);
  const { put, becomes, sink } = await start(t, { 'm/moves.yaml': service('s00') + service('s01') });
  await becomes('s00=1 s01=1');
  for (const name of names) put(`m/${name}.yaml`, service(name, 2));
  put('m/moves.yaml', '# empty');
  await becomes(names.map((name) => `${name}=2`).join(' '));
  assert.deepEqual([sink.removals, sink.batches.length <= 3], [[], true]);
});

test('at the start it waits for a file that is being written', async (t) => {
  const { put, clock, sink, synced } = await start(t, { 'm/a.yaml': service('a'), 'm/b.yaml': service('b') });
  let text = service('b');
  for (let count = 0; count < 5; count += 1) {
    clock.advance(20);
    await sleep(5);
    text += service(`b${count}`);
    put('m/b.yaml', text);
    assert.deepEqual([sink.batches, sink.syncs], [[], 0]);
  }
  await synced();
  assert.deepEqual([sink.batches.length, sink.objects.size], [1, 7]);
});

test('a defect of the sink does not end the polling', async (t) => {
  const { put, within, becomes, sink, log } = await start(t, { 'm/a.yaml': service('a') });
  await becomes('a=1');
  const apply = sink.apply.bind(sink);
  sink.apply = () => {
    sink.apply = apply;
    throw new Error('defect');
  };
  put('m/a.yaml', service('a', 2));
  await within(() => log.of('error').length === 1, () => 'the defect is logged'); // biome-ignore format: short
  assert.match(String(log.of('error')[0]?.fields['err']), /^Error: defect/);
  put('m/a.yaml', service('a', 3));
  await becomes('a=3');
});

test('a file is looked at 5 ms after an event of the file system, and again 50 ms later', async (t) => {
  const { put, synced, clock } = await start(t, {});
  await synced();
  // The pass before is long ago, and the next poll is not due yet.
  clock.advance(100);
  const delays: number[] = [];
  const after = clock.after.bind(clock);
  clock.after = (delayMs, callback) => {
    delays.push(delayMs);
    return after(delayMs, callback);
  };
  put('m/a.yaml', service('a'));
  // The clock stands still, so only the event can end the wait for the next poll.
  await until('the wait for more events', () => delays.includes(5));
  clock.advance(5);
  await until('the wait until the file has come to rest', () => delays.includes(50));
});

test('a stream of events of one file does not keep the poll from finding what no event tells', async (t) => {
  const { path, put, within, becomes, sink } = await start(t, { 'a.yaml': service('a'), 'm/b.yaml': service('b', 1) });
  symlinkSync(path('a.yaml'), path('m/a.yaml'));
  await becomes('a=1 b=1');
  put('a.yaml', service('a', 2));
  let host = 1;
  const sees = () => {
    if (sink.services.endsWith(`b=${host}`)) put('m/b.yaml', service('b', ++host));
    return sink.services.startsWith('a=2');
  };
  await within(sees, () => sink.services);
});

test('once stopped, it delivers nothing and leaves no timer', async (t) => {
  const { put, synced, source, sink, clock } = await start(t, {});
  await synced();
  put('m/a.yaml', service('a'));
  clock.advance(500);
  await source.stop();
  assert.equal(clock.pendingTimers, 0);
  assert.deepEqual(sink.batches, []);
});

test('endpoints that match no Service are told once with their place, across files, until it changes', async (t) => {
  const endpoints = (port: string) =>
    `apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 10.0.0.1}], ports: [${port}]}]\n`;
  const files = { 'm/a.yaml': service('a'), 'm/b.yaml': `---\n${endpoints('{name: web, port: 80}')}` };
  const { log, path, put, becomes, within, sink } = await start(t, files);
  await becomes('a=1');
  const [told, ...others] = log.of('warn');
  assert.deepEqual(others, []);
  assert.equal(told?.message, 'Endpoints "default/a" does not match a Service');
  const { err, ...place } = told.fields;
  assert.deepEqual(place, { file: path('m/b.yaml'), document: 1, line: 2 });
  assert.match(String(err), /^its port "web" \(TCP\) is not in Service "default\/a", which waits for/);

  put('m/a.yaml', service('a', 2));
  await becomes('a=2');
  assert.equal(log.of('warn').length, 1, 'the same');
  put('m/a.yaml', service('b'));
  await becomes('b=1');
  assert.match(String(log.of('warn')[1]?.fields['err']), /^there is no Service "default\/a"; write one/);
  const ports = () => JSON.stringify(sink.objects.get('Endpoints default/a'));
  put('m/b.yaml', endpoints('{port: 80}'));
  await within(() => !ports().includes('web'), ports);
  put('m/a.yaml', service('a'));
  await becomes('a=1');
  assert.equal(log.of('warn').length, 2, 'it is corrected');
  put('m/b.yaml', endpoints('{name: web, port: 80}'));
  await within(
    () => log.of('warn').length > 2,
    () => 'told again after it was corrected',
  );
  assert.equal(log.of('warn').length, 3);
});

test('Services without a cluster IP get one, which stays unless somebody writes it', async (t) => {
  const without = (name: string) => `kind: Service\nmetadata: {name: ${name}}\nspec: {ports: [{port: 80}]}\n---\n`;
  // The first two addresses are not free: the network's and the broadcast are no hosts.
  const { log, put, synced, within, sink, path } = await start(
    t,
    { 'm/b.yaml': without('b') },
    ['m'],
    ['10.96.0.0/30', 'fd00:96::/112'],
  );
  await synced();
  const own = sink.services.split('=')[1];
  const other = own === '1' ? '2' : '1';
  put('m/a.yaml', service('a', other));
  await within(() => sink.services === `a=${other} b=${own}`, () => sink.services); // biome-ignore format: short
  assert.deepEqual(log.of('warn'), []);
  put('m/a.yaml', service('a', own));
  await within(() => sink.services === `a=${own} b=${other}`, () => sink.services); // biome-ignore format: short
  const [moved] = log.of('warn');
  assert.equal(moved?.message, 'Service "default/b" has another cluster IP, because other Services came or went');
  assert.deepEqual(moved.fields, { file: path('m/b.yaml'), before: `10.96.0.${own}`, now: `10.96.0.${other}` });
  put('m/b.yaml', without('b').replace('spec: {', 'spec: {ipFamilyPolicy: PreferDualStack, '));
  await within(() => sink.addressesOf('default/b').length === 2, () => 'an address of each family'); // biome-ignore format: short
  put('m/b.yaml', without('b').replace('spec: {', 'spec: {ipFamilies: [IPv6], '));
  await within(() => sink.addressesOf('default/b').length === 1, () => 'IPv6 alone'); // biome-ignore format: short
  assert.equal(log.of('warn').length, 1, 'another family is what the file says');
  put('m/b.yaml', without('b'));
  await within(() => sink.services === `a=${own} b=${other}`, () => sink.services); // biome-ignore format: short
  put('m/c.yaml', without('c'));
  await within(() => log.of('warn').length > 1, () => 'told that there is none'); // biome-ignore format: short
  const told = log.of('warn')[1];
  assert.equal(told?.message, 'Service "default/c" has no cluster IP');
  assert.match(String(told.fields['err']), /^no address of IPv4 is free in --service-cluster-ip-range$/);
});
