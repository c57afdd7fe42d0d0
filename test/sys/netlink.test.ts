import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeAttribute, encodeMessage, encodeNested, visitAttributes, visitMessages } from '../../src/sys/netlink.ts';

type Visited = [type: number, content: string];

function messages(bytes: Buffer): Visited[] {
  const visited: Visited[] = [];
  visitMessages(bytes, bytes.length, (type, begin, end) => visited.push([type, bytes.toString('hex', begin, end)]));
  return visited;
}

function attributes(bytes: Buffer, begin = 0, end = bytes.length): Visited[] {
  const visited: Visited[] = [];
  visitAttributes(bytes, begin, end, (type, from, to) => visited.push([type, bytes.toString('hex', from, to)]));
  return visited;
}

test('messages are visited one by one, without their headers', () => {
  const bytes = Buffer.concat([encodeMessage(0x101, 0x300, [Buffer.from('0a000000', 'hex')]), encodeMessage(3, 0, [])]);
  assert.equal(bytes.subarray(0, 16).toString('hex'), '14000000010101030000000000000000');
  assert.deepEqual(messages(bytes), [
    [0x101, '0a000000'],
    [3, ''],
  ]);
});

test('attributes are visited one by one, without padding and the nesting flag', () => {
  const bytes = encodeNested(1, [encodeAttribute(2, Buffer.of(17)), encodeAttribute(3, Buffer.of(0, 53))]);
  assert.deepEqual(attributes(bytes), [[1, '050002001100000006000300' + '00350000']]);
  assert.deepEqual(attributes(bytes, 4), [
    [2, '11'],
    [3, '0035'],
  ]);
});

test('bytes that are not messages or attributes are refused, without an endless loop', () => {
  for (const hex of ['00000000', `0f000000${'00'.repeat(12)}`, `20000000${'00'.repeat(12)}`]) {
    assert.throws(() => messages(Buffer.from(hex, 'hex')), RangeError);
  }
  for (const hex of ['00', '00000100', '03000100', '09000100' + '00000000']) {
    assert.throws(() => attributes(Buffer.from(hex, 'hex')), RangeError);
  }
});
