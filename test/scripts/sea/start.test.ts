import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { Script } from 'node:vm';
import { START_FLAGS } from '../../../scripts/sea/flags.ts';
import { forAnyHashSeed } from '../../../scripts/sea/hash-seed.ts';

/** What V8 makes of a source, with these flags. */
function cached(source: string, ...flags: readonly string[]): Buffer {
  const script = `process.stdout.write(new vm.Script(${JSON.stringify(source)}, { filename: 'a.js' }).createCachedData())`;
  return execFileSync(process.execPath, [...flags, '--eval', script]);
}

let functions = 0;

/** A different one each time: what V8 has once compiled in this process, it takes from there. */
const source = () => `(function () { return ${functions++}; })`;

const isTaken = (cachedData: Buffer, text: string) =>
  !new Script(text, { filename: 'a.js', cachedData }).cachedDataRejected;

describe('cached code', () => {
  test('of V8 for Node is of use with the flags of the start', () => {
    const [one, other] = [source(), source()];
    assert.ok(isTaken(cached(one, ...START_FLAGS), one));
    // As it is not with all flags.
    assert.ok(!isTaken(cached(other, ...START_FLAGS, '--optimize-for-size'), other));
  });

  test('is the same each time with a seed, and then of use without one', () => {
    const [text, other] = [source(), source()];
    const seeded = cached(text, '--hash-seed=1');
    assert.ok(seeded.equals(cached(text, '--hash-seed=1')));
    assert.notDeepEqual(forAnyHashSeed(seeded, { name: 'a.js', source: text }), seeded);
    assert.ok(!isTaken(cached(other, '--hash-seed=1'), other));
  });

  test('that V8 would not take ends the build', () => {
    const other = cached('(function () {})', '--hash-seed=1');
    assert.throws(() => forAnyHashSeed(other, { name: 'a.js', source: source() }), /V8 does not take .* a\.js/);
  });
});

test('an addon that is not in memory is a sentence', async () => {
  await assert.rejects(import('../../../scripts/sea/koffi.ts'), /the kernel refused memfd_create; allow it/);
});
