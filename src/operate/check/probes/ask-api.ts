import type { Agent } from 'node:http';
import type { Access } from '../../../kubernetes/access.ts';
import { readBody, sendRequest } from '../../../kubernetes/http-exchange.ts';
import type { Clock } from '../../../util/clock.ts';
import type { ApiAnswer, AskApi } from '../api-connection.ts';
import { STEP_MS } from './connection.ts';

/** A page of 500 Services has about one of them; some have annotations without measure. */
const MAX_BYTES = 32 << 20;

/** Requests with the rights that the proxy would have; each rejects with an {@link ApiError} after five seconds. */
export function askerOf({
  access,
  agent,
  clock,
}: {
  readonly access: Access;
  readonly agent: Agent;
  readonly clock: Clock;
}): AskApi {
  return async (path, body) => {
    const abort = new AbortController();
    const timer = clock.after(STEP_MS, () => abort.abort(new Error(`no answer within ${STEP_MS / 1_000} s`)));
    const { signal } = abort;
    try {
      const response = await sendRequest(
        {
          method: body === undefined ? 'GET' : 'POST',
          url: new URL(access.server.href.replace(/\/$/, '') + path),
          headers: {
            Accept: 'application/json',
            ...(body !== undefined && { 'Content-Type': 'application/json' }),
            ...access.headers,
          },
          body: body === undefined ? undefined : JSON.stringify(body),
          agent,
        },
        { clock, signal },
      );
      const chunks: Uint8Array[] = [];
      let length = 0;
      for await (const chunk of readBody(response, { host: access.server.host, signal, onData: () => {} })) {
        length += chunk.length;
        if (length > MAX_BYTES) throw new Error(`the answer has more than ${MAX_BYTES} bytes`);
        chunks.push(chunk);
      }
      return {
        status: response.statusCode ?? 0,
        date: response.headers.date,
        body: jsonOf(Buffer.concat(chunks).toString('utf8')),
      } satisfies ApiAnswer;
    } finally {
      timer.cancel();
    }
  };
}

/** `undefined` for what is not JSON. */
function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
