import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, amount, bytes, html, mebibytes, span, whole } from '../../../src/http/page/html.ts';

test('values are escaped for text and for quoted attributes', () => {
  const evil = `<script>"'&`;
  assert.equal(
    html`<p title="${evil}">${evil}</p>`.text,
    '<p title="&lt;script&gt;&quot;&#39;&amp;">&lt;script&gt;&quot;&#39;&amp;</p>',
  );
});

test('HTML and numbers are not escaped, lists are joined, and undefined is empty', () => {
  const items = [html`<b>a</b>`, '<', 3, undefined, [html`<i></i>`]];
  assert.equal(html`${items}`.text, '<b>a</b>&lt;3<i></i>');
});

test('backslashes and dollar signs are literal', () => {
  assert.equal(html`\\d${'$&\\1'}`.text, '\\d$&amp;\\1');
});

test('amounts have two or three digits', () => {
  for (const [value, text] of [
    [0, '0'],
    [0.04, '0.0'],
    [0.4, '0.4'],
    [9.94, '9.9'],
    [9.96, '10'],
    [999.4, '999'],
    [999.5, '1.0 k'],
    [1_234, '1.2 k'],
    [9_960, '10 k'],
    [999_500, '1.0 M'],
    [350_000_000, '350 M'],
    [9.9e20, '990000 P'],
  ] as const) {
    assert.equal(amount(value), text);
  }
  assert.equal(bytes(0), '0 B');
  assert.equal(bytes(25_300_000), '25 MB');
  assert.equal(mebibytes(90 * 2 ** 20), '90 MiB');
  assert.equal(whole(1_234_567.4), '1,234,567');
});

test('durations have a suitable unit', () => {
  for (const [ms, text] of [
    [0, '0 ms'],
    [0.25, '0.3 ms'],
    [12, '12 ms'],
    [999.7, '1.0 s'],
    [4_000, '4.0 s'],
    [59_000, '59 s'],
    [120_000, '2 min'],
    [3 * 3_600_000, '3 h'],
    [3 * 86_400_000, '3 d'],
  ] as const) {
    assert.equal(span(ms), text);
  }
  assert.equal(ago(999), 'just now');
  assert.equal(ago(-5), 'just now');
  assert.equal(ago(4_900), '4 s ago');
  assert.equal(ago(7_200_000), '2 h ago');
});
