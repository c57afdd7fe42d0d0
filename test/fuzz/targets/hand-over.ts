import assert from 'node:assert/strict';
import { closeSync, openSync, readdirSync } from 'node:fs';
import { Deserializer, Serializer } from 'node:v8';
import { FastHandOver, type HandOverHost } from '../../../src/engine/fast/hand-over.ts';
import { type PortState, pack } from '../../../src/engine/fast/parcels.ts';
import type { LiveRecord } from '../../../src/engine/fast/worker/records.ts';
import type { Parcel } from '../../../src/model/hand-over.ts';
import { close } from '../../../src/sys/descriptor.ts';
import { SOCK_SEQPACKET, socketpair } from '../../../src/sys/socket.ts';
import { must } from '../../../src/sys/sys-error.ts';
import { UnixMessage } from '../../../src/sys/unix-socket.ts';
import { Channel } from '../../../src/upgrade/channel.ts';
import type { Message } from '../../../src/upgrade/protocol.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { STATE } from '../../engine/fast/handed-over.ts';
import type { Draws } from '../../support/draws.ts';
import { mutateOne, mutateValue } from '../mutate.ts';
import type { OpenTarget } from '../target.ts';

/*
 * A message of a predecessor → what the workers get, or an error, without a descriptor that is lost or not the
 * message's. An input is the number of descriptors, and the message: the length of a JSON text, that text, a parcel.
 */

const FRAGMENT_BYTES = 40_000;

const MESSAGES: readonly Message[] = [
  { kind: 'hello', versions: [4, 5], program: '0.1.0' },
  { kind: 'begin', weights: [{ address: '10.0.0.1', port: 80, weight: 5 }] as never },
  { kind: 'end', parcels: 3 },
  { kind: 'failed', err: 'no room' },
  { kind: 'adopted' },
];

/** Come before connections and flows. */
const PORTS = [...pack({ ...STATE, records: [] })];

export const open: OpenTarget = () => ({
  seeds: [
    ...MESSAGES.map((message) => inputOf(message)),
    ...Array.from(pack(STATE), (parcel) => inputOf({ kind: 'parcel' }, parcel)),
  ],

  make(known, draws) {
    const input = draws.pick(known);
    try {
      return draws.once(4) ? mutateOne(known, draws) : mutateParts(input, draws);
    } catch {
      // It is too broken for its parts to be changed, or they cannot be written.
      return mutateOne([input], draws);
    }
  },

  async run(input) {
    const before = readdirSync('/proc/self/fd').length;
    const received = await receive(input);
    if (received?.message.kind === 'parcel') await adopt(received);
    for (const fd of received?.fds ?? []) close(fd);
    assert.equal(readdirSync('/proc/self/fd').length, before, 'no descriptor is lost');
  },
});

function inputOf(message: unknown, { fds, bytes }: Parcel = { fds: [], bytes: Buffer.alloc(0) }): Buffer {
  const text = Buffer.from(JSON.stringify(message));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  return Buffer.concat([Buffer.of(fds.length), length, text, bytes]);
}

function mutateParts(input: Buffer, draws: Draws): Buffer {
  const end = 5 + input.readUInt32LE(1);
  const message: unknown = JSON.parse(input.toString('utf8', 5, end));
  if (end === input.length) return inputOf(mutateValue(message, draws));
  const deserializer = new Deserializer(input.subarray(end));
  deserializer.readHeader();
  let parts: unknown = deserializer.readValue();
  for (let count = 1 + draws.below(3); count > 0; count--) parts = mutateValue(parts, draws);
  const serializer = new Serializer();
  serializer.writeHeader();
  serializer.writeValue(parts);
  const fds = Array.from({ length: Math.max(0, (input[0] as number) + draws.pick([0, 0, 0, -1, 1])) }, () => 0);
  return inputOf(message, { fds, bytes: serializer.releaseBuffer() });
}

async function receive(input: Buffer): ReturnType<Channel['receive']> {
  const ends = new Int32Array(2);
  must('socketpair', socketpair(SOCK_SEQPACKET, ends));
  const [here, there] = ends as unknown as [number, number];
  const fds = Array.from({ length: (input[0] ?? 0) % 64 }, () => openSync('/dev/null', 'r'));
  // What fits into the socket.
  const payload = input.subarray(1, 3 * FRAGMENT_BYTES);
  const packet = new UnixMessage(1 + FRAGMENT_BYTES);
  for (let at = 0; at === 0 || at < payload.length; at += FRAGMENT_BYTES) {
    const fragment = payload.subarray(at, at + FRAGMENT_BYTES);
    packet.data.bytes[0] = at + FRAGMENT_BYTES >= payload.length ? 1 : 0;
    packet.data.bytes.set(fragment, 1);
    must('sendmsg', packet.send(there, 1 + fragment.length, at === 0 ? fds : []));
  }
  for (const fd of fds) closeSync(fd);
  close(there);
  const channel = new Channel(here, systemClock);
  try {
    return await channel.receive();
  } catch (error) {
    assert.match((error as Error).message, /of the hand-over/);
    return undefined;
  } finally {
    channel.close();
  }
}

/** In place of workers, looks at what they would get. */
async function adopt(parcel: Parcel): Promise<void> {
  const ports: PortState[] = [];
  const records: LiveRecord[] = [];
  const worker = {
    change: async ({ records: some }: { readonly records: readonly LiveRecord[] }) => void records.push(...some),
  };
  const host = {
    workers: [worker],
    leastLoaded: () => worker,
    adoptPort: async (state: PortState) => {
      ports.push(state);
      return { id: ports.length, spec: { ...state, port: state.localPort }, worker };
    },
  } as unknown as HandOverHost;
  try {
    await new FastHandOver(host).adopt([...PORTS, parcel]);
  } catch (error) {
    assert.ok(error instanceof Error);
    return;
  }
  const own = ports.slice(STATE.ports.length);
  const given = [...own.map(({ fd }) => fd), ...records.flatMap(descriptorsOf)];
  assert.deepEqual(given.toSorted(), parcel.fds.toSorted(), 'each descriptor is given to one');
  for (const record of records) {
    if (record.kind !== 'flow' && record.kind !== 'waiting') continue;
    assert.ok(
      [
        [16, 32],
        [28, 40],
      ].some(([name, control]) => record.name.length === name && record.control.length === control),
    );
    const datagrams = record.kind === 'flow' ? record.unanswered : record.datagrams;
    for (const { length } of datagrams ?? []) assert.ok(!(length > 65_507), `a datagram of ${length}`);
  }
}

function descriptorsOf(record: LiveRecord): readonly number[] {
  if (record.kind === 'waiting') return [];
  if (record.kind === 'flow' && record.ownFd !== undefined) return [record.fd, record.ownFd];
  if (record.kind !== 'established') return [record.fd];
  return record.sides.flatMap(({ fd, piped }) => [fd, ...(piped ? [piped.readEnd, piped.writeEnd] : [])]);
}
