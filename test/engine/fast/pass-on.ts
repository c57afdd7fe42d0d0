import assert from 'node:assert/strict';
import type { DataPlane } from '../../../src/model/data-plane.ts';
import type { AdoptedPort, HandOver, Parcel } from '../../../src/model/hand-over.ts';
import { close } from '../../../src/sys/descriptor.ts';
import { SOCK_SEQPACKET, socketpair } from '../../../src/sys/socket.ts';
import { must } from '../../../src/sys/sys-error.ts';
import { Channel } from '../../../src/upgrade/channel.ts';
import { systemClock } from '../../../src/util/system-clock.ts';

export function handOverOf(plane: DataPlane): HandOver {
  assert.ok(plane.handOver);
  return plane.handOver;
}

/** The two ends of a channel. */
export function channelPair(clock = systemClock): [Channel, Channel] {
  const ends = new Int32Array(2);
  must('socketpair', socketpair(SOCK_SEQPACKET, ends));
  return [new Channel(ends[0] as number, clock), new Channel(ends[1] as number, clock)];
}

type Parcels = Awaited<ReturnType<HandOver['freeze']>>;

export async function all(parcels: Parcels): Promise<Parcel[]> {
  const list: Parcel[] = [];
  for await (const parcel of parcels) list.push(parcel);
  return list;
}

/** As another process would get them: with descriptors of its own. */
export async function sendParcels(parcels: Parcels): Promise<Parcel[]> {
  const [here, there] = channelPair();
  const received: Parcel[] = [];
  const sending = (async () => {
    for await (const parcel of parcels) await here.send({ kind: 'parcel' }, {}, parcel);
    here.close();
  })();
  for (let next = await there.receive(); next !== undefined; next = await there.receive()) {
    received.push({ fds: next.fds, bytes: next.bytes });
  }
  await sending;
  there.close();
  return received;
}

/** As the end of a process that has them does. */
export function closeAll(parcels: readonly Parcel[]): void {
  for (const { fds } of parcels) for (const fd of fds) close(fd);
}

/** From one data plane to another in this process, as between two. `meanwhile` runs while both are frozen. */
export async function passOn(
  from: DataPlane,
  to: DataPlane,
  meanwhile: (parcels: readonly Parcel[]) => Promise<void> | void = () => {},
): Promise<readonly AdoptedPort[]> {
  await handOverOf(to).freeze();
  const parcels = await all(await handOverOf(from).freeze());
  await meanwhile(parcels);
  const ports = await handOverOf(to).adopt(await sendParcels(parcels));
  await handOverOf(from).release();
  handOverOf(to).thaw();
  return ports;
}
