import type { Log, LogFields } from './log.ts';

interface LastingFaultOptions {
  readonly log: Pick<Log, 'error' | 'info'>;
  /** Logged when it begins. */
  readonly begun: string;
  /** Logged when it is over. */
  readonly over: string;
}

/**
 * A fault of something that is tried again and again. The log tells when it begins, when its cause changes, and when it
 * is over, but not each try: those lines would hide others.
 */
export class LastingFault {
  readonly #options: LastingFaultOptions;
  #err: string | undefined;

  constructor(options: LastingFaultOptions) {
    this.#options = options;
  }

  failed(err: string, fields: LogFields = {}): void {
    if (err === this.#err) return;
    this.#err = err;
    this.#options.log.error(this.#options.begun, { ...fields, err });
  }

  succeeded(fields: LogFields = {}): void {
    if (this.#err === undefined) return;
    this.#err = undefined;
    this.#options.log.info(this.#options.over, fields);
  }
}
