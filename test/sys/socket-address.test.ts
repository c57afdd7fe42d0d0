import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Memory } from '../../src/sys/memory.ts';
import {
  AF_INET,
  AF_INET6,
  bindTo,
  getsockname,
  SOCK_DGRAM,
  SOCKET_ADDRESS_BYTES,
  socket,
} from '../../src/sys/socket.ts';
import { decodeAddress, decodePort, encodeSocketAddress, familyOfText } from '../../src/sys/socket-address.ts';
import { owned } from './descriptors.ts';

describe('a socket address', () => {
  for (const [address, port] of [
    ['10.1.2.3', 80],
    ['255.255.255.255', 65_535],
    ['0.0.0.0', 0],
    ['fd00:96::1', 443],
    ['::', 1],
    ['::1', 8080],
    ['2001:db8::', 53],
    ['2001:db8:1:2:3:4:5:6', 53],
    ['64:ff9b::192.0.2.33', 53],
  ] as const) {
    test(`of ${address} port ${port} comes back as it went`, () => {
      const { bytes } = encodeSocketAddress(address, port);
      const shown = address === '64:ff9b::192.0.2.33' ? '64:ff9b::c000:221' : address;
      assert.deepEqual([decodeAddress(bytes), decodePort(bytes)], [shown, port]);
      assert.equal(bytes.length, familyOfText(address) === AF_INET ? 16 : 28);
    });
  }

  test('of an IPv4-mapped address is shown as the IPv4 address', () => {
    assert.equal(decodeAddress(encodeSocketAddress('::ffff:10.1.2.3', 80).bytes), '10.1.2.3');
  });

  for (const [family, address] of [
    [AF_INET, '127.0.0.9'],
    [AF_INET6, '::1'],
  ] as const) {
    test(`is what the kernel understands: ${address}`, (t) => {
      const fd = owned(t, socket(family, SOCK_DGRAM));
      assert.equal(bindTo(fd, encodeSocketAddress(address, 0)), 0);
      const bound = new Memory(SOCKET_ADDRESS_BYTES);
      assert.equal(getsockname(fd, bound), 0);
      assert.equal(decodeAddress(bound.bytes), address);
      assert.ok(decodePort(bound.bytes) > 0);
    });
  }
});
