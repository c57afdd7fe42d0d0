import type { SetWeight } from '../model/endpoint.ts';
import type { HandOver } from '../model/hand-over.ts';
import type { Unusable } from '../model/source.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { counted, messageOf } from '../util/text.ts';
import { withDeadline } from '../util/wait.ts';
import type { Channel } from './channel.ts';
import { FORMAT } from './protocol.ts';

/** How long a successor may take until it knows every Service. The old one serves meanwhile, so there is no hurry. */
const START_MS = 120_000;

/**
 * How long the data plane may take to freeze and to describe what it has, while parts of it are frozen already. A
 * worker's turn lasts milliseconds, and describing 10,000 connections that are full of bytes takes a second.
 */
const FREEZE_MS = 5_000;

/**
 * How long the successor may do nothing while everything is frozen and not yet adopted: clients notice little of two
 * seconds, and giving up costs nothing. It may work for longer: each parcel that it takes shows progress.
 */
const SILENCE_MS = 2_000;

/** How long all of that may take at most: several times what 10,000 connections that are full of bytes need. */
const STANDSTILL_MS = 20_000;

/** How long a successor that has everything may take to go on. Giving up costs nothing. */
const OWNING_MS = 2_000;

/**
 * How long it may take from then until it is at work: some tenths of a second on a machine with eight times the work
 * that it can do, and over two seconds with twice as much. Giving up costs the connections. Its death is seen at once.
 */
const SERVING_MS = 10_000;

/** How long until a dead process has no end of the socket any more: at once, unless it has passed it on. */
const LAST_WORDS_MS = 1_000;

/** The rest of the program, as far as an upgrade needs it. */
export interface ControlPlane {
  /** Resolves when nothing is opened, updated, closed or written to the kernel any more, and no address is bound. */
  pause(): Promise<void>;
  /** Goes on as before. */
  resume(): void;
  /** The weights that an operator has set. */
  weights(): readonly SetWeight[];
  /** Of what a successor or this process cannot use now: the parts that this one serves from a last good state. */
  keptOf(unusable: readonly Unusable[]): readonly Unusable[];
}

/** The process manager that runs this process: systemd. */
interface Supervisor {
  reloading(): Promise<void>;
  /** Names the process to supervise from now on. */
  successor(pid: number): Promise<void>;
  /** `status`: a sentence for the operator, until the next one. */
  ready(status?: string): Promise<void>;
}

export interface Successor {
  readonly pid: number;
  readonly channel: Channel;
  /** Resolves when it is dead. `why`: a clause for its log, if it can read that still. */
  kill(why?: string): Promise<void>;
}

export interface UpgradeOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Missing when the engine cannot pass on what it has. */
  readonly means: { readonly dataPlane: HandOver; readonly startSuccessor: () => Promise<Successor> } | undefined;
  readonly controlPlane: ControlPlane;
  readonly supervisor: Supervisor;
  /** A process 1 ends its container when it ends. */
  readonly pid: number;
  /** Everything is the successor's: end the process. */
  readonly onReleased: () => Promise<void>;
}

/** The successor had touched the connections when it failed. This process serves without them. */
export class ConnectionsLostError extends Error {
  override readonly name = 'ConnectionsLostError';
}

/** Replaces this process by a new one of the program, without the loss of a connection. One attempt at a time. */
export class Upgrade {
  readonly #options: UpgradeOptions;
  #underWay: Promise<void> | undefined;
  #successor: Promise<Successor> | undefined;
  #isAbandoned = false;

  constructor(options: UpgradeOptions) {
    this.#options = options;
  }

