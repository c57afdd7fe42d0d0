import assert from 'node:assert/strict';
import { test } from 'node:test';
import { oneAtATime } from '../../src/util/wait.ts';
import { settle } from '../support/until.ts';

const HERE = new AbortController().signal;

/** Work that a test ends piece by piece. */
function setUp() {
  const begun: string[] = [];
  const ends: PromiseWithResolvers<string>[] = [];
  const work = oneAtATime((name: string) => {
    begun.push(name);
    const end = Promise.withResolvers<string>();
    ends.push(end);
    return end.promise;
  });
  return { begun, ends, work };
}

test('one is done after the other, also when one fails', async () => {
  const { begun, ends, work } = setUp();
  const [one, two, three] = ['one', 'two', 'three'].map((name) => work(name, HERE));
  await settle();
  assert.deepEqual(begun, ['one']);
  ends[0]?.reject(new Error('broken'));
  await assert.rejects(one as Promise<unknown>, /broken/);
  await settle();
  assert.deepEqual(begun, ['one', 'two']);
  ends[1]?.resolve('done');
  assert.equal(await two, 'done');
  await settle();
  ends[2]?.resolve('done, too');
  assert.equal(await three, 'done, too');
});

test('nothing is done for whoever has left while he waited', async () => {
  const { begun, ends, work } = setUp();
  const left = new AbortController();
  const one = work('one', HERE);
  const two = work('two', left.signal);
  left.abort();
  await settle();
  ends[0]?.resolve('done');
  assert.deepEqual(await Promise.all([one, two]), ['done', undefined]);
  assert.deepEqual(begun, ['one']);
});
