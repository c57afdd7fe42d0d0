import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refusalOf } from '../../src/http/http-origin.ts';

const LOOPBACK = ['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1'];

test('on loopback, only requests for localhost and IP addresses are answered: another name may belong to an attacker', () => {
  const own = ['localhost', 'LOCALHOST:10249', '127.0.0.1', '127.0.0.1:10249', '[::1]:10249', '10.0.0.5:80'];
  const others = [
    ...['site.example', 'site.example:10249', 'localhost.site.example', 'node-1:10249', '127.0.0.1.site.example'],
    ...['', ':10249', '[]', '[::1', 'localhost:80:80', '[site.example]', 'user@localhost', 'localhost/'],
  ];
  for (const address of LOOPBACK) {
    for (const host of own) assert.equal(refusalOf({ host }, address), undefined, `${host} at ${address}`);
    for (const host of others) assert.match(refusalOf({ host }, address) ?? '', /web sites/, `${host} at ${address}`);
    assert.equal(refusalOf({}, address), undefined, 'a client without a Host header is not a browser');
  }
});

test('on other addresses, requests for every name are answered', () => {
  for (const address of ['10.0.0.5', 'fd00::5', '::ffff:10.0.0.5']) {
    assert.equal(refusalOf({ host: 'node-1.example:10249' }, address), undefined, address);
  }
});

test('requests of other web sites are refused; their links are not', () => {
  const isAnswered = (site: string, dest: string) =>
    refusalOf({ 'sec-fetch-site': site, 'sec-fetch-dest': dest }, '10.0.0.5') === undefined;
  for (const dest of ['empty', 'image', 'script', 'style', 'iframe', 'frame', 'object', 'video']) {
    assert.deepEqual(
      ['cross-site', 'same-site', 'same-origin'].map((site) => isAnswered(site, dest)),
      [false, false, true],
      dest,
    );
  }
  assert.ok(isAnswered('cross-site', 'document'));
  assert.ok(isAnswered('none', 'document'));
});
