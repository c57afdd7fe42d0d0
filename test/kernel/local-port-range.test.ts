import assert from 'node:assert/strict';
import { test } from 'node:test';
import { localPorts, parseLocalPorts } from '../../src/kernel/local-port-range.ts';

test('the range and the reserved ports are read as the kernel writes them', () => {
  const { range, reserved } = parseLocalPorts('32768\t60999\n', '8080,9000-9002\n');
  assert.deepEqual(range, { first: 32_768, last: 60_999 });
  assert.deepEqual([...reserved], [8080, 9000, 9001, 9002]);
  assert.deepEqual([...parseLocalPorts('1024\t65535\n', '\n').reserved], []);
});

test('port 0 is none', () => {
  assert.deepEqual(parseLocalPorts('0\t1000\n', '').range, { first: 1, last: 1000 });
});

test('what cannot be read is the kernel’s default', () => {
  for (const text of [undefined, '', 'many', '1 2 3']) {
    assert.deepEqual(parseLocalPorts(text, undefined), { range: { first: 32_768, last: 60_999 }, reserved: new Set() });
  }
});

test('this machine has one', () => {
  const { first, last } = localPorts().range;
  assert.ok(first >= 1 && last <= 65_535 && first < last);
});