  /** Never rejects: when it does not succeed, the log says why, and this process serves on. */
  async run(): Promise<void> {
    const { means, log, pid } = this.#options;
    if (this.#underWay !== undefined) {
      log.warn('An upgrade is under way already; this request is dropped');
    } else if (means === undefined) {
      log.error(
        'Cannot upgrade in place: the portable engine cannot pass connections on; use --dataplane fast, or restart ' +
          'the program, which ends its connections',
      );
    } else if (pid === 1) {
      log.error(
        'Cannot upgrade in place: a container ends with its process 1, and everything in it; replace the Pod instead, ' +
          'which ends its connections unless both have --hand-over-socket',
      );
    } else {
      await this.#attempt(means.dataPlane, async () => {
        const successor = await means.startSuccessor();
        log.info('Starting a successor', { pid: successor.pid });
        return successor;
      });
    }
  }

  /** The same for a process that somebody else has started, such as a new Pod. */
  async handOverTo(newcomer: Successor): Promise<void> {
    const { means, log } = this.#options;
    if (this.#underWay !== undefined) {
      await this.#refuse(newcomer, 'the process that serves is handing over already');
    } else if (means === undefined) {
      const why = 'the process that serves has the portable engine, which cannot pass connections on; end it first';
      await this.#refuse(newcomer, why);
    } else {
      log.info('Another process takes over', { pid: newcomer.pid });
      await this.#attempt(means.dataPlane, async () => newcomer);
    }
  }

  async #refuse(newcomer: Successor, why: string): Promise<void> {
    this.#options.log.warn('A process that wants to take over is refused', { pid: newcomer.pid, err: why });
    await newcomer.kill(why);
    newcomer.channel.close();
  }

  async #attempt(dataPlane: HandOver, startSuccessor: () => Promise<Successor>): Promise<void> {
    this.#underWay = this.#replace(dataPlane, startSuccessor);
    await this.#underWay;
    this.#underWay = undefined;
  }

  /** This process is to end without a successor. Resolves when there is none. */
  async abandon(): Promise<void> {
    this.#isAbandoned = true;
    const successor = await this.#successor?.catch(() => undefined);
    await successor?.kill('the process that serves is to end');
    await this.#underWay;
  }

  async #replace(dataPlane: HandOver, startSuccessor: () => Promise<Successor>): Promise<void> {
    const { log, supervisor, onReleased } = this.#options;
    await supervisor.reloading();
    if (this.#isAbandoned) return;
    try {
      this.#successor = startSuccessor();
      const successor = await this.#successor;
      const { pausedMs, program } = await handOver(successor, { ...this.#options, dataPlane });
      log.info('Handed over to the successor', { pid: successor.pid, version: program, ms: Math.round(pausedMs) });
    } catch (error) {
      if (this.#isAbandoned) return;
      const areLost = error instanceof ConnectionsLostError;
      const message = areLost
        ? 'The successor failed once it had gone on, so connections are lost; this process serves again'
        : 'Cannot hand over to a successor; this process serves as before';
      log.error(message, { err: messageOf(error) });
      await supervisor.ready(`${message}: ${messageOf(error)}`);
      return;
    }
    await onReleased();
  }
}

interface Predecessor extends Pick<UpgradeOptions, 'clock' | 'controlPlane'> {
  readonly dataPlane: HandOver;
  readonly supervisor: Pick<Supervisor, 'successor'>;
}

/**
 * Gives everything to a successor that has been started. When it resolves, all of it is the successor's, and this
 * process must end without closing anything in order. When it rejects, with a sentence, the successor is dead and this
 * process serves: as before, or, after a {@link ConnectionsLostError}, without the connections that it had. Gives how
 * long nothing was touched until the successor went on, and the successor's version of the program.
 */
export async function handOver(
  successor: Successor,
  setup: Predecessor,
): Promise<{ readonly pausedMs: number; readonly program: string }> {
  const { channel } = successor;
  const { dataPlane, controlPlane, supervisor, clock } = setup;
  let frozenMs: number | undefined;
  let pausedMs: number | undefined;
  try {
    const { versions, program, unusable = [] } = await channel.expect('hello', { untilMs: clock.now() + START_MS });
    if (!versions.includes(FORMAT)) {
      throw new Error(
        `version ${program} speaks ${versions.join(', ')} of the hand-over, and this one ${FORMAT}; restart instead`,
      );
    }
    refuseToLose(controlPlane.keptOf(unusable));
    await controlPlane.pause();
    frozenMs = clock.now();
    await offer(channel, setup);
    await channel.send({ kind: 'released' });
    await channel.expect('owning', { untilMs: clock.now() + OWNING_MS });
    pausedMs = clock.now() - frozenMs;
    await channel.expect('serving', { untilMs: clock.now() + SERVING_MS });
    await supervisor.successor(successor.pid);
    return { pausedMs, program };
  } catch (error) {
    // Before anything else is touched: two processes must never go on with one connection.
    await successor.kill(messageOf(error));
    if (frozenMs === undefined) throw error;
    // What it said before it died can still be read, even if it was said a moment too late.
    const isTouched = pausedMs !== undefined || (await hasSaidOwning(channel, clock));
    if (isTouched) dataPlane.recover();
    else dataPlane.thaw();
    controlPlane.resume();
    throw isTouched ? new ConnectionsLostError(messageOf(error)) : error;
  } finally {
    channel.close();
  }
}

/** A successor has no last good state. Throws when it would end what is served from this one's. */
function refuseToLose(kept: readonly Unusable[]): void {
  const [first] = kept;
  if (first === undefined) return;
  // Both processes name what neither can use.
  const others = new Set(kept.map(({ place }) => place)).size - 1;
  const more = others === 0 ? '' : `, and neither can ${counted(others, 'other')}`;
  throw new Error(
    `${first.place} cannot be used (${first.err})${more}; this process serves what was said before; ` +
      'correct it, and reload',
  );
}

/** Resolves when the successor has everything, and touches nothing. */
async function offer(channel: Channel, { dataPlane, controlPlane, clock }: Predecessor): Promise<void> {
  const limits = { silenceMs: SILENCE_MS, untilMs: clock.now() + STANDSTILL_MS };
  const late = `a worker of this process did not stand still within ${FREEZE_MS} ms`;
  const parcels = await withDeadline(dataPlane.freeze(), { clock, ms: FREEZE_MS, late });
  await channel.send({ kind: 'begin', weights: controlPlane.weights() }, limits);
  let count = 0;
  for await (const parcel of parcels) {
    await channel.send({ kind: 'parcel' }, limits, parcel);
    count++;
  }
  await channel.send({ kind: 'end', parcels: count }, limits);
  await channel.expect('adopted', limits);
}

async function hasSaidOwning(channel: Channel, clock: Clock): Promise<boolean> {
  const owning = channel.expect('owning', { untilMs: clock.now() + LAST_WORDS_MS });
  return await owning.then(() => true).catch(() => false);
}
