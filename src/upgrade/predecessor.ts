import type { Endpoint } from '../model/endpoint.ts';
import type { HandOver, Parcel } from '../model/hand-over.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { messageOf } from '../util/text.ts';
import type { Channel } from './channel.ts';
import { commonVersion, VERSIONS } from './protocol.ts';

/** What the rest of the program does for a hand-over. */
export interface ControlPlane {
  /** Resolves when nothing is opened, updated, closed or written to the kernel any more, and no address is bound. */
  pause(): Promise<void>;
  /** Goes on as before. */
  resume(): void;
  /** Endpoints that an operator has taken out. */
  drained(): readonly Endpoint[];
}

export interface Successor {
  readonly channel: Channel;
  /** Resolves when it is dead. */
  kill(): Promise<void>;
}

/** How long a successor may take until it knows every Service. The old one serves meanwhile, so there is no hurry. */
const START_MS = 120_000;

/**
 * How long the data plane may take to stand still and to describe what it has, while parts of it stand still already. A
 * worker's turn lasts milliseconds, and to describe 10,000 connections that are full of bytes takes a second.
 */
const FREEZE_MS = 5_000;

/**
 * How long the successor may do nothing while everything stands still until it is adopted: clients notice little of two
 * seconds, and giving up costs nothing. It may work for longer: each parcel that it takes shows that it gets on.
 */
const SILENCE_MS = 2_000;

/** How long all of that may take at most: several times what 10,000 connections that are full of bytes need. */
const STANDSTILL_MS = 20_000;

/**
 * How long a successor that has everything may take to go on, and again until it is at work: some tenths of a second on a
 * machine with eight times the work that it can do. Giving up costs nothing the first time, and then the connections.
 */
const ANSWER_MS = 2_000;

/** How long until a dead process has no end of the socket any more: at once, unless it has passed it on. */
const LAST_WORDS_MS = 1_000;

export interface Predecessor {
  readonly dataPlane: HandOver;
  readonly controlPlane: ControlPlane;
  readonly clock: Clock;
  /** The successor serves, and waits until it is supervised. */
  readonly onServing: () => Promise<void>;
}

export interface HandedOver {
  /** How long nothing was touched, in milliseconds, until the successor went on. */
  readonly pausedMs: number;
  /** The successor's version of the program. */
  readonly program: string;
}

/** The successor had touched the connections when it failed. This process serves without them. */
export class ConnectionsLostError extends Error {
  override readonly name = 'ConnectionsLostError';
}

/**
 * Gives everything to a successor that has been started. When it resolves, all of it is the successor's, and this process
 * must end without closing anything in order. When it rejects, with a sentence, the successor is dead and this process
 * serves: as before, or, after a {@link ConnectionsLostError}, without the connections that it had.
 */
export async function handOver(successor: Successor, setup: Predecessor): Promise<HandedOver> {
  const { channel } = successor;
  const { controlPlane, clock, onServing } = setup;
  try {
    const { versions, program } = await channel.expect('hello', { untilMs: clock.now() + START_MS });
    const version = commonVersion(versions);
    if (version === undefined) {
      throw new Error(
        `version ${program} speaks ${versions.join(', ')} of the hand-over, and this one ${VERSIONS.join(', ')}; restart instead`,
      );
    }
    await controlPlane.pause();
    const pausedMs = await passOn(successor, version, setup);
    await onServing();
    return { pausedMs, program };
  } catch (error) {
    await successor.kill();
    throw error;
  } finally {
    channel.close();
  }
}

/** Resolves with how long it took until the successor went on, once that one serves. */
async function passOn(successor: Successor, version: number, setup: Predecessor): Promise<number> {
  const { channel } = successor;
  const { dataPlane, controlPlane, clock } = setup;
  const frozenMs = clock.now();
  let pausedMs: number | undefined;
  try {
    await offer(channel, version, setup);
    await channel.send({ kind: 'released' });
    await channel.expect('owning', { untilMs: clock.now() + ANSWER_MS });
    pausedMs = clock.now() - frozenMs;
    await channel.expect('serving', { untilMs: clock.now() + ANSWER_MS });
    return pausedMs;
  } catch (error) {
    // Before anything else is touched: two must never go on with one connection.
    await successor.kill();
    // What it said before it died is still to be heard, also if it came a moment too late.
    const isTouched = pausedMs !== undefined || (await hasSaidOwning(channel, clock));
    if (isTouched) dataPlane.recover();
    else dataPlane.thaw();
    controlPlane.resume();
    throw isTouched ? new ConnectionsLostError(messageOf(error)) : error;
  }
}

/** Resolves when the successor has all of it and touches nothing. */
async function offer(
  channel: Channel,
  version: number,
  { dataPlane, controlPlane, clock }: Predecessor,
): Promise<void> {
  const limits = { silenceMs: SILENCE_MS, untilMs: clock.now() + STANDSTILL_MS };
  const parcels = await frozen(dataPlane, clock);
  await channel.send({ kind: 'begin', version, drained: controlPlane.drained() }, undefined, limits);
  let count = 0;
  for (const { value, fds, bytes } of parcels) {
    await channel.send({ kind: 'parcel', value }, { fds, bytes }, limits);
    count++;
  }
  await channel.send({ kind: 'end', parcels: count }, undefined, limits);
  await channel.expect('adopted', limits);
}

async function frozen(dataPlane: HandOver, clock: Clock): Promise<Iterable<Parcel>> {
  let timer: Timer | undefined;
  const late = new Promise<never>((_, reject) => {
    const err = new Error(`a worker of this process did not stand still within ${FREEZE_MS} ms`);
    timer = clock.after(FREEZE_MS, () => reject(err));
  });
  try {
    return await Promise.race([dataPlane.freeze(), late]);
  } finally {
    timer?.cancel();
  }
}

async function hasSaidOwning(channel: Channel, clock: Clock): Promise<boolean> {
  try {
    await channel.expect('owning', { untilMs: clock.now() + LAST_WORDS_MS });
    return true;
  } catch {
    return false;
  }
}
