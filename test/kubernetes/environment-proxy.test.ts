import assert from 'node:assert/strict';
import { test } from 'node:test';
import { environmentProxy } from '../../src/kubernetes/agent-pool.ts';

const PROXY = 'http://proxy.example:3128/';

/** From golang.org/x/net/http/httpproxy/proxy_test.go, and what clusters have. */
const spared: readonly [noProxy: string, server: string, isSpared: boolean][] = [
  ['', 'https://10.96.0.1', false],
  ['', 'https://localhost:6443', true],
  ['', 'https://127.0.0.1:6443', true],
  ['', 'https://127.31.2.3', true],
  ['', 'https://[::1]:6443', true],
  ['10.0.0.0/8', 'https://10.96.0.1', true],
  ['10.0.0.0/8', 'https://11.0.0.1', false],
  ['10.0.0.0/8', 'https://api.example', false],
  ['172.16.0.0/12, 192.168.7.9/24', 'https://192.168.7.1:6443', true],
  ['fd00::/8', 'https://[fd12::1]:6443', true],
  ['fd00::/8', 'https://[2001:db8::1]', false],
  ['10.96.0.1', 'https://10.96.0.1', true],
  ['10.96.0.1', 'https://10.96.0.11', false],
  ['0.96.0.1', 'https://10.96.0.1', false],
  ['10.96.0.1:443', 'https://10.96.0.1', true],
  ['10.96.0.1:443', 'https://10.96.0.1:6443', false],
  ['FD12:0::1', 'https://[fd12::1]', true],
  ['[fd12::1]:443', 'https://[fd12::1]', true],
  ['[fd12::1]:80', 'https://[fd12::1]', false],
  ['example.com', 'https://example.com', true],
  ['Example.COM', 'https://api.example.com', true],
  ['example.com', 'https://notexample.com', false],
  ['.example.com', 'https://api.example.com', true],
  ['.example.com', 'https://example.com', false],
  ['*.example.com', 'https://api.example.com', true],
  ['*.example.com', 'https://example.com', false],
  ['example.com:6443', 'https://api.example.com:6443', true],
  ['example.com:6443', 'https://api.example.com', false],
  ['kubernetes.default.svc,.cluster.local', 'https://kubernetes.default.svc', true],
  ['bücher.example', 'https://api.xn--bcher-kva.example', true],
  ['*', 'https://api.example.com', true],
  ['a, *', 'https://10.96.0.1', true],
  [' , ,:80', 'https://10.96.0.1:80', false],
];

for (const [noProxy, server, isSpared] of spared) {
  test(`NO_PROXY="${noProxy}" ${isSpared ? 'spares' : 'does not spare'} ${server}`, () => {
    for (const name of ['NO_PROXY', 'no_proxy']) {
      const env = { HTTPS_PROXY: PROXY, [name]: noProxy };
      assert.equal(environmentProxy(new URL(server), env), isSpared ? undefined : PROXY);
    }
  });
}

test('the scheme of the server decides which proxy is used; upper case comes first', () => {
  const env = { HTTP_PROXY: 'http://a', http_proxy: 'http://b', https_proxy: 'https://u:p@c:1', ALL_PROXY: 'http://d' };
  assert.equal(environmentProxy(new URL('http://10.0.0.1'), env), 'http://a/');
  assert.equal(environmentProxy(new URL('https://10.0.0.1'), env), 'https://u:p@c:1/');
  assert.equal(environmentProxy(new URL('https://10.0.0.1'), { HTTP_PROXY: PROXY }), undefined);
});

test('a proxy may come without a scheme; one that cannot be used is none', () => {
  const proxyFor = (text: string) => environmentProxy(new URL('http://10.0.0.1'), { HTTP_PROXY: text });
  assert.equal(proxyFor('192.0.2.9:3128'), 'http://192.0.2.9:3128/');
  for (const text of ['', 'socks5://192.0.2.9', 'http://a b']) assert.equal(proxyFor(text), undefined);
});
