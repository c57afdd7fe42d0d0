import type { AdoptedPort, HandOver, Parcel } from '../contracts/hand-over.ts';
import type { Endpoint } from '../model/endpoint.ts';
import { messageOf } from '../model/message-of.ts';
import type { Channel } from './channel.ts';
import { VERSIONS } from './protocol.ts';

export interface TakeOverOptions {
  readonly dataPlane: HandOver | undefined;
  /** This program's version. */
  readonly program: string;
  /**
   * The predecessor's listeners, and the endpoints that an operator has taken out there. Throws an Error with a sentence
   * when they are of no use here.
   */
  readonly onAdopted: (ports: readonly AdoptedPort[], drained: readonly Endpoint[]) => void;
}

/**
 * The successor's part: takes over all that the predecessor has, still frozen. To be called when the Services are known.
 * When it rejects, with a sentence, the predecessor goes on: end the process, and close nothing in order.
 */
export async function takeOver(channel: Channel, { dataPlane, program, onAdopted }: TakeOverOptions): Promise<void> {
  try {
    if (dataPlane === undefined) throw new Error('its engine cannot take over connections');
    await dataPlane.freeze();
    await channel.send({ kind: 'hello', versions: VERSIONS, program });
    const { drained, parcels } = await receive(channel);
    onAdopted(await dataPlane.adopt(parcels), drained);
  } catch (error) {
    const err = messageOf(error);
    await channel.send({ kind: 'failed', err }).catch(() => {});
    throw error;
  }
}

/**
 * Resolves when the predecessor has given up all that {@link takeOver} brought, or died: the same, as it has touched
 * nothing since it was frozen, and would kill this process before it went on. It has been told then that this process
 * goes on: nothing must be touched before.
 */
export async function awaitRelease(channel: Channel): Promise<void> {
  // Fails when it has died, which the next call tells as well.
  await channel.send({ kind: 'adopted' }).catch(() => {});
  const received = await channel.receive();
  if (received === undefined) return;
  if (received.message.kind !== 'released') {
    throw new Error(`the predecessor said "${received.message.kind}" in place of "released"`);
  }
  await channel.send({ kind: 'owning' }).catch(() => {});
}

/** This process serves. Resolves when the predecessor has made it the one that is supervised, or died. */
export async function awaitSupervision(channel: Channel): Promise<void> {
  await channel.send({ kind: 'serving' }).catch(() => {});
  await channel.receive().catch(() => {});
  channel.close();
}

interface Belongings {
  readonly drained: readonly Endpoint[];
  readonly parcels: readonly Parcel[];
}

async function receive(channel: Channel): Promise<Belongings> {
  const { version, drained = [] } = await channel.expect('begin');
  if (!VERSIONS.includes(version)) throw new Error(`the predecessor speaks version ${version} of the hand-over`);
  const parcels: Parcel[] = [];
  for (;;) {
    const received = await channel.receive();
    if (received === undefined) throw new Error('the predecessor ended in the middle of the hand-over');
    const { message, fds, bytes } = received;
    if (message.kind === 'parcel') {
      parcels.push({ value: message.value, fds, bytes });
    } else if (message.kind === 'end') {
      if (message.parcels !== parcels.length) {
        throw new Error(`the predecessor sent ${message.parcels} parcels, and ${parcels.length} have arrived`);
      }
      return { drained, parcels };
    } else {
      throw new Error(`the predecessor said "${message.kind}" in the middle of the hand-over`);
    }
  }
}
