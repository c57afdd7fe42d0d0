import type { SetWeight } from '../model/endpoint.ts';
import type { AdoptedPort, HandOver, Parcel } from '../model/hand-over.ts';
import type { Unusable } from '../model/source.ts';
import { messageOf } from '../util/text.ts';
import type { Channel } from './channel.ts';
import { FORMATS, type Message } from './protocol.ts';

interface TakeOverOptions {
  readonly dataPlane: HandOver | undefined;
  /** This program's version. */
  readonly program: string;
  /** Resolves when the Services are known, with what the sources cannot use. */
  readonly known: Promise<readonly Unusable[]>;
  /**
   * Gets the predecessor's listeners, and the weights that an operator has set there. Throws an Error with a
   * sentence when they cannot be used here.
   */
  readonly onAdopted: (ports: readonly AdoptedPort[], weights: readonly SetWeight[]) => void;
}

/**
 * The successor's part. Resolves when all that the predecessor had is this process's, untouched, and the predecessor
 * knows that this process goes on with it. When it rejects, with a sentence, the predecessor goes on: end the process,
 * and close nothing in order.
 */
export async function takeOver(
  channel: Channel,
  { dataPlane, program, known, onAdopted }: TakeOverOptions,
): Promise<void> {
  try {
    const unusable = await channel.during(known);
    if (dataPlane === undefined) throw new Error('its engine cannot take over connections');
    await dataPlane.freeze();
    await channel.send({ kind: 'hello', versions: FORMATS, program, unusable });
    const { weights } = await channel.expect('begin');
    onAdopted(await dataPlane.adopt(parcelsFrom(channel)), weights);
    // From here on a predecessor that has died has let go: it has touched nothing since it was frozen, and would kill
    // this process before it went on. So a failure to send does not matter: nobody else could go on with what is left.
    await channel.send({ kind: 'adopted' }).catch(() => {});
    const received = await channel.receive();
    if (received === undefined) return;
    if (received.message.kind !== 'released') throw unexpected(received.message);
    dataPlane.check();
    await channel.send({ kind: 'owning' }).catch(() => {});
  } catch (error) {
    await channel.send({ kind: 'failed', err: messageOf(error) }).catch(() => {});
    throw error;
  }
}

/**
 * This process serves. Resolves when the predecessor has made it the supervised process, or died. Rejects when the
 * predecessor has given up on this process: end it, for that one serves then.
 */
export async function awaitSupervision(channel: Channel): Promise<void> {
  await channel.send({ kind: 'serving' }).catch(() => {});
  const last = await channel.receive().catch(() => undefined);
  if (last?.message.kind === 'failed') throw new Error(`cannot take over from a predecessor: ${last.message.err}`);
  channel.close();
}

async function* parcelsFrom(channel: Channel): AsyncIterable<Parcel> {
  for (let count = 0; ; count++) {
    const received = await channel.receive();
    if (received === undefined) throw new Error('the predecessor ended in the middle of the hand-over');
    const { message, ...parcel } = received;
    if (message.kind === 'parcel') {
      yield parcel;
    } else if (message.kind === 'end') {
      if (message.parcels === count) return;
      throw new Error(`the predecessor sent ${message.parcels} parcels, and ${count} have arrived`);
    } else {
      throw unexpected(message);
    }
  }
}

function unexpected(message: Message): Error {
  if (message.kind === 'failed') return new Error(message.err);
  return new Error(`the predecessor said "${message.kind}" in the middle of the hand-over`);
}
