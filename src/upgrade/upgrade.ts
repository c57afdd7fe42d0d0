import type { HandOver } from '../model/hand-over.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { ConnectionsLostError, type ControlPlane, handOver } from './predecessor.ts';
import type { StartedSuccessor } from './successor-process.ts';

/** Whoever supervises this process: systemd. */
export interface Supervisor {
  reloading(): Promise<void>;
  /** From now on that process is the one to supervise. */
  successor(pid: number): Promise<void>;
  ready(): Promise<void>;
}

export interface UpgradeOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Missing when the engine cannot pass on what it has. */
  readonly means:
    | { readonly dataPlane: HandOver; readonly startSuccessor: () => Promise<StartedSuccessor> }
    | undefined;
  readonly controlPlane: ControlPlane;
  readonly supervisor: Supervisor;
  /** A process 1 ends its container with itself. */
  readonly pid: number;
  /** Everything is the successor's: end the process. */
  readonly onReleased: () => Promise<void>;
}

/** Replaces this process by a new one of the program, without the loss of a connection. One attempt at a time. */
export class Upgrade {
  readonly #options: UpgradeOptions;
  #underWay: Promise<void> | undefined;
  #successor: Promise<StartedSuccessor> | undefined;
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
        'Cannot upgrade in place: the portable engine cannot pass connections on; use --dataplane fast, or restart the program, which ends its connections',
      );
    } else if (pid === 1) {
      log.error(
        'Cannot upgrade in place: a container ends with its process 1, and everything in it; replace the Pod instead, which ends its connections',
      );
    } else {
      this.#underWay = this.#replace(means);
      await this.#underWay;
      this.#underWay = undefined;
    }
  }

  /** This process is to end and have no successor. Resolves when there is none. */
  async abandon(): Promise<void> {
    this.#isAbandoned = true;
    const successor = await this.#successor?.catch(() => undefined);
    await successor?.kill();
    await this.#underWay;
  }

  async #replace({ dataPlane, startSuccessor }: NonNullable<UpgradeOptions['means']>): Promise<void> {
    const { clock, log, controlPlane, supervisor, onReleased } = this.#options;
    await supervisor.reloading();
    if (this.#isAbandoned) return;
    try {
      this.#successor = startSuccessor();
      const successor = await this.#successor;
      log.info('Starting a successor', { pid: successor.pid });
      const onServing = () => supervisor.successor(successor.pid);
      const { pausedMs, program } = await handOver(successor, { dataPlane, controlPlane, clock, onServing });
      log.info('Handed over to the successor', { pid: successor.pid, version: program, ms: Math.round(pausedMs) });
    } catch (error) {
      if (this.#isAbandoned) return;
      const err = messageOf(error);
      if (error instanceof ConnectionsLostError) {
        log.error('The successor failed once it had gone on, so connections are lost; this process serves again', {
          err,
        });
      } else {
        log.error('Cannot hand over to a successor; this process serves as before', { err });
      }
      await supervisor.ready();
      return;
    }
    await onReleased();
  }
}
