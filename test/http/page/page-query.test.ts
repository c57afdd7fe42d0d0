import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type PageQuery, parsePageQuery, printPageQuery, rowKey } from '../../../src/http/page/page-query.ts';

const DEFAULT: PageQuery = { words: [], sort: 'state', reversed: false, hideHealthy: false, page: 1, open: [] };

function parse(text: string): PageQuery {
  return parsePageQuery(new URLSearchParams(text));
}

test('the default is an empty query', () => {
  assert.deepEqual(parse(''), DEFAULT);
  assert.equal(printPageQuery(DEFAULT), '?');
});

test('every field can be read back from the URL', () => {
  const query: PageQuery = {
    words: ['web', 'é&=?#'],
    sort: 'failures',
    reversed: true,
    hideHealthy: true,
    page: 7,
    open: ['a/b', 'a/b:c/IPv6'],
  };
  assert.deepEqual(parse(printPageQuery(query).slice(1)), query);
});

test('invalid parameters are ignored', () => {
  for (const text of [
    'sort=colour',
    'page=0',
    'page=-1',
    'page=1.5',
    'page=x',
    'page=1e99',
    'reversed=yes',
    'hide=all',
    'q=+',
    'open=web',
    'open=a/b/c',
    'open=a/b/IPv7',
    `open=a/${'b'.repeat(64)}`,
  ]) {
    assert.deepEqual(parse(text), DEFAULT, text);
  }
});

test('a search ignores case and has a maximum length', () => {
  assert.deepEqual(parse('q=WEB++Http').words, ['web', 'http']);
  assert.equal(parse(`q=${'x'.repeat(10_000)}`).words.join(' ').length, 200);
});

test('the rows that were opened last stay open', () => {
  const rows = Array.from({ length: 100 }, (_, index) => `a/row-${index}`);
  assert.deepEqual(parse(rows.map((row) => `open=${row}`).join('&')).open, rows.slice(80));
});

test('a row key may have the longest names of Kubernetes', () => {
  const name = 'x'.repeat(63);
  const key = rowKey({ name: `${name}/${name}:${name}`, family: 'IPv6' });
  assert.deepEqual(parse(`open=${key}`).open, [key]);
});
