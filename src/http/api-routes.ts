import { setImmediate } from 'node:timers/promises';
import type { Answers, Rows } from '../operate/control/answers.ts';
import {
  COMMAND_NAMES,
  type CommandName,
  decodeQuery,
  pathOf,
  RequestError,
  ROUTES,
} from '../operate/control/protocol.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { atOnce, type Handler, type HttpResponse, JSON_TYPE } from './http-server.ts';
import type { RouteList } from './routes.ts';

/* /v1: what operators and programs ask, and what operators change (docs/api.md). */

const LINES_TYPE = 'application/x-ndjson';

/** So that others find room. They have no time limit, because a person may pause the output. */
export const MAX_TAILS = 4;
/** They show who connects to what, or run iptables. */
const LOCAL_ONLY: readonly CommandName[] = ['connections', 'tail', 'explain', 'endpoint'];

export interface ApiOptions {
  readonly answers: Answers;
  /** Requests wait for it, because earlier answers would be wrong. Never rejects. */
  readonly known: Promise<void>;
  /** Answers under way, also of clients that have left. */
  readonly maxAtOnce: number;
  readonly log: Log;
}

/** The routes of one method. */
export function apiRoutes(method: 'GET' | 'POST', options: ApiOptions): RouteList {
  const { answers, known, maxAtOnce, log } = options;
  const inAll = atOnce(maxAtOnce, busy(`${maxAtOnce} others are being answered; try again`));
  const inTails = atOnce(MAX_TAILS, busy(`${MAX_TAILS} others follow the connections already; end one`));
  const handler =
    (command: CommandName): Handler =>
    async ({ query, signal, isLocal }) => {
      try {
        if (!isLocal && LOCAL_ONLY.includes(command)) {
          throw new RequestError(`${pathOf(command)} is answered on loopback and on the control socket only`, 403);
        }
        const params = decodeQuery(command, query);
        await known;
        // The compiler does not see that the parameters and the answer are of the same command.
        const answer = await (answers[command] as (params: object, signal: AbortSignal) => Promise<object>)(
          params,
          signal,
        );
        if (!ROUTES[command].isRows) return json(200, answer);
        const deadline = command === 'tail' ? 'none' : 'part';
        return { status: 200, contentType: LINES_TYPE, body: linesOf(answer as Rows, signal), deadline };
      } catch (error) {
        if (error instanceof RequestError) return json(error.status, { error: error.message });
        log.error('Cannot answer an operator', { path: pathOf(command), err: messageOf(error) });
        return json(500, { error: messageOf(error) });
      }
    };
  return COMMAND_NAMES.filter((command) => ROUTES[command].method === method).map((command) => {
    const inTime = inAll(handler(command));
    return [pathOf(command), command === 'tail' ? inTails(inTime) : inTime];
  });
}

async function* linesOf(pieces: Rows, signal: AbortSignal): AsyncGenerator<string> {
  for await (const rows of pieces) {
    if (signal.aborted) return;
    if (rows.length > 0) yield rows.join('');
    // Node's own turn: a timer of the clock would add a millisecond to each piece.
    await setImmediate();
  }
}

function json(status: number, value: object): HttpResponse {
  return { status, contentType: JSON_TYPE, body: `${JSON.stringify(value)}\n` };
}

function busy(error: string): HttpResponse {
  return json(503, { error });
}
