import assert from 'node:assert/strict';
import { test } from 'node:test';
import { html } from '../../../src/http/page/html.ts';

test('what is put in is escaped, for text and for quoted attributes', () => {
  const evil = `<script>"'&`;
  assert.equal(
    html`<p title="${evil}">${evil}</p>`.text,
    '<p title="&lt;script&gt;&quot;&#39;&amp;">&lt;script&gt;&quot;&#39;&amp;</p>',
  );
});

test('what is HTML already, lists and numbers go in as they are, and undefined is nothing', () => {
  const items = [html`<b>a</b>`, '<', 3, undefined, [html`<i></i>`]];
  assert.equal(html`${items}`.text, '<b>a</b>&lt;3<i></i>');
});

test('a backslash and a dollar sign are themselves', () => {
  assert.equal(html`\\d${'$&\\1'}`.text, '\\d$&amp;\\1');
});
