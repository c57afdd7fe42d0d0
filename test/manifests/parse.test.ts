import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ManifestSyntaxError, parseDocuments } from '../../src/manifests/parse.ts';
import { seededRandom } from '../support/seeded-random.ts';

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
    assert.ok(error instanceof ManifestSyntaxError, String(error));
    return `${error.line}: ${error.message}`;
  }
  return assert.fail('expected an error');
}

test('YAML becomes plain values', () => {
  const text = '# c\na: [1, 1.5, true, ~, yes, 2020-01-01, "80"]\n"b c":\n  - d: |\n      x\n      y\n';
  assert.deepEqual(parse(text), { a: [1, 1.5, true, null, 'yes', '2020-01-01', '80'], 'b c': [{ d: 'x\ny\n' }] });
});

test('JSON is read as JSON, and flow style that begins like it as YAML', () => {
  assert.deepEqual(parse(' \n{"a": [1, "\\u0041"]}\n'), { a: [1, 'A'] });
  assert.deepEqual(parse('{a: [1, b,], }'), { a: [1, 'b'] });
});

test('a document knows the line on which its content begins', () => {
  assert.deepEqual(
    parseDocuments('# c\n\n---\n\na: 1\n').map(({ lineOf }) => lineOf([])),
    [5],
  );
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
  const random = seededRandom(11);
  const below = (n: number) => Math.floor(random() * n);
  const space = () => [' ', '\n', '\r\n', '\n\n  ', ''][below(5)] ?? '';
  const text = () => JSON.stringify(['', 'a,b', '}]', '\\', '"', '\\"', '\n', '😀', 'a'.repeat(20)][below(9)]);
  const value = (depth: number): string => {
    const list = (part: (index: number) => string) =>
      Array.from({ length: below(4) }, (_, index) => space() + part(index) + space()).join(',');
    switch (below(depth > 4 ? 2 : 4)) {
      case 0:
        return text();
      case 1:
        return ['1', '-2.5e3', 'true', 'null'][below(4)] ?? '';
      case 2:
        return `[${list(() => value(depth + 1)) || space()}]`;
      default:
        return `{${list((index) => `"k${index}\\n":${space()}${value(depth + 1)}`) || space()}}`;
    }
  };
  let several = 0;
  for (let round = 0; round < 300; round += 1) {
    const json = `${space()}{"a":${space()}${value(0)}}${space()}`;
    const [asJson] = parseDocuments(json);
    const [asYaml] = parseDocuments(`--- ${json}`);
    assert.ok(asJson && asYaml, json);
    const lines = linesOf(asJson.value, asJson.lineOf);
    assert.deepEqual(lines, linesOf(asYaml.value, asYaml.lineOf), json);
    if (new Set(lines.map((line) => line.split(': ')[1])).size > 3) several += 1;
  }
  assert.ok(several > 30);
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

test('a key that is there twice is a mistake', () => {
  assert.equal(errorOf('a: 1\nb: 2\na: 3\n'), '3: the key "a" is there twice');
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

test('an alias means the last anchor of its name', () => {
  assert.deepEqual(parse('[&a 1, *a, &a 2, *a]'), [1, 1, 2, 2]);
});

test('aliases that lead nowhere or into themselves are a mistake', () => {
  assert.equal(errorOf('a: 1\nb: *nowhere\n'), '2: the alias *nowhere has no anchor before it');
  assert.equal(errorOf('a: &a\n  - *a\n'), '2: the alias *a stands inside what it stands for');
  assert.equal(errorOf('a: &a [1]\nb: {<<: *a, c: *a}\nd: {<<: 5}\n'), '2: "<<" needs an object or a list of objects');
});

test('an alias bomb is a mistake, in lists and in merge keys', () => {
  const bomb = (item: (previous: string) => string) =>
    ['a0: &a0 {k: v}', ...Array.from({ length: 12 }, (_, i) => `a${i + 1}: &a${i + 1} ${item(`*a${i}`)}`)].join('\n');
  const nine = (alias: string) => Array(9).fill(alias).join(', ');
  const limit = /its aliases stand for more than 100000 values$/;
  assert.match(errorOf(bomb((alias) => `[${nine(alias)}]`)), limit);
  assert.match(errorOf(bomb((alias) => `{<<: [${nine(alias)}]}`)), limit);
  assert.match(errorOf(`a: &a [${'1, '.repeat(2000)}]\nb: [${'*a, '.repeat(2000)}]`), limit);
});

test('no key reaches a prototype', () => {
  for (const text of ['{"__proto__": {"polluted": 1}}', '__proto__: {polluted: 1}\nconstructor: {prototype: {x: 1}}']) {
    const value = parseDocuments(text)[0]?.value as object;
    assert.ok(Object.hasOwn(value, '__proto__'));
    assert.equal((value as Record<string, unknown>)['polluted'], undefined);
  }
  assert.equal(({} as Record<string, unknown>)['polluted'], undefined);
});

test('keys are strings, other ones a mistake; unknown tags change nothing', () => {
  assert.deepEqual(parse('1: a\ntrue: b\nc: !y d\n'), { 1: 'a', true: 'b', c: 'd' });
  assert.match(errorOf('? [a]\n: 1\n'), /^1: .*keys must be strings/);
  const quoted = errorOf(`[1] ${'}'.repeat(1000)}`);
  assert.ok(quoted.length < 250, quoted);
  assert.deepEqual(parse('a: !!js/function x\nb: !!binary eA==\n'), { a: 'x', b: 'eA==' });
});

test('nesting, numbers and documents without measure are a mistake or a value, and soon', () => {
  assert.match(errorOf('['.repeat(100_000)), /nested too deeply/);
  assert.match(errorOf('- '.repeat(100_000)), /nested too deeply/);
  assert.deepEqual(parseDocuments(`a: ${'9'.repeat(1_000_000)}`)[0]?.value, { __proto__: null, a: Infinity });
  assert.match(errorOf(`a: ${'x'.repeat(4 * 1024 * 1024)}`), /^1: a YAML document is larger than 4 MiB; divide it/);
  assert.ok(parseDocuments(`{"a": "${'x'.repeat(4 * 1024 * 1024)}"}`)[0], 'JSON of that size is no trouble');
});

test('the time it takes grows with the size, not with its square', () => {
  const before = process.cpuUsage();
  parseDocuments(Array.from({ length: 60_000 }, (_, i) => `k${i}: 1\n`).join(''));
  parseDocuments(Array.from({ length: 30_000 }, (_, i) => `- &a${i} x\n- *a${i}\n`).join(''));
  const [list] = parseDocuments(JSON.stringify({ items: Array(30_000).fill({ a: 'x'.repeat(300) }) }, null, 1));
  for (let index = 0; index < 30_000; index += 1) assert.ok(list?.lineOf(['items', `${index}`, 'a']));
  // Half a minute and more when every key or anchor is compared with every other one; a second as it is.
  const { user, system } = process.cpuUsage(before);
  assert.ok(user + system < 15e6, `${(user + system) / 1e6} s of processor time`);
});
