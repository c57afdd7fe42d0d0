import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { refusalOf } from '../../src/http/http-origin.ts';

describe('a host that is asked for', () => {
  const isAnswered = (host: string | undefined, address: string) =>
    refusalOf(host === undefined ? {} : { host }, address) === undefined;

  test('on loopback is answered when nobody else can have it', () => {
    for (const host of ['localhost', 'LOCALHOST:10249', '127.0.0.1', '127.0.0.1:10249', '[::1]:10249', '10.0.0.5:80']) {
      for (const address of ['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1']) {
        assert.ok(isAnswered(host, address), `${host} at ${address}`);
      }
    }
  });

  test('on loopback is not when it is a name of somebody', () => {
    const others = [
      'site.example',
      'site.example:10249',
      'localhost.site.example',
      'node-1:10249',
      '127.0.0.1.site.example',
    ];
    const broken = ['', ':10249', '[]', '[::1', 'localhost:80:80', '[site.example]', 'user@localhost', 'localhost/'];
    for (const host of [...others, ...broken]) {
      for (const address of ['127.0.0.1', '::1', '::ffff:127.0.0.1']) {
        assert.ok(!isAnswered(host, address), `${host} at ${address}`);
      }
    }
  });

  test('on another address is answered, whatever its name', () => {
    for (const address of ['10.0.0.5', 'fd00::5', '::ffff:10.0.0.5']) {
      assert.ok(isAnswered('node-1.example:10249', address), address);
    }
  });

  test('need not be said', () => {
    assert.ok(isAnswered(undefined, '127.0.0.1'));
  });
});

describe('what a browser says of who asks', () => {
  const isAnswered = (site: string, dest: string) =>
    refusalOf({ 'sec-fetch-site': site, 'sec-fetch-dest': dest }, '10.0.0.5') === undefined;

  test('lets nobody but the page itself, and its reader, have anything', () => {
    for (const dest of ['empty', 'image', 'script', 'style', 'iframe', 'frame', 'object', 'video']) {
      assert.ok(!isAnswered('cross-site', dest), dest);
      assert.ok(!isAnswered('same-site', dest), dest);
      assert.ok(isAnswered('same-origin', dest), dest);
    }
  });

  test('lets a link lead here, and an address be typed in', () => {
    assert.ok(isAnswered('cross-site', 'document'));
    assert.ok(isAnswered('none', 'document'));
  });
});
