import { type Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import type { Clock } from '../util/clock.ts';
import { ApiError, causeMessage, cut } from './api-error.ts';

export interface HttpRequest {
  readonly method: 'GET' | 'POST';
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  readonly agent: Agent;
}

/** Until the connection stands and the request is on its way. */
const CONNECT_DEADLINE_MS = 10_000;

/** Until the head of the response. A busy server may queue a request for some time (priority and fairness). */
const HEAD_DEADLINE_MS = 30_000;

/** The server closed an idle connection at the moment it was taken for a request: says nothing of the server. */
export class StaleConnectionError extends ApiError {}

/**
 * One request. Resolves with the head of the response, whatever its status; rejects with an {@link ApiError}
 * `unreachable`, or with the signal's reason.
 */
export function sendRequest(
  { method, url, headers, body, agent }: HttpRequest,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
    const request = send(url, { method, headers, agent });
    const abort = () => request.destroy();
    const deadline = (ms: number, what: string) =>
      clock.after(ms, () =>
        request.destroy(new ApiError('unreachable', `${url.host}: ${what} within ${ms / 1_000} s`)),
      );
    const connecting = deadline(CONNECT_DEADLINE_MS, 'no connection');
    const answering = deadline(HEAD_DEADLINE_MS, 'no answer');
    const settle = () => {
      connecting.cancel();
      answering.cancel();
      signal.removeEventListener('abort', abort);
    };
    signal.addEventListener('abort', abort);
    // The request is handed over only when the connection stands, the TLS handshake included.
    request.on('finish', () => connecting.cancel());
    request.on('response', (response) => {
      settle();
      // The response itself would only say that it was aborted.
      request.on('error', (error) => response.destroy(error));
      resolve(response);
    });
    request.on('error', (error: NodeJS.ErrnoException) => {
      settle();
      const isStale = request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
      reject(
        isStale && !signal.aborted
          ? new StaleConnectionError('unreachable', `${url.host}: ${causeMessage(error)}`)
          : failureOf(error, { host: url.host, signal }),
      );
    });
    request.end(body);
  });
}

/**
 * The body of a response, decompressed piece by piece: who reads it bounds it. Fails as {@link sendRequest} does;
 * leaving the loop early closes the connection.
 */
export async function* readBody(
  response: IncomingMessage,
  { host, signal, onData }: { readonly host: string; readonly signal: AbortSignal; readonly onData: () => void },
): AsyncGenerator<Uint8Array> {
  const abort = () => response.destroy(signal.reason as Error);
  signal.addEventListener('abort', abort);
  try {
    if (signal.aborted) abort();
    for await (const chunk of decoded(response)) {
      onData();
      yield chunk as Buffer;
    }
  } catch (error) {
    throw failureOf(error, { host, signal });
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function decoded(response: IncomingMessage): AsyncIterable<unknown> {
  const encoding = response.headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return response;
  if (encoding !== 'gzip') {
    response.destroy();
    throw new ApiError('garbage', `the answer is encoded as ${JSON.stringify(cut(encoding))}`);
  }
  // The loop that reads it gets the error, too.
  return pipeline(response, createGunzip({ chunkSize: 64 * 1024 }), () => {});
}

function failureOf(error: unknown, { host, signal }: { readonly host: string; readonly signal: AbortSignal }): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof ApiError) return error;
  const message = causeMessage(error);
  if ((error as NodeJS.ErrnoException).code?.startsWith('Z_')) {
    return new ApiError('garbage', `the answer is not what gzip makes: ${message}`);
  }
  // Node's word for a connection that ends in the middle of a response.
  const reason = message === 'aborted' ? 'the connection was closed' : message;
  return new ApiError('unreachable', `${host}: ${reason}`, { cause: error });
}
