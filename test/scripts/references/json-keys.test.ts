import assert from 'node:assert/strict';
import { test } from 'node:test';
import { interfaceNames } from '../../../scripts/references/interface.ts';
import { declarationsIn, keysOf } from '../../../scripts/references/json-keys.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { all } from '../../operate/control/served.ts';

test('the keys of a type are those of what it extends, picks and contains, optional ones too', () => {
  const declarations = declarationsIn([
    `
/** A {brace} in a comment. */
export interface Whole
  extends Pick<
      Other,
      'kept' | 'deep'
    >,
    Named {
  readonly inline: { readonly a: number; readonly b?: string }; // } another
  readonly list?: readonly Item[];
  readonly choice:
    | 'one'
    | 'two';
}
export interface Other {
  readonly kept: number;
  readonly deep: Item;
  readonly left: number;
}
`,
    `
export interface Named {
  readonly name: string;
}
export type Item =
  | { readonly x: 1 }
  /** Or: */
  | { readonly x: 2; readonly y: string };
`,
  ]);
  assert.deepEqual(keysOf(declarations.get('Whole') ?? '', declarations).toSorted(), [
    'choice',
    'deep',
    'deep.x',
    'deep.y',
    'inline',
    'inline.a',
    'inline.b',
    'kept',
    'list',
    'list.x',
    'list.y',
    'name',
  ]);
});

test('what the program answers has no other keys than those that are promised', async () => {
  const view = new FakeView();
  const names = new Set(interfaceNames());
  const answers = {
    node: [await view.node()],
    services: [...view.services()],
    connections: (await all(view.connections())).flat(),
  };
  for (const [command, answer] of Object.entries(answers)) {
    assert.ok(answer.length > 0);
    const unknown = keysIn(answer).filter((key) => !names.has(`json /v1/${command} ${key}`));
    assert.deepEqual(unknown, []);
  }
});

/** Of all objects in there. Counters have names of their own, and are listed once. */
function keysIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(keysIn);
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, below]) => {
    if (key === 'counters' || key === 'totals') return [key];
    return [key, ...keysIn(below).map((each) => `${key}.${each}`)];
  });
}
