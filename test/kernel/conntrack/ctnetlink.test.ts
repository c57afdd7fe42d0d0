import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type KernelEntry, readEntry } from '../../../src/kernel/conntrack/ctnetlink.ts';
import { encodeAttribute, encodeNested } from '../../../src/sys/netlink.ts';

const ORIGINAL = 1;
const REPLY = 2;
const ID = encodeAttribute(12, Buffer.of(1, 2, 3, 4));
const ZONE = encodeAttribute(18, Buffer.of(0, 7));
const REDIRECTED = encodeAttribute(3, Buffer.of(0, 0, 1, 0x28));
const UDP = 17;

interface Tuple {
  readonly from?: string;
  readonly to?: string;
  readonly ports?: readonly [number, number];
  readonly protocol?: number;
  readonly extra?: readonly Buffer[];
}

function tuple(
  kind: number,
  { from = '0af40114', to = '0a60000a', ports = [40_000, 53], protocol = UDP, extra = [] }: Tuple,
) {
  const [source, destination] = from.length === 8 ? [1, 2] : [3, 4];
  const port = (number: number) => Buffer.of(number >> 8, number & 0xff);
  return encodeNested(kind, [
    encodeNested(1, [
      encodeAttribute(source, Buffer.from(from, 'hex')),
      encodeAttribute(destination, Buffer.from(to, 'hex')),
    ]),
    encodeNested(2, [
      encodeAttribute(1, Buffer.of(protocol)),
      encodeAttribute(2, port(ports[0])),
      encodeAttribute(3, port(ports[1])),
    ]),
    ...extra,
  ]);
}

function read(...attributes: readonly Buffer[]): KernelEntry | undefined {
  // As the kernel sends it, between other messages.
  const bytes = Buffer.concat([Buffer.alloc(4, 0xff), ...attributes, Buffer.alloc(4, 0xff)]);
  return readEntry(bytes, 4, bytes.length - 4, 'UDP');
}

const reply = tuple(REPLY, { from: 'c0a8320a', to: '0af40114', ports: [4000, 40_000] });

test('an entry with NAT has its original destination and the source of replies', () => {
  const entry = read(tuple(ORIGINAL, {}), reply, REDIRECTED, ID)!;
  assert.equal(entry.destination(), '10.96.0.10');
  assert.equal(entry.destinationPort, 53);
  assert.equal(entry.replyPort, 4000);
  assert.equal(entry.replySource(), '192.168.50.10');
  assert.equal(entry.isRedirected, true);
});

test('it is deleted by its original tuple and its ID, so a newer entry is not deleted instead', () => {
  const original = tuple(ORIGINAL, {});
  const entry = read(original, reply, REDIRECTED, ID)!;
  assert.deepEqual(Buffer.concat([...entry.identity]), Buffer.concat([original, ID]));
});

test('other protocols, other zones and halves of entries are ignored', () => {
  assert.equal(read(tuple(ORIGINAL, { protocol: 6 }), reply, REDIRECTED, ID), undefined);
  assert.equal(read(tuple(ORIGINAL, {}), reply, REDIRECTED, ID, ZONE), undefined);
  // One direction alone may be in a zone.
  const tupleZone = encodeAttribute(3, Buffer.of(0, 7));
  assert.equal(read(tuple(ORIGINAL, { extra: [tupleZone] }), reply, REDIRECTED, ID), undefined);
  for (const half of [tuple(ORIGINAL, {}), reply]) assert.equal(read(half, REDIRECTED, ID), undefined);
});
