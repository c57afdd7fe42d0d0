import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileObject, ObjectId } from '../../src/manifests/file-state.ts';
import { NamedObjects } from '../../src/manifests/named-objects.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import { seededRandom } from '../support/seeded-random.ts';

const FILES = ['a.yaml', 'b.yaml', 'c.yaml'];
const IDS = ['x', 'y', 'z'].map((name): ObjectId => `Service "default/${name}"`);
const STATES = [1, 2].map((): SourceEvent => ({ kind: 'Service', key: 'default/x', value: undefined }));

test('whatever files change, what counts is what a look at all files would find, and no change is missed', () => {
  const random = seededRandom(1);
  const oneOf = <T>(list: readonly T[]) => list[Math.floor(random() * list.length)] as T;
  const objects = new NamedObjects();
  const states = new Map<string, readonly FileObject[]>();
  let last = new Map<ObjectId, SourceEvent | undefined>();
  let contested = 0;
  for (let round = 0; round < 2_000; round++) {
    for (let edits = Math.floor(random() * 3); edits >= 0; edits--) {
      const file = oneOf(FILES);
      const named = IDS.filter(() => random() < 0.6);
      const after = named.map((id, line): FileObject => {
        const event = random() < 0.2 ? undefined : oneOf(STATES);
        return { id, event, file, document: 1, line, field: undefined, piece: undefined };
      });
      objects.replace(states.get(file) ?? [], after);
      states.set(file, after);
    }
    const changes = objects.takeChanges(() => FILES);
    const naming = (id: ObjectId) => FILES.flatMap((file) => (states.get(file) ?? []).filter((each) => each.id === id));
    const now = new Map<ObjectId, SourceEvent | undefined>();
    for (const id of IDS) {
      const [counts, ...others] = naming(id).filter(({ event }) => event !== undefined);
      assert.equal(objects.get(id), counts);
      assert.deepEqual(objects.othersOf(id), others);
      assert.equal(objects.isNamed(id), naming(id).length > 0);
      now.set(id, counts?.event);
      contested += others.length;
      if (changes.has(id)) assert.equal(changes.get(id)?.event, last.get(id), 'what counted before');
      else assert.equal(counts?.event, last.get(id), 'a change was missed');
    }
    last = now;
  }
  assert.ok(contested > 1_000, 'several files name an object now and then');
});

test('an object that only moves within its file has not changed', () => {
  const objects = new NamedObjects();
  const at = (line: number): FileObject => {
    return { id: IDS[0]!, event: STATES[0], file: 'a.yaml', document: 1, line, field: undefined, piece: undefined };
  };
  const [before, after] = [at(1), at(2)];
  objects.replace([], [before]);
  assert.equal(objects.takeChanges(() => FILES).size, 1);
  objects.replace([before], [after]);
  assert.deepEqual([objects.takeChanges(() => FILES).size, objects.get(after.id)], [0, after]);
});
