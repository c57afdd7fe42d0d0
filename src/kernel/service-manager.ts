import { constants } from 'node:os';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { sleep } from '../util/wait.ts';

interface ServiceManagerOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly pid: number;
  /** This process has taken over from another, which systemd knew first. */
  readonly isSuccessor: boolean;
  readonly clock: Clock;
  /** The machine's CLOCK_MONOTONIC. */
  readonly uptimeMs: () => number;
  readonly log: Log;
}

/** Sends one datagram to a Unix socket without blocking. Returns a negative errno when it failed. */
type SendDatagram = (path: string, text: string) => number;

/** The socket's queue, which holds few datagrams, is full until systemd reads it. */
const BUSY = -constants.errno.EAGAIN;
const BUSY_RETRY_MS = 20;
const BUSY_TRIES = 100;

/**
 * Notifies systemd of the service's state (sd_notify(3), `Type=notify`), and feeds its watchdog while this thread's
 * event loop turns. Does nothing without NOTIFY_SOCKET. A failure is logged once and does no harm here.
 */
export class ServiceManager {
  readonly #path: string | undefined;
  readonly #options: ServiceManagerOptions;
  readonly #periodMs: number | undefined;
  #send: Promise<SendDatagram | undefined> | undefined;
  #nextFeed: Timer | undefined;
  #hasFailed = false;

  constructor(options: ServiceManagerOptions) {
    this.#path = options.env['NOTIFY_SOCKET'] || undefined;
    this.#options = options;
    this.#periodMs = watchdogPeriodMs(options.env, options);
  }

  /**
   * The watchdog is fed from now on. Before, a predecessor feeds it, or TimeoutStartSec= applies. `systemctl status`
   * shows the `status` until the next reload: systemd has no notification of one that failed (sd_notify(3)).
   */
  ready(status?: string): Promise<void> {
    const notified = this.#notify(status === undefined ? 'READY=1' : `READY=1\nSTATUS=${status.replace(/\s+/g, ' ')}`);
    this.#feedWatchdog();
    return notified;
  }

  /** Lasts until {@link ready}. */
  reloading(): Promise<void> {
    return this.#notify(`RELOADING=1\nMONOTONIC_USEC=${Math.floor(this.#options.uptimeMs() * 1000)}\nSTATUS=`);
  }

  stopping(): Promise<void> {
    this.#nextFeed?.cancel();
    return this.#notify('STOPPING=1');
  }

  /** That process is the service's main process from now on, and sends all further notifications. */
  successor(pid: number): Promise<void> {
    this.#nextFeed?.cancel();
    return this.#notify(`MAINPID=${pid}`);
  }

  #feedWatchdog(): void {
    this.#nextFeed?.cancel();
    if (this.#path === undefined || this.#periodMs === undefined) return;
    void this.#notify('WATCHDOG=1');
    this.#nextFeed = this.#options.clock.after(this.#periodMs, () => this.#feedWatchdog());
  }

  async #notify(text: string): Promise<void> {
    if (this.#path === undefined) return;
    // Loaded here, because the node engine also runs where koffi's addon cannot be loaded.
    this.#send ??= import('../sys/unix-socket.ts')
      .then(({ sendUnixDatagram }) => sendUnixDatagram)
      .catch(() => undefined);
    const send = await this.#send;
    if (send !== undefined && (await this.#sent(send, this.#path, text))) return;
    if (!this.#hasFailed) {
      this.#options.log.warn(
        'Cannot notify systemd, which will take this for a failed start (Type=notify) or a hanging process ' +
          '(WatchdogSec=); use Type=exec without a watchdog',
        { socket: this.#path },
      );
    }
    this.#hasFailed = true;
  }

  /** Retries while systemd is busy, because it takes a missing notification for a failure. */
  async #sent(send: SendDatagram, path: string, text: string): Promise<boolean> {
    let status = send(path, text);
    for (let tries = 1; status === BUSY && tries < BUSY_TRIES; tries++) {
      await sleep(BUSY_RETRY_MS, this.#options.clock);
      status = send(path, text);
    }
    return status >= 0;
  }
}

/** Some watchdogs exceed 2^31 ms, and Node fires such a timer at once. */
const MAX_PERIOD_MS = 60 * 60 * 1000;

interface WatchedProcess {
  readonly pid: number;
  /** Its environment comes from the first process of the service, and still names that process. */
  readonly isSuccessor: boolean;
}

/**
 * How often to feed systemd's watchdog, in milliseconds: two notifications may be late or lost before it acts.
 * `undefined` without a watchdog, or when it watches another process (sd_watchdog_enabled(3)).
 */
export function watchdogPeriodMs(env: NodeJS.ProcessEnv, { pid, isSuccessor }: WatchedProcess): number | undefined {
  const { WATCHDOG_USEC: timeoutUs = '', WATCHDOG_PID: watched = '' } = env;
  if (!/^[1-9]\d*$/.test(timeoutUs)) return undefined;
  if (watched !== '' && watched !== String(pid) && !isSuccessor) return undefined;
  return Math.min(Number(timeoutUs) / 1000 / 3, MAX_PERIOD_MS);
}
