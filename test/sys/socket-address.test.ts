import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  addressIn,
  decodeAddress,
  decodePort,
  encodeSocketAddress,
  portIn,
  socketAddressWords,
} from '../../src/sys/socket-address.ts';

for (const [address, port] of [
  ['0.0.0.0', 0],
  ['10.96.0.100', 1],
  ['127.0.0.1', 255],
  ['192.168.255.254', 256],
  ['255.255.255.255', 65_535],
  ['::', 0],
  ['2001:db8::a:b', 53],
  ['fe80::ffff:ffff:ffff:ffff', 65_535],
] as const) {
  test(`${address} port ${port}: bytes and words of a socket address are one`, () => {
    const { bytes } = encodeSocketAddress(address, port);
    const words = socketAddressWords(address, port);
    assert.deepEqual(Buffer.from(words.buffer), bytes);
    assert.deepEqual([addressIn(words), portIn(words)], [address, port]);
    assert.deepEqual([decodeAddress(bytes), decodePort(bytes)], [address, port]);
  });
}

test('an IPv4-mapped address is read as the IPv4 address', () => {
  assert.equal(addressIn(socketAddressWords('::ffff:10.0.0.1', 80)), '10.0.0.1');
});
