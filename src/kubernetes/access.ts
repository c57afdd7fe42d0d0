import { readFile } from 'node:fs/promises';
import type { Log } from '../util/log.ts';
import { ApiError, causeMessage } from './api-error.ts';

/** Where the API server is, and the credentials for it. Holds secrets: never log it. */
export interface Access {
  /** `http:` or `https:`; may have a path, as behind Rancher. */
  readonly server: URL;
  readonly tls: TlsMaterial;
  readonly headers: Readonly<Record<string, string>>;
  /** The URL of an HTTP proxy. Without it, the environment decides. */
  readonly proxy?: string | undefined;
}

/** Certificates and keys are PEM. */
export interface TlsMaterial {
  /** Without it, the certificate authorities of the machine are trusted. */
  readonly ca?: string | Buffer | undefined;
  readonly cert?: string | Buffer | undefined;
  readonly key?: string | Buffer | undefined;
  /** The name to expect in the server's certificate instead of its host. */
  readonly serverName?: string | undefined;
  /** `insecure-skip-tls-verify`. */
  readonly skipVerify: boolean;
}

export interface AccessSource {
  /** Called before every request, so that every rotation counts. Rejects with an {@link ApiError} `credentials`. */
  current(): Promise<Access>;
  /** The server did not accept the credentials: the next call of {@link current} must not use a cache. */
  refused(): void;
}

/** Something in the configuration that only the user can fix. The message is one sentence. */
export class AccessConfigError extends Error {
  override readonly name = 'AccessConfigError';
}

/** Throws {@link AccessConfigError}; `what` says where the URL comes from. */
export function parseServerUrl(text: string, what: string): URL {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:') || url.hostname === '') {
    throw new AccessConfigError(`${what} is no URL of an API server; expected one like https://192.0.2.1:6443`);
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw new AccessConfigError(`${what} may have a host, a port and a path, and nothing else`);
  }
  return url;
}

/** What a header may carry after "Bearer ". */
const TOKEN = /^[\x21-\x7e]+$/;

/**
 * Reads a bearer token from a file that is replaced from time to time. While the file cannot be read, the last token is
 * used, as in client-go's `cachingTokenSource`. Rejects with an {@link ApiError} `credentials` without a last token.
 */
export function tokenReader(path: string, log: Log): () => Promise<string> {
  let last: string | undefined;
  let isFailing = false;
  return async () => {
    try {
      // Trimmed as client-go does: editors and `echo` end files with a newline.
      const token = (await readFile(path, 'utf8')).trim();
      if (token === '') throw new Error('it is empty');
      if (!TOKEN.test(token)) throw new Error('it holds a line break or another character that no token has');
      last = token;
      isFailing = false;
    } catch (error) {
      const err = causeMessage(error);
      if (last === undefined) {
        throw new ApiError('credentials', `the token file ${path} cannot be used: ${err}`, { cause: error });
      }
      if (!isFailing) log.warn('The token file cannot be read; the last token is used', { file: path, err });
      isFailing = true;
    }
    return last;
  };
}
