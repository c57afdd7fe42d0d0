import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { encodeMessage, type Message, MessageReader } from '../../../../src/kernel/iptables/helper/messages.ts';

const BYTES = Buffer.from(Array.from({ length: 256 }, (_, code) => code));

const MESSAGES: readonly Message[] = [
  { head: { program: 'x', args: ['a\nb', 'ü€'] }, body: BYTES },
  { head: {}, body: Buffer.alloc(0) },
  { head: 'text', body: Buffer.from('{"head":{},"bytes":3}\nabc') },
  { head: null, body: Buffer.from('\n') },
];

function read(pieces: Iterable<Buffer>): Message[] {
  const messages: Message[] = [];
  const reader = new MessageReader((message) => messages.push(message));
  for (const piece of pieces) reader.push(piece);
  return messages;
}

function* cut(stream: Buffer, length: number): Generator<Buffer> {
  for (let at = 0; at < stream.length; at += length) yield stream.subarray(at, at + length);
}

describe('messages on a stream', () => {
  const stream = Buffer.concat(MESSAGES.flatMap(({ head, body }) => encodeMessage(head, [body])));

  test('come out as they went in, however the stream is cut', () => {
    for (const length of [1, 2, 3, 7, 64, 300, stream.length]) {
      assert.deepEqual(read(cut(stream, length)), MESSAGES, `pieces of ${length} bytes`);
    }
  });

  test('may be written in pieces', () => {
    const [message] = read(encodeMessage(1, [BYTES, Buffer.alloc(0), BYTES]));
    assert.deepEqual(message, { head: 1, body: Buffer.concat([BYTES, BYTES]) });
  });

  test('come out when their last byte is there, and not before', () => {
    const bytes = Buffer.concat(encodeMessage(1, [Buffer.from('abc')]));
    assert.equal(read([bytes.subarray(0, -1)]).length, 0);
    assert.equal(read([bytes]).length, 1);
    assert.equal(read(encodeMessage(1, [])).length, 1);
  });

  test('do not share memory with what the stream delivers later', () => {
    const bytes = Buffer.concat(encodeMessage(1, [Buffer.from('abc')]));
    const [message] = read([bytes]);
    bytes.fill(0);
    assert.equal(message?.body.toString(), 'abc');
  });

  for (const [what, text] of [
    ['no JSON', 'hello\n'],
    ['null', 'null\n'],
    ['no length', '{"head":{}}\n'],
    ['a negative length', '{"head":{},"bytes":-1}\n'],
    ['a fraction', '{"head":{},"bytes":1.5}\n'],
    ['a length as a text', '{"head":{},"bytes":"1"}\n'],
    ['too great a length', '{"head":{},"bytes":268435457}\n'],
    ['a head without end', `{"head":"${'x'.repeat(1 << 20)}`],
  ] as const) {
    test(`${what} is refused`, () => {
      assert.throws(() => read(cut(Buffer.from(text), 64 << 10)), Error);
    });
  }
});
