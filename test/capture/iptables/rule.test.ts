import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { JUMPS } from '../../../src/capture/iptables/chains.ts';
import { appendLine, fitsOnOneLine, unsafeReason } from '../../../src/capture/iptables/rule.ts';

const comment = (text: string) => `-p tcp -m comment --comment "${text}" -m tcp --dport 80 -j RETURN`;

describe('a rule for restore text', () => {
  test('is safe in all forms that we write', () => {
    for (const { spec } of JUMPS) assert.equal(unsafeReason(spec), undefined);
    for (const spec of [
      '-j RETURN',
      '-d fd00::1/128 -p udp -m udp --dport 53 -j DNAT --to-destination [fd00::5]:40001',
      '-d 10.96.0.1/32 -m physdev ! --physdev-is-in -j REDIRECT --to-ports 40001',
      comment('default/web:http'),
      comment('a'.repeat(255)),
    ]) {
      assert.equal(unsafeReason(spec), undefined, spec);
    }
  });

  const hostile: readonly string[] = [
    '-j RETURN\n-A INPUT -j ACCEPT',
    '-j RETURN\r',
    '-j RETURN\0',
    '-j RETURN\u2028',
    '-j RETURN\u007f',
    "-j 'RETURN'",
    '-j RETURN # more',
    '-j $(reboot)',
    '-j LOG --log-prefix "x"',
    '-m comment --comment "unclosed -j RETURN',
    '-m comment --comment "a" -m comment --comment "b" -j RETURN',
    `${comment('a')}\nCOMMIT`,
    comment('a\nb'),
    comment('a"b'),
    comment('a\\'),
    comment('a\tb'),
    comment('é'),
    comment('a'.repeat(256)),
    `-j RETURN${' '.repeat(2000)}`,
  ];
  for (const spec of hostile) {
    test(`is refused: ${JSON.stringify(spec.slice(0, 60))}`, () => {
      assert.notEqual(unsafeReason(spec), undefined);
      assert.throws(() => appendLine('KUBE-PORTALS-HOST', spec), /kept out of the restore text, because it/);
    });
  }

  test('is one line with any character', () => {
    for (let code = 0; code < 0x10000; code++) {
      const spec = comment(`a${String.fromCharCode(code)}b`);
      if (unsafeReason(spec) !== undefined) continue;
      assert.match(appendLine('X', spec), /^[\x20-\x7e]+$/);
    }
  });
});

test('a rule of another program is repeated only when it stays one line', () => {
  assert.ok(fitsOnOneLine('-m comment --comment "caf\u00e9 \\" \\\\" -j RETURN'));
  for (const spec of ['a\nb', 'a\rb', 'a\0b', 'a'.repeat(5000)]) assert.equal(fitsOnOneLine(spec), false);
});
