import type { Log } from '../contracts/log.ts';

export interface ServiceManagerOptions {
  readonly env: NodeJS.ProcessEnv;
  /** The machine's CLOCK_MONOTONIC. */
  readonly uptimeMs: () => number;
  readonly log: Log;
}

/** Sends one datagram to a Unix socket. A negative errno says that it failed. */
type SendDatagram = (path: string, text: string) => number;

/**
 * Tells systemd how the service is (sd_notify(3), `Type=notify`). Without NOTIFY_SOCKET nobody wants to know, and nothing
 * is said. That it cannot be told is logged once and harms nothing here.
 */
export class ServiceManager {
  readonly #path: string | undefined;
  readonly #options: ServiceManagerOptions;
  #send: Promise<SendDatagram | undefined> | undefined;
  #hasFailed = false;

  constructor(options: ServiceManagerOptions) {
    this.#path = options.env['NOTIFY_SOCKET'] || undefined;
    this.#options = options;
  }

  ready(): Promise<void> {
    return this.#notify('READY=1');
  }

  /** {@link ready} says when that is over. */
  reloading(): Promise<void> {
    return this.#notify(`RELOADING=1\nMONOTONIC_USEC=${Math.floor(this.#options.uptimeMs() * 1000)}`);
  }

  stopping(): Promise<void> {
    return this.#notify('STOPPING=1');
  }

  /** That process is the service's main one from now on, and says the rest itself. */
  successor(pid: number): Promise<void> {
    return this.#notify(`MAINPID=${pid}`);
  }

  async #notify(text: string): Promise<void> {
    if (this.#path === undefined) return;
    // Not before somebody wants to know: the portable engine must work where koffi's addon does not load.
    this.#send ??= import('../sys/unix-datagram.ts')
      .then(({ sendUnixDatagram }) => sendUnixDatagram)
      .catch(() => undefined);
    const send = await this.#send;
    if (send !== undefined && send(this.#path, text) >= 0) return;
    if (!this.#hasFailed) {
      this.#options.log.warn(
        'Cannot tell systemd of this process; with Type=notify it takes that for a start that failed, so use Type=exec',
        { socket: this.#path },
      );
    }
    this.#hasFailed = true;
  }
}
