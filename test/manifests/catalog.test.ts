import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Catalog } from '../../src/manifests/catalog.ts';
import { objectId } from '../../src/manifests/file-state.ts';
import type { SourceEvent } from '../../src/model/source.ts';

type Contents = Record<string, number | 'skipped'>;

/** A file's objects: Endpoints by name, told apart by a port. */
function objects(contents: Contents) {
  const events = Object.entries(contents).map(([name, port]): SourceEvent => {
    const key = `default/${name}` as const;
    const groups = [{ addresses: [], ports: [{ name: '', protocol: 'TCP' as const, port: Number(port) }] }];
    return { kind: 'Endpoints', key, value: port === 'skipped' ? undefined : { key, groups } };
  });
  return new Map(events.map((event) => [objectId(event), event]));
}

class Subject {
  readonly #catalog = new Catalog();

  file(source: number, path: string, contents: Contents | undefined): this {
    this.#catalog.set({ source, path }, contents && objects(contents));
    return this;
  }

  /** `name=port` or `name=gone` for each event. */
  events(): string[] {
    return this.take().events;
  }

  take() {
    const { events, reports } = this.#catalog.takeChanges();
    return {
      events: events.map((event) => {
        const port = event.kind === 'Endpoints' ? event.value?.groups[0]?.ports[0]?.port : undefined;
        return `${event.key.replace('default/', '')}=${port ?? 'gone'}`;
      }),
      reports,
    };
  }
}

test('what a file adds, changes and removes is delivered once', () => {
  const subject = new Subject();
  assert.deepEqual(subject.file(0, 'f', { a: 1, b: 1 }).events(), ['a=1', 'b=1']);
  assert.deepEqual(subject.events(), []);
  assert.deepEqual(subject.file(0, 'f', { a: 1, b: 2, c: 3 }).events(), ['b=2', 'c=3']);
  assert.deepEqual(subject.file(0, 'f', { b: 2 }).events(), ['a=gone', 'c=gone']);
  assert.deepEqual(subject.file(0, 'f', undefined).events(), ['b=gone']);
});

test('a change that is undone before it is taken is none', () => {
  const subject = new Subject();
  subject.file(0, 'f', { a: 1 }).take();
  assert.deepEqual(subject.file(0, 'f', {}).file(0, 'f', { a: 1 }).events(), []);
});

test('an object that moves to another file in one go is never gone', () => {
  const subject = new Subject();
  subject.file(0, 'f', { a: 1, b: 1 }).take();
  assert.deepEqual(subject.file(0, 'f', { b: 1 }).file(0, 'g', { a: 1 }).events(), []);
});

test('of several files with one object the first counts, by --manifests and then by name', () => {
  const subject = new Subject();
  assert.deepEqual(subject.file(1, 'a', { x: 1 }).file(0, 'c', { x: 2 }).file(0, 'b', { x: 3 }).events(), ['x=3']);
  assert.deepEqual(subject.file(0, 'b', {}).events(), ['x=2']);
  assert.deepEqual(subject.file(0, 'c', undefined).events(), ['x=1']);
  assert.deepEqual(subject.file(0, 'c', { x: 1 }).events(), [], 'equal to what is known');
  assert.deepEqual(subject.file(1, 'a', { x: 9 }).events(), [], 'not the first');
});

test('an object that the first file does not want served is not served for a later one', () => {
  const subject = new Subject();
  subject.file(0, 'b', { x: 1 }).take();
  assert.deepEqual(subject.file(0, 'a', { x: 'skipped' }).events(), ['x=gone']);
  assert.deepEqual(subject.file(0, 'a', { x: 'skipped' }).events(), []);
  assert.deepEqual(subject.file(0, 'a', {}).events(), ['x=1']);
});

test('a conflict is reported once, and again when it is another one', () => {
  const subject = new Subject();
  const reports = () =>
    subject.take().reports.map(({ message, fields }) => `${message} ${fields['file']} ${fields['others']}`);
  subject.file(0, 'a', { x: 1 }).file(0, 'b', { x: 2 });
  const message = 'Endpoints "default/x" is in several manifest files; the first one counts';
  assert.deepEqual(reports(), [`${message} a b`]);
  subject.file(0, 'a', { x: 3 });
  assert.deepEqual(reports(), []);
  subject.file(0, 'c', { x: 3 });
  assert.deepEqual(reports(), [`${message} a b, c`]);
  subject.file(0, 'b', {}).file(0, 'c', {});
  assert.deepEqual(reports(), []);
  subject.file(0, 'b', { x: 2 });
  assert.deepEqual(reports(), [`${message} a b`]);
});

test('names that objects have by nature are names like any other', () => {
  const subject = new Subject();
  assert.deepEqual(subject.file(0, 'constructor', { constructor: 1 } as Contents).events(), ['constructor=1']);
  assert.deepEqual(subject.file(0, 'constructor', undefined).events(), ['constructor=gone']);
});

test('what a change costs does not depend on how much else there is', () => {
  /** Microseconds of the processor for a hundred changes among so many files; the least of some attempts. */
  const costAmong = (files: number): number => {
    const subject = new Subject();
    for (let file = 0; file < files; file += 1) subject.file(0, `f${file}`, { [`a${file}`]: 1, [`b${file}`]: 1 });
    assert.equal(subject.events().length, 2 * files);
    const costs = Array.from({ length: 10 }, (_, attempt) => {
      const before = process.cpuUsage();
      for (let port = 2; port < 102; port += 1) {
        const value = 100 * attempt + port;
        assert.deepEqual(subject.file(0, 'f7', { a7: 1, b7: value }).events(), [`b7=${value}`]);
      }
      return process.cpuUsage(before).user + process.cpuUsage(before).system;
    });
    return Math.min(...costs);
  };
  const [few, many] = [costAmong(8), costAmong(8_000)];
  assert.ok(many < 5 * few, `${many} µs among many, ${few} µs among few`);
});
