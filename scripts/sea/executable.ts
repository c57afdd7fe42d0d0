import { ADDON_NAME } from './addon-file.ts';
import {
  alignUp,
  importedPointer,
  PF_R,
  PF_X,
  PT_LOAD,
  PT_NOTE,
  PT_PHDR,
  parseExecutable,
  renderHeaders,
  renderNote,
  type Segment,
  segmentTable,
} from './elf.ts';
import { entryCode } from './entry-code.ts';

/** The largest page of any Linux on these machines: arm64 has kernels with 64 KB. */
const PAGE = 0x10000;

/** Node aligns a segment to it, for huge pages. */
const HUGE_PAGE = 0x200000;

/** Where Node looks for its application, as in deps/postject and src/node_sea.cc. */
const NOTE = 'NODE_SEA_BLOB';

/** Node is no single executable application until the last character is a "1". */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2:';

export interface Parts {
  readonly node: Buffer;
  /** What `node --experimental-sea-config` writes. */
  readonly application: Buffer;
  readonly addon: Buffer;
}

/**
 * The one file, as pieces to be written one after the other: a page with a header of our own and the first code to run,
 * then the application and the addon, then Node as it is, but for one byte and for what follows its last segment:
 * symbols, which are a seventh of it. Node is moved within the file and not in memory, so nothing in it has to be changed.
 */
export function composeExecutable({ node, application, addon }: Parts): Buffer[] {
  const executable = parseExecutable(node);
  const loaded = executable.segments.filter(({ type }) => type === PT_LOAD);
  const start = Math.min(...loaded.map(({ address }) => address)) - PAGE;
  const end = Math.max(...loaded.map(({ address, memoryBytes }) => address + memoryBytes));

  const note = renderNote(NOTE, application);
  const data = Buffer.concat([note, addon]);
  const dataAt = { offset: PAGE, address: alignUp(end, HUGE_PAGE) + PAGE };
  const nodeOffset = alignUp(dataAt.offset + data.length, HUGE_PAGE);

  const segment = (type: number, flags: number, offset: number, address: number, bytes: number): Segment => {
    return { type, flags, offset, address, fileBytes: bytes, memoryBytes: bytes, align: type === PT_LOAD ? PAGE : 8 };
  };
  const kept = executable.segments.filter(({ type }) => type !== PT_PHDR);
  const table = segmentTable(kept.length + 4);
  // Those that are loaded have to be in the order of their addresses.
  const segments = [
    segment(PT_PHDR, PF_R, table.offset, start + table.offset, table.bytes),
    segment(PT_LOAD, PF_R | PF_X, 0, start, PAGE),
    ...kept.map((each) => ({ ...each, offset: each.offset + nodeOffset })),
    segment(PT_LOAD, PF_R, dataAt.offset, dataAt.address, data.length),
    segment(PT_NOTE, PF_R, dataAt.offset, dataAt.address, note.length),
  ];
  const codeOffset = alignUp(table.offset + table.bytes, 16);
  const code = entryCode(executable.machine, {
    dlsym: importedPointer(executable, 'dlsym'),
    node: executable.entry,
    addon: dataAt.address + note.length,
    addonBytes: addon.length,
    name: ADDON_NAME,
  });

  const first = Buffer.alloc(PAGE);
  renderHeaders(executable, start + codeOffset, segments).copy(first);
  code.copy(first, codeOffset);
  const image = node.subarray(0, Math.max(...loaded.map(({ offset, fileBytes }) => offset + fileBytes)));
  return [first, data, Buffer.alloc(nodeOffset - dataAt.offset - data.length), ...withFuseBlown(image)];
}

function withFuseBlown(image: Buffer): Buffer[] {
  const at = image.indexOf(`${FUSE}0`);
  if (at < 0) throw new Error('this Node cannot be a single executable application');
  const digit = at + FUSE.length;
  return [image.subarray(0, digit), Buffer.from('1'), image.subarray(digit + 1)];
}
