import type { Clock } from '../contracts/clock.ts';
import type { HandOver } from '../contracts/hand-over.ts';
import type { Channel } from './channel.ts';
import { commonVersion, VERSIONS } from './protocol.ts';

/** What the rest of the program does for a hand-over. */
export interface ControlPlane {
  /** Resolves when nothing is opened, updated, closed or written to the kernel any more, and no address is bound. */
  pause(): Promise<void>;
  /** Goes on as before. */
  resume(): void;
}

export interface Successor {
  readonly channel: Channel;
  /** Resolves when it is dead. */
  kill(): Promise<void>;
}

/** How long a successor may take until it knows every Service. The old one serves meanwhile, so there is no hurry. */
const START_MS = 120_000;

/** How long everything may stand still. Clients notice little of it: their peers' kernels keep and repeat. */
const ADOPT_MS = 10_000;

export interface Predecessor {
  readonly dataPlane: HandOver;
  readonly controlPlane: ControlPlane;
  readonly clock: Clock;
  /** The successor is about to be told to go on. */
  readonly onRelease: () => Promise<void>;
}

export interface HandedOver {
  /** How long nothing was touched, in milliseconds, until the successor was told to go on. */
  readonly pausedMs: number;
  /** The successor's version of the program. */
  readonly program: string;
}

/**
 * Gives everything to a successor that has been started. When it resolves, all of it is the successor's, and this process
 * must end without closing anything in order. When it rejects, with a sentence, the successor is dead and this process
 * serves as before.
 */
export async function handOver(successor: Successor, setup: Predecessor): Promise<HandedOver> {
  const { channel } = successor;
  const { dataPlane, controlPlane, clock } = setup;
  try {
    const { versions, program } = await channel.expect('hello', clock.now() + START_MS);
    const version = commonVersion(versions);
    if (version === undefined) {
      throw new Error(
        `version ${program} speaks ${versions.join(', ')} of the hand-over, and this one ${VERSIONS.join(', ')}; restart instead`,
      );
    }
    await controlPlane.pause();
    const pausedMs = await transfer(channel, version, setup).catch(async (error) => {
      // Before anything else is touched: two must never go on with one connection.
      await successor.kill();
      dataPlane.thaw();
      controlPlane.resume();
      throw error;
    });
    return { pausedMs, program };
  } catch (error) {
    await successor.kill();
    throw error;
  } finally {
    channel.close();
  }
}

/** Resolves with how long it took. */
async function transfer(
  channel: Channel,
  version: number,
  { dataPlane, clock, onRelease }: Predecessor,
): Promise<number> {
  const frozenMs = clock.now();
  const untilMs = frozenMs + ADOPT_MS;
  const parcels = await dataPlane.freeze();
  await channel.send({ kind: 'begin', version }, undefined, untilMs);
  for (const { value, fds, bytes } of parcels) await channel.send({ kind: 'parcel', value }, { fds, bytes }, untilMs);
  await channel.send({ kind: 'end', parcels: parcels.length }, undefined, untilMs);
  await channel.expect('adopted', untilMs);
  await onRelease();
  await channel.send({ kind: 'released' });
  return clock.now() - frozenMs;
}
