import assert from 'node:assert/strict';
import { test } from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';
import { DocumentError, parseDocuments, parseLargeDocuments } from '../../src/util/yaml.ts';

/** The only document's value, through JSON so that missing prototypes do not matter. */
function parse(text: string): unknown {
  const [document, ...others] = parseDocuments(text);
  assert.equal(others.length, 0);
  return JSON.parse(JSON.stringify(document?.value));
}

function errorOf(text: string): string {
  try {
    parseDocuments(text);
  } catch (error) {
    assert.ok(error instanceof DocumentError, String(error));
    return `${error.line}: ${error.message}`;
  }
  return assert.fail('expected an error');
}

test('YAML becomes plain values', () => {
  const text = '# c\na: [1, 1.5, true, ~, yes, 2020-01-01, "80"]\n"b c":\n  - d: |\n      x\n      y\n';
  assert.deepEqual(parse(text), { a: [1, 1.5, true, null, 'yes', '2020-01-01', '80'], 'b c': [{ d: 'x\ny\n' }] });
});

test('JSON is read as JSON, and flow style that begins like it as YAML', () => {
  for (const parseText of [parseDocuments, parseLargeDocuments]) {
    const plain = (text: string) => JSON.parse(JSON.stringify(parseText(text).map(({ value }) => value)));
    assert.deepEqual(plain(' \n{"a": [1, "\\u0041", null]}\n'), [{ a: [1, 'A', null] }]);
    assert.deepEqual(plain('{\n\t"a": 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}\n'), [{ a: 1, b: { c: 2 } }]);
    assert.deepEqual(plain('{a: [1, b,], }'), [{ a: [1, 'b'] }]);
    assert.deepEqual(plain('---\n{"a": 1}\n'), [{ a: 1 }]);
    assert.deepEqual(plain('--- {"a": 1}\n---\n{"b": 2}\n'), [{ a: 1 }, { b: 2 }]);
    assert.deepEqual(plain('a: 1\n---\nb: [2]\n'), [{ a: 1 }, { b: [2] }]);
  }
});

/** Every path into a value, with the line that a document says of it. */
function linesOf(value: unknown, lineOf: (path: readonly string[]) => number, path: readonly string[] = []): string[] {
  const parts = typeof value === 'object' && value !== null ? Object.entries(value) : [];
  return [
    `${path.join('.')}: ${lineOf(path)}`,
    ...parts.flatMap(([key, part]) => linesOf(part, lineOf, [...path, key])),
  ];
}

test('each part of a document knows its line', () => {
  const [, document] = parseDocuments(
    'a: 1\n---\na:\n  b:\n    - c: 1\n      d: >-\n        x\n\n        y\n    - e\n"f.g": {}\n',
  );
  assert.deepEqual(document && linesOf(document.value, document.lineOf), [
    ...[': 3', 'a: 3', 'a.b: 4', 'a.b.0: 5', 'a.b.0.c: 5', 'a.b.0.d: 6', 'a.b.1: 10', 'f.g: 11'],
  ]);
});

test('what is missing, or written elsewhere, has the line of what is next above it', () => {
  const [document] = parseDocuments('x: &x\n  p: 1\ny: *x\nz:\n  <<: *x\n  q: [1]\n');
  const lineOf = (...path: string[]) => document?.lineOf(path);
  assert.deepEqual([lineOf('n', 'p'), lineOf('x', 'n'), lineOf('y', 'p'), lineOf('z', 'p')], [1, 1, 3, 4]);
  assert.deepEqual([lineOf('z', 'q', '7'), lineOf('z', 'q', 'length'), lineOf('z', 'q', '0', 'm')], [6, 6, 6]);
});

test('JSON has the lines that it has as YAML', () => {
  const value = { a: [1, ['x,', '}]'], { 'k"\n': '\\' }], 'b c': { d: null, e: [] }, f: '😀' };
  for (const json of [
    JSON.stringify(value, null, 1),
    `\n${JSON.stringify(value, null, '\t').replaceAll('\n', '\r\n')}`,
    `\n---\n${JSON.stringify(value, null, 1)}`,
  ]) {
    const [document] = parseLargeDocuments(json);
    const [yaml] = parseDocuments(json);
    assert.ok(document && yaml);
    const lines = linesOf(document.value, document.lineOf);
    assert.deepEqual(lines, linesOf(yaml.value, yaml.lineOf), json);
    assert.ok(new Set(lines.map((line) => line.split(': ')[1])).size > 10);
  }
});

test('"..." ends a document too; comments alone are none', () => {
  assert.deepEqual(
    parseDocuments('a: 1\n...\nb: 2\n').map(({ lineOf, value }) => [lineOf([]), { ...(value as object) }]),
    [
      [1, { a: 1 }],
      [3, { b: 2 }],
    ],
  );
  assert.deepEqual(parseDocuments('# a: 1\n'), []);
});

