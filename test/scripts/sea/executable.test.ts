import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { type Executable, PT_LOAD, parseExecutable } from '../../../scripts/sea/elf.ts';
import { type EntryTable, entryCode } from '../../../scripts/sea/entry-code.ts';
import { composeExecutable } from '../../../scripts/sea/executable.ts';

const node = readFileSync(process.execPath);
const application = Buffer.from('the application');
const addon = Buffer.from('the addon');

function at({ bytes, segments }: Executable, address: number, length: number): Buffer {
  const segment = segments.find(
    (each) => each.type === PT_LOAD && address >= each.address && address < each.address + each.fileBytes,
  );
  assert.ok(segment !== undefined, `nothing at ${address.toString(16)}`);
  return bytes.subarray(segment.offset + address - segment.address).subarray(0, length);
}

describe('the executable', () => {
  const before = parseExecutable(node);
  const after = parseExecutable(Buffer.concat(composeExecutable({ node, application, addon })));
  const loaded = (executable: Executable) => executable.segments.filter(({ type }) => type === PT_LOAD);

  test('has all of Node where it belongs in memory, but for one byte', () => {
    let changed = 0;
    for (const { address, fileBytes } of loaded(before)) {
      const [old, now] = [at(before, address, fileBytes), at(after, address, fileBytes)];
      if (old.equals(now)) continue;
      for (const [index, byte] of old.entries()) if (now[index] !== byte) changed++;
    }
    assert.equal(changed, 1);
  });

  test('is loaded in the order of its addresses, each part at the same place in its page', () => {
    let end = 0;
    for (const { address, memoryBytes, offset } of loaded(after)) {
      assert.ok(address >= end);
      assert.equal((address - offset) % 0x1000, 0);
      end = address + memoryBytes;
    }
  });

  test('is smaller than Node, for what is not loaded', () => {
    assert.ok(after.bytes.length < node.length);
  });

  test('begins with the code that knows Node and the addon', () => {
    const code = at(after, after.entry, 0xa0 + 40);
    assert.equal(Number(code.readBigUInt64LE(0xa8)), before.entry);
    const [address, length] = [Number(code.readBigUInt64LE(0xb0)), Number(code.readBigUInt64LE(0xb8))];
    assert.equal(at(after, address, length).toString(), 'the addon');
    assert.equal(code.toString('latin1', 0xc0, 0xc8), 'mallopt\0');
  });

  test('is made of nothing else than a fitting Node', () => {
    assert.throws(() => composeExecutable({ node: addon, application, addon }), /not a position-dependent ELF/);
    const relocatable = Buffer.from(node.subarray(0, 4096));
    relocatable.writeUInt16LE(3, 16);
    assert.throws(() => parseExecutable(relocatable), /not a position-dependent ELF/);
    const blown = composeExecutable({ node, application, addon });
    assert.throws(
      () => composeExecutable({ node: Buffer.concat(blown), application, addon }),
      /cannot be a single executable application/,
    );
  });
});

test('the first code is as long on each machine, as its table is found by that', () => {
  const table: EntryTable = { dlsym: 1, node: 2, addon: 3, addonBytes: 4, name: 'name' };
  const ends = (['x64', 'arm64'] as const).map((machine) => entryCode(machine, table).subarray(0xa0));
  const words = Buffer.alloc(32);
  for (const index of [0, 1, 2, 3]) words.writeUInt8(index + 1, index * 8);
  for (const end of ends) assert.ok(end.equals(Buffer.concat([words, Buffer.from('mallopt\0name\0')])));
});
