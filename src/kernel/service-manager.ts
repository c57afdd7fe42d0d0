import { constants } from 'node:os';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { watchdogPeriodMs } from './watchdog.ts';

export interface ServiceManagerOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly pid: number;
  /** Whether this process has taken over from another, which systemd knew first. */
  readonly isSuccessor: boolean;
  readonly clock: Clock;
  /** The machine's CLOCK_MONOTONIC. */
  readonly uptimeMs: () => number;
  readonly log: Log;
}

/** Sends one datagram to a Unix socket, without waiting for anything. A negative errno says that it failed. */
type SendDatagram = (path: string, text: string) => number;

/** Its queue is full: of few datagrams, which systemd reads when it has time. */
const BUSY = -constants.errno.EAGAIN;
const BUSY_RETRY_MS = 20;
const BUSY_TRIES = 100;

/**
 * Tells systemd how the service is (sd_notify(3), `Type=notify`), and, where its watchdog waits for that, again and again
 * that this thread's event loop turns. Without NOTIFY_SOCKET nobody wants to know, and nothing is said. That it cannot be
 * told is logged once and harms nothing here.
 */
export class ServiceManager {
  readonly #path: string | undefined;
  readonly #options: ServiceManagerOptions;
  readonly #periodMs: number | undefined;
  #send: Promise<SendDatagram | undefined> | undefined;
  #nextSign: Timer | undefined;
  #hasFailed = false;

  constructor(options: ServiceManagerOptions) {
    this.#path = options.env['NOTIFY_SOCKET'] || undefined;
    this.#options = options;
    this.#periodMs = watchdogPeriodMs(options.env, options);
  }

  /** The watchdog is fed from now on. Before, systemd hears only the predecessor, or bounds the time of the start. */
  ready(): Promise<void> {
    const told = this.#notify('READY=1');
    this.#feedWatchdog();
    return told;
  }

  /** {@link ready} says when that is over. */
  reloading(): Promise<void> {
    return this.#notify(`RELOADING=1\nMONOTONIC_USEC=${Math.floor(this.#options.uptimeMs() * 1000)}`);
  }

  stopping(): Promise<void> {
    this.#nextSign?.cancel();
    return this.#notify('STOPPING=1');
  }

  /** That process is the service's main one from now on, and says the rest itself. */
  successor(pid: number): Promise<void> {
    this.#nextSign?.cancel();
    return this.#notify(`MAINPID=${pid}`);
  }

  #feedWatchdog(): void {
    this.#nextSign?.cancel();
    if (this.#path === undefined || this.#periodMs === undefined) return;
    void this.#notify('WATCHDOG=1');
    this.#nextSign = this.#options.clock.after(this.#periodMs, () => this.#feedWatchdog());
  }

  async #notify(text: string): Promise<void> {
    if (this.#path === undefined) return;
    // Not before somebody wants to know: the portable engine must work where koffi's addon does not load.
    this.#send ??= import('../sys/unix-socket.ts')
      .then(({ sendUnixDatagram }) => sendUnixDatagram)
      .catch(() => undefined);
    const send = await this.#send;
    if (send !== undefined && (await this.#sent(send, this.#path, text))) return;
    if (!this.#hasFailed) {
      this.#options.log.warn(
        'Cannot tell systemd of this process; it takes that for a start that failed (Type=notify) or a process that hangs (WatchdogSec=), so use Type=exec without a watchdog',
        { socket: this.#path },
      );
    }
    this.#hasFailed = true;
  }

  /** Insists while systemd is busy, for what it misses it takes for a failure. */
  async #sent(send: SendDatagram, path: string, text: string): Promise<boolean> {
    let status = send(path, text);
    for (let tries = 1; status === BUSY && tries < BUSY_TRIES; tries++) {
      await new Promise<void>((resolve) => void this.#options.clock.after(BUSY_RETRY_MS, resolve));
      status = send(path, text);
    }
    return status >= 0;
  }
}
