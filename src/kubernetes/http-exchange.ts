import { type Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import type { Clock } from '../util/clock.ts';
import { withoutAddress } from '../util/text.ts';
import { ApiError, causeMessage, cut } from './api-error.ts';

export interface HttpRequest {
  readonly method: 'GET' | 'POST';
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  readonly agent: Agent;
}

/** Until the request is sent. */
const CONNECT_DEADLINE_MS = 10_000;

/** Until the head of the response. A busy server may queue a request for some time (priority and fairness). */
const HEAD_DEADLINE_MS = 30_000;

/** Fewer bytes than this are no progress: a connection that drips counts as silent. */
const PROGRESS_BYTES = 4_096;

/**
 * Sends one request. Resolves with the head of the response, whatever its status; rejects with an {@link ApiError}
 * `unreachable`, or with the reason of the signal. A GET is sent again when the server closed an idle connection at the
 * moment it was taken for the request.
 */
export function sendRequest(
  request: HttpRequest,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<IncomingMessage> {
  const { method, url, headers, body, agent } = request;
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const sent = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, { method, headers, agent });
    const abort = () => sent.destroy();
    let isUnsent = true;
    const deadline = (ms: number, what: string) =>
      clock.after(ms, () => sent.destroy(new Error(`${what} within ${ms / 1_000} s`)));
    const connecting = deadline(CONNECT_DEADLINE_MS, 'no connection');
    const answering = deadline(HEAD_DEADLINE_MS, 'no answer');
    const settle = () => {
      connecting.cancel();
      answering.cancel();
      signal.removeEventListener('abort', abort);
    };
    signal.addEventListener('abort', abort);
    // After the TLS handshake.
    sent.on('finish', () => {
      isUnsent = false;
      connecting.cancel();
    });
    sent.on('response', (response) => {
      settle();
      // By itself the response would only report that it was aborted.
      sent.removeAllListeners('error').on('error', (error) => response.destroy(error));
      resolve(response);
    });
    sent.on('error', (error: NodeJS.ErrnoException) => {
      settle();
      const isStale = sent.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
      if (isStale && method === 'GET' && !signal.aborted) resolve(sendRequest(request, { clock, signal }));
      else reject(failureOf(error, { host: url.host, signal, isUnsent }));
    });
    sent.end(body);
  });
}

/**
 * The body of a response, decompressed piece by piece; the caller bounds its size. Fails as {@link sendRequest} does;
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
    for await (const chunk of decompressed(response)) {
      onData();
      yield chunk as Buffer;
    }
  } catch (error) {
    throw failureOf(error, { host, signal });
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function decompressed(response: IncomingMessage): AsyncIterable<unknown> {
  const encoding = response.headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return response;
  if (encoding !== 'gzip') {
    response.destroy();
    throw new ApiError('garbage', `the answer is encoded as ${JSON.stringify(cut(encoding))}`);
  }
  // The reading loop gets the error, too.
  return pipeline(response, createGunzip({ chunkSize: 64 * 1024 }), () => {});
}

/** The whole body as text. Throws an {@link ApiError} `garbage` when it is larger than `maxBytes`. */
export async function collect(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
  onProgress: () => void = () => {},
): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    if ((length % PROGRESS_BYTES) + chunk.length >= PROGRESS_BYTES) onProgress();
    length += chunk.length;
    if (length > maxBytes) throw new ApiError('garbage', `the answer has more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length).toString('utf8');
}

interface Silence {
  readonly clock: Clock;
  readonly ms: number;
  readonly late: ApiError;
  readonly outer?: AbortSignal;
}

/** Aborts `work` with `outer`, or with `late` once `ms` have passed since its start or its last progress. */
export async function withinSilence<T>(
  { clock, ms, late, outer }: Silence,
  work: (signal: AbortSignal, onProgress: () => void) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  let heardAt = clock.now();
  // Cheaper than a new timer for every piece.
  const look = () => {
    const leftMs = heardAt + ms - clock.now();
    if (leftMs > 0) timer = clock.after(leftMs, look);
    else controller.abort(late);
  };
  let timer = clock.after(ms, look);
  try {
    return await work(AbortSignal.any([controller.signal, ...(outer === undefined ? [] : [outer])]), () => {
      heardAt = clock.now();
    });
  } finally {
    timer.cancel();
  }
}

function failureOf(
  error: unknown,
  {
    host,
    signal,
    isUnsent = false,
  }: { readonly host: string; readonly signal: AbortSignal; readonly isUnsent?: boolean },
): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof ApiError) return error;
  const message = causeMessage(error);
  if ((error as NodeJS.ErrnoException).code?.startsWith('Z_')) {
    return new ApiError('garbage', `the answer is no valid gzip: ${message}`);
  }
  // Node's word for a connection that ends in the middle of a response.
  const reason = message === 'aborted' ? 'the connection was closed' : message;
  return new ApiError('unreachable', `${host}: ${withoutAddress(reason, host)}`, { cause: error, isUnsent });
}
