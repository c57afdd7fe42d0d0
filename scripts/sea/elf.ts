/** What these 64-bit little-endian ELF files are made of, as far as the kernel and the dynamic linker read it. */

export const PT_LOAD = 1;
const PT_DYNAMIC = 2;
export const PT_NOTE = 4;
export const PT_PHDR = 6;

export const PF_X = 1;
export const PF_R = 4;

const ET_EXEC = 2;

const HEADER_BYTES = 64;
const SEGMENT_BYTES = 56;
const RELOCATION_BYTES = 24;
const SYMBOL_BYTES = 24;

const DT_PLTRELSZ = 2;
const DT_STRTAB = 5;
const DT_SYMTAB = 6;
const DT_JMPREL = 23;

/** A program header: so many bytes of the file from `offset` lie at `address`. */
export interface Segment {
  readonly type: number;
  readonly flags: number;
  readonly offset: number;
  readonly address: number;
  readonly fileBytes: number;
  readonly memoryBytes: number;
  readonly align: number;
}

export type Machine = 'x64' | 'arm64';

/** EM_X86_64 and EM_AARCH64. */
const MACHINES: ReadonlyMap<number, Machine> = new Map([
  [62, 'x64'],
  [183, 'arm64'],
]);

/** An executable that is not relocated: its addresses are known before it runs, as Node's own builds are. */
export interface Executable {
  readonly bytes: Buffer;
  readonly machine: Machine;
  readonly entry: number;
  readonly segments: readonly Segment[];
}

/** Throws when it is none of this kind. */
export function parseExecutable(bytes: Buffer): Executable {
  const isElf = bytes.length >= HEADER_BYTES && bytes.toString('latin1', 0, 6) === '\x7fELF\x02\x01';
  const machine = isElf && bytes.readUInt16LE(16) === ET_EXEC ? MACHINES.get(bytes.readUInt16LE(18)) : undefined;
  if (machine === undefined) {
    throw new Error('this Node is not a position-dependent ELF executable for x64 or arm64; use the pinned one');
  }
  const start = Number(bytes.readBigUInt64LE(32));
  const segments = Array.from({ length: bytes.readUInt16LE(56) }, (_, index) =>
    parseSegment(bytes.subarray(start + index * SEGMENT_BYTES)),
  );
  return { bytes, machine, entry: Number(bytes.readBigUInt64LE(24)), segments };
}

/** The same executable's header and program headers, with another entry and other segments; they lie side by side. */
export function renderHeaders({ bytes }: Executable, entry: number, segments: readonly Segment[]): Buffer {
  const header = Buffer.from(bytes.subarray(0, HEADER_BYTES));
  header.writeBigUInt64LE(BigInt(entry), 24);
  header.writeBigUInt64LE(BigInt(HEADER_BYTES), 32);
  // No sections: nothing that runs a program reads them.
  header.writeBigUInt64LE(0n, 40);
  header.writeUInt16LE(segments.length, 56);
  header.fill(0, 58, HEADER_BYTES);
  return Buffer.concat([header, ...segments.map(renderSegment)]);
}

/** Where the program headers lie in what {@link renderHeaders} gives. */
export function segmentTable(count: number): { readonly offset: number; readonly bytes: number } {
  return { offset: HEADER_BYTES, bytes: count * SEGMENT_BYTES };
}

/** The address of the pointer by which it calls that function of a shared library. */
export function importedPointer(executable: Executable, name: string): number {
  const dynamic = dynamicSection(executable);
  const relocations = bytesAt(executable, dynamic(DT_JMPREL));
  const symbols = bytesAt(executable, dynamic(DT_SYMTAB));
  const names = bytesAt(executable, dynamic(DT_STRTAB));
  for (let at = 0; at < dynamic(DT_PLTRELSZ); at += RELOCATION_BYTES) {
    const symbol = relocations.readUInt32LE(at + 12) * SYMBOL_BYTES;
    const start = symbols.readUInt32LE(symbol);
    if (names.toString('latin1', start, names.indexOf(0, start)) === name) {
      return Number(relocations.readBigUInt64LE(at));
    }
  }
  throw new Error(`this Node does not call ${name}()`);
}

/** A note as the linker lays it out: three lengths, a name, a content, each in words. */
export function renderNote(name: string, content: Buffer): Buffer {
  const nameBytes = Buffer.from(`${name}\0`, 'latin1');
  const head = Buffer.alloc(12);
  head.writeUInt32LE(nameBytes.length, 0);
  head.writeUInt32LE(content.length, 4);
  return Buffer.concat([head, inWords(nameBytes), inWords(content)]);
}

export function alignUp(value: number, align: number): number {
  return Math.ceil(value / align) * align;
}

function inWords(bytes: Buffer): Buffer {
  return Buffer.concat([bytes], alignUp(bytes.length, 4));
}

function parseSegment(bytes: Buffer): Segment {
  const word = (at: number) => Number(bytes.readBigUInt64LE(at));
  return {
    type: bytes.readUInt32LE(0),
    flags: bytes.readUInt32LE(4),
    offset: word(8),
    address: word(16),
    fileBytes: word(32),
    memoryBytes: word(40),
    align: word(48),
  };
}

function renderSegment({ type, flags, offset, address, fileBytes, memoryBytes, align }: Segment): Buffer {
  const bytes = Buffer.alloc(SEGMENT_BYTES);
  bytes.writeUInt32LE(type, 0);
  bytes.writeUInt32LE(flags, 4);
  for (const [index, word] of [offset, address, address, fileBytes, memoryBytes, align].entries()) {
    bytes.writeBigUInt64LE(BigInt(word), 8 + index * 8);
  }
  return bytes;
}

/** What lies at an address, and behind it. */
function bytesAt({ bytes, segments }: Executable, address: number): Buffer {
  const segment = segments.find(
    (each) => each.type === PT_LOAD && address >= each.address && address < each.address + each.fileBytes,
  );
  if (segment === undefined) throw new Error(`this Node has nothing at address ${address}`);
  return bytes.subarray(segment.offset + address - segment.address, segment.offset + segment.fileBytes);
}

function dynamicSection({ bytes, segments }: Executable): (tag: number) => number {
  const segment = segments.find(({ type }) => type === PT_DYNAMIC);
  const values = new Map<number, number>();
  for (let at = segment?.offset ?? 0; segment && at < segment.offset + segment.fileBytes; at += 16) {
    values.set(Number(bytes.readBigUInt64LE(at)), Number(bytes.readBigUInt64LE(at + 8)));
  }
  return (tag) => {
    const value = values.get(tag);
    if (value === undefined) throw new Error(`this Node has no entry ${tag} in its dynamic section`);
    return value;
  };
}
