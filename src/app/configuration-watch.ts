import { watchFile } from '../kernel/files.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { backoffMs, sleep } from '../util/wait.ts';

/** Each try starts a process, and the reason to fail may last: an API server that is away, a broken manifest. */
const RETRY = { firstMs: 5_000, maxMs: 300_000 };

interface ConfigurationWatchOptions {
  readonly path: string;
  /** What the file said when this process started. */
  readonly text: string;
  /** Throws a sentence for a text that no process could start with. */
  readonly check: (text: string) => void;
  /** Has another process serve with the file. Resolves when that has failed. */
  readonly replace: () => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** Watches the file of `--config`, and tries to replace this process until the content of the file is in force. */
export class ConfigurationWatch {
  readonly #options: ConfigurationWatchOptions;
  #isInForce = true;
  /** Ends the tries for a text that has changed again. */
  #tries = new AbortController();

  constructor(options: ConfigurationWatchOptions) {
    this.#options = options;
  }

  get path(): string {
    return this.#options.path;
  }

  /** Whether this process serves with what the file says. */
  get isInForce(): boolean {
    return this.#isInForce;
  }

  start(): void {
    const { path, text, clock } = this.#options;
    watchFile({ path, text, clock, onChange: (now) => this.#changed(now) });
  }

  #changed(text: string): void {
    const { path, check, log, signal } = this.#options;
    this.#tries.abort();
    this.#tries = new AbortController();
    this.#isInForce = text === this.#options.text;
    try {
      check(text);
    } catch (error) {
      // Upstream ends, and is started again and again in vain.
      log.error('The configuration file is wrong; what it said before stays in force', { err: messageOf(error) });
      return;
    }
    if (this.#isInForce) return;
    log.warn("The content of the proxy server's configuration file was updated; a new process is to serve with it", {
      file: path,
    });
    void this.#replace(AbortSignal.any([signal, this.#tries.signal]));
  }

  async #replace(signal: AbortSignal): Promise<void> {
    const { path, replace, clock, log } = this.#options;
    for (let failures = 1; !signal.aborted; failures += 1) {
      await replace();
      if (signal.aborted) return;
      const retryInMs = backoffMs(failures, RETRY);
      log.warn('The configuration file is not in force yet; trying again', { file: path, retryInMs });
      await sleep(retryInMs, clock, signal);
    }
  }
}