test('a mistake is told with its line, in YAML and in JSON', () => {
  assert.match(errorOf('a: 1\nb: [1\nc: 2\n'), /^3: /);
  assert.match(errorOf('{\n"a": 1,\n"b": "\n}'), /^4: /);
  assert.match(errorOf('a: 1\n\tb: 2\n'), /^2: /);
});

test('a key that is there twice is a mistake, in JSON too', () => {
  for (const text of ['a: 1\na: 2\n', '{"a": 1,\n"a": 2}', '{"x": {"a": 1,\n"a": 2}}']) {
    assert.match(errorOf(text), /^2: a key is there twice/, text);
  }
});

test('aliases and merge keys stand for what was anchored', () => {
  const text = 'x: &x {p: 1, q: 2}\ny: {<<: *x, q: 3}\nz: [*x, *x]\nw: {<<: [{q: 4}, *x], r: 5}\n"<<": 6\n';
  assert.deepEqual(parse(text), {
    x: { p: 1, q: 2 },
    y: { p: 1, q: 3 },
    z: [
      { p: 1, q: 2 },
      { p: 1, q: 2 },
    ],
    w: { p: 1, q: 4, r: 5 },
    '<<': 6,
  });
});

test('aliases that lead nowhere and merges of no object are a mistake', () => {
  assert.match(errorOf('a: 1\nb: *nowhere\n'), /^2: unidentified alias "nowhere"/);
  assert.match(errorOf('\nd: {<<: 5}\n'), /^2: "<<" must stand for an object/);
});

test('an alias inside what it stands for does no harm', () => {
  const value = parseDocuments('a: &a\n  - *a\n')[0]?.value as { a: unknown[] };
  assert.equal(value.a[0], value.a);
});

test('an alias bomb is a mistake, in lists and in merge keys', () => {
  const bomb = (item: (previous: string) => string) =>
    ['a0: &a0 {k: v}', ...Array.from({ length: 12 }, (_, i) => `a${i + 1}: &a${i + 1} ${item(`*a${i}`)}`)].join('\n');
  const nine = (alias: string) => Array(9).fill(alias).join(', ');
  const limit = /aliases stand for more than 100000 values/;
  assert.match(errorOf(bomb((alias) => `[${nine(alias)}]`)), limit);
  assert.match(errorOf(bomb((alias) => `{<<: [${nine(alias)}]}`)), limit);
  assert.match(errorOf(`a: &a [1, 2, 3]\nb: [${'*a, '.repeat(25_001)}]`), limit);
  assert.equal(parseDocuments(`a: &a [1, 2, 3]\nb: [${'*a, '.repeat(25_000)}]`).length, 1);
});

test('no key reaches a prototype', () => {
  for (const text of ['{"__proto__": {"polluted": 1}}', '__proto__: {polluted: 1}\nconstructor: {prototype: {x: 1}}']) {
    const value = parseDocuments(text)[0]?.value as object;
    assert.ok(Object.hasOwn(value, '__proto__'));
    assert.equal((value as Record<string, unknown>)['polluted'], undefined);
  }
  assert.equal(({} as Record<string, unknown>)['polluted'], undefined);
});

test('keys are scalars, other ones a mistake, and so is a tag that JSON has no value for', () => {
  assert.deepEqual(parse('1: a\ntrue: b\nc: !!str 1\n'), { 1: 'a', true: 'b', c: '1' });
  assert.match(errorOf('? [a]\n: 1\n'), /^1: a key is a list or an object/);
  assert.match(errorOf('a: 1\nb: !!js/function x\n'), /^2: unknown scalar tag/);
  const long = errorOf(`a: !${'x'.repeat(1000)} 1`);
  assert.ok(long.length < 250, long);
});

test('a value does not keep the text that it was read from', () => {
  v8.setFlagsFromString('--expose-gc');
  const collect = vm.runInNewContext('gc') as () => void;
  const names: unknown[] = [];
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < 20; i++) {
    const text = `a-name-of-${i}-that-is-long\n# ${'x'.repeat(2 * 1024 * 1024)}`;
    names.push(...parseDocuments(text).map(({ value }) => value));
  }
  collect();
  assert.equal(names.length, 20);
  assert.ok(process.memoryUsage().heapUsed - before < 20 * 1024 * 1024);
});

test('nesting, numbers and documents without measure are a mistake or a value, and soon', () => {
  assert.match(errorOf('['.repeat(100_000)), /nested too deeply/);
  assert.match(errorOf('- '.repeat(100_000)), /nested too deeply/);
  assert.ok(parseDocuments(`a: ${'9'.repeat(1_000_000)}`)[0]);
  assert.match(errorOf(`a: ${'x'.repeat(4 * 1024 * 1024)}`), /^1: a YAML document is larger than 4 MiB; divide it/);
  const [large] = parseLargeDocuments(`\n{"a":\n"${'x'.repeat(4 * 1024 * 1024)}"}`);
  assert.equal(large?.lineOf(['a']), 2, 'the line of the whole document');
});
