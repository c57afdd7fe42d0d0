import { readFile } from 'node:fs/promises';
import type { Log } from '../util/log.ts';
import { ApiError, causeMessage } from './api-error.ts';

/**
 * A bearer token that is replaced from time to time. It is read for every request: the file is small, requests are few,
 * and any age at which a copy is renewed would be one more thing to be wrong. While the file cannot be read, the last
 * token serves (as client-go's `cachingTokenSource`), because it mostly is still valid.
 */
export class TokenFile {
  readonly #path: string;
  readonly #log: Log;
  #last: string | undefined;
  #isFailing = false;

  constructor(path: string, log: Log) {
    this.#path = path;
    this.#log = log;
  }

  /** Rejects with an {@link ApiError} `credentials` while there has been no token yet. */
  async read(): Promise<string> {
    try {
      // Trimmed as client-go does: editors and `echo` end files with a newline.
      const token = (await readFile(this.#path, 'utf8')).trim();
      if (token === '') throw new Error('it is empty');
      this.#last = token;
      this.#isFailing = false;
    } catch (error) {
      const err = causeMessage(error);
      if (this.#last === undefined) {
        throw new ApiError('credentials', `the token file ${this.#path} cannot be used: ${err}`, { cause: error });
      }
      if (!this.#isFailing) {
        this.#log.warn('The token file cannot be read; the last token is used', { file: this.#path, err });
      }
      this.#isFailing = true;
    }
    return this.#last;
  }
}
