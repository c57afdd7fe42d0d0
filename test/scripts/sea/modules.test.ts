import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Modules } from '../../../scripts/sea/modules.ts';

function modulesOf(bodies: Readonly<Record<string, string>>) {
  return new Modules((name) => ({ source: `(function (exports, require, module) {${bodies[name]}\n})` }));
}

test('a module runs once, when it is first required', () => {
  const { require } = modulesOf({ 'a.js': 'exports.value = [];' });
  assert.equal(require('./a.js'), require('./a.js'));
});

test('modules that need each other get what there is so far', () => {
  const { require } = modulesOf({
    'a.js': `exports.early = 1; exports.b = require('./b.js'); exports.late = 2;`,
    'b.js': `exports.seen = Object.keys(require('./a.js'));`,
  });
  assert.deepEqual(require('./a.js'), { early: 1, b: { seen: ['early'] }, late: 2 });
});

test('a module that fails does so for everybody who asks, and so does what needs it', () => {
  const { require } = modulesOf({
    'a.js': `exports.half = () => {}; exports.b = require('./b.js');`,
    'b.js': `exports.half = () => {}; throw new Error('not here');`,
  });
  for (const name of ['./a.js', './b.js', './a.js', './b.js']) assert.throws(() => require(name), /^Error: not here$/);
});
