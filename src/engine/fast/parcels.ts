import { Deserializer, Serializer } from 'node:v8';
import type { Backends, Counters } from '../../model/data-plane.ts';
import type { AdoptedPort, Parcel } from '../../model/hand-over.ts';
import type { PickerRecord } from '../../services/picker.ts';
import { isReplyPath } from '../../sys/datagram-inbox.ts';
import { MAX_DATAGRAM_BYTES } from '../../sys/datagram-slots.ts';
import { type Upgraded, upgraded } from './format-4.ts';
import type { LiveRecord, SideRecord } from './worker/records.ts';

/*
 * The format of the fast engine's parcels: first the ports, then connections and flows, each as V8's structured clone,
 * with indices into the parcel's descriptors in place of descriptors. The sender is our own parent process, and both
 * have agreed on the version of this format, so only what could do harm is checked on arrival. A change of these types
 * that another version would misread needs a new version in src/upgrade/protocol.ts, and a conversion as in
 * format-4.ts.
 */

/** In place of the number of a port that is closed by now. */
export const CLOSED_PORT = -1;

/**
 * Each parcel is one message: it must have room for this many connections that are full of bytes, seldom more than 64
 * KiB a side.
 */
const ITEMS_PER_PARCEL = 256;

/** A listener with all that belongs to it, but for its connections and flows. */
export interface PortState extends AdoptedPort {
  readonly fd: number;
  readonly backends: Backends;
  /** Counters that are 0 may be left out: most are. */
  readonly counters: Partial<Counters>;
  /** By `endpointName`. */
  readonly endpointCounters: ReadonlyMap<string, Partial<Counters>>;
  readonly picker: PickerRecord | undefined;
}

/** What is in one parcel. The `port` of a record is a number among all ports, or {@link CLOSED_PORT}. */
export interface Unpacked {
  readonly ports: readonly PortState[];
  readonly records: readonly LiveRecord[];
}

/** Packs a parcel when it is asked for: all of them at once may take hundreds of megabytes. */
export function* pack({ ports, records }: Unpacked): Iterable<Parcel> {
  for (let from = 0; from < ports.length; from += ITEMS_PER_PARCEL) {
    yield parcelOf({ ports: ports.slice(from, from + ITEMS_PER_PARCEL).map(withoutZeros), records: [] });
  }
  for (let from = 0; from < records.length; from += ITEMS_PER_PARCEL) {
    yield parcelOf({ ports: [], records: records.slice(from, from + ITEMS_PER_PARCEL) });
  }
}

/** Throws an Error that says what is wrong with it. */
export function unpack({ fds, bytes }: Parcel): Upgraded {
  const deserializer = new Deserializer(bytes);
  deserializer.readHeader();
  const unused = new Set(fds);
  const taken = (index: number) => {
    const fd = fds[index];
    if (fd === undefined || !unused.delete(fd)) throw new Error(`a parcel has no descriptor ${index}`);
    return fd;
  };
  const read = upgraded(deserializer.readValue());
  const unpacked = { ...withDescriptors(read, taken), surplus: read.surplus.map(taken) };
  if (unused.size > 0) throw new Error(`a parcel has ${unused.size} descriptors that nothing in it uses`);
  for (const record of unpacked.records) {
    // A worker copies them into memory of the kernel's structures.
    if (record.kind !== 'flow' && record.kind !== 'waiting') continue;
    if (!isReplyPath(record.name, record.control)) throw new Error('a flow has no valid reply path');
    const datagrams = record.kind === 'flow' ? record.unanswered : record.datagrams;
    if (datagrams?.some(({ length }) => length > MAX_DATAGRAM_BYTES)) {
      throw new Error('a flow has a datagram that is too long');
    }
  }
  return unpacked;
}

function parcelOf(unpacked: Unpacked): Parcel {
  const fds: number[] = [];
  // Unlike `v8.serialize`, it makes the reader copy byte arrays, so that none of them keeps the whole parcel in memory.
  const serializer = new Serializer();
  serializer.writeHeader();
  serializer.writeValue(withDescriptors(unpacked, (fd) => fds.push(fd) - 1));
  return { fds, bytes: serializer.releaseBuffer() };
}

function withoutZeros(port: PortState): PortState {
  const nonZero = (counters: Partial<Counters>): Partial<Counters> =>
    Object.fromEntries(Object.entries(counters).filter(([, count]) => count !== 0));
  const endpointCounters = new Map<string, Partial<Counters>>();
  for (const [name, counters] of port.endpointCounters) endpointCounters.set(name, nonZero(counters));
  return { ...port, counters: nonZero(port.counters), endpointCounters };
}

/** The same with every descriptor replaced. */
function withDescriptors({ ports, records }: Unpacked, replaced: (fd: number) => number): Unpacked {
  const side = ({ fd, piped, ...rest }: SideRecord): SideRecord => ({
    ...rest,
    fd: replaced(fd),
    ...(piped && { piped: { ...piped, readEnd: replaced(piped.readEnd), writeEnd: replaced(piped.writeEnd) } }),
  });
  return {
    ports: ports.map((port) => ({ ...port, fd: replaced(port.fd) })),
    records: records.map((record) => {
      if (record.kind === 'established') return { ...record, sides: [side(record.sides[0]), side(record.sides[1])] };
      if (record.kind === 'waiting') return record;
      const fd = replaced(record.fd);
      if (record.kind === 'dialling' || record.ownFd === undefined) return { ...record, fd };
      return { ...record, fd, ownFd: replaced(record.ownFd) };
    }),
  };
}
