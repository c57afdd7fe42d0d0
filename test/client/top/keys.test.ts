import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { keysOf } from '../../../src/client/top/keys.ts';

describe('keys', () => {
  const cases: readonly (readonly [input: string, keys: readonly string[]])[] = [
    ['q', ['q']],
    ['\u0003', ['ctrl-c']],
    ['\u001b', ['escape']],
    ['\u001b[A', ['up']],
    ['\u001bOB', ['down']],
    ['\u001b[5~\u001b[6~', ['page-up', 'page-down']],
    ['\u001b[Habc\u001b[4~', ['home', 'a', 'b', 'c', 'end']],
    ['\u001b\u001b[C', ['escape', 'right']],
    ['\u001bx', ['escape', 'x']],
    ['\r\u007f', ['enter', 'backspace']],
    // Ctrl-Right, F5, a mouse: known to nobody here, and no letters of a filter either.
    ['\u001b[1;5C\u001b[15~\u001b[<0;1;1Mz', ['z']],
    ['é\u{1f600}', ['é', '\u{1f600}']],
    ['', []],
  ];
  for (const [input, keys] of cases) {
    test(JSON.stringify(input), () => assert.deepEqual(keysOf(input), keys));
  }
});
