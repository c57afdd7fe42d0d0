import { endProcess } from '../../../src/kernel/process.ts';
import * as clients from './clients.ts';
import * as crowd from './crowd.ts';
import * as flood from './flood.ts';
import * as https from './https.ts';
import * as meddler from './meddler.ts';
import * as outcomes from './outcomes.ts';
import * as probes from './probes.ts';
import * as queries from './queries.ts';
import * as scan from './scan.ts';
import * as servers from './servers.ts';

/**
 * A long-lived process in one namespace that serves as backend and client, driven by messages. One process for many
 * requests, because starting one for each would cost more than the request itself.
 */
const operations = {
  ...clients,
  ...crowd,
  ...flood,
  ...https,
  ...meddler,
  ...outcomes,
  ...probes,
  ...queries,
  ...scan,
  ...servers,
};

export type Operations = typeof operations;

interface Request {
  readonly id: number;
  readonly op: keyof Operations;
  readonly args: never;
}

export interface Reply {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: string;
  readonly code?: string | undefined;
}

process.on('message', async ({ id, op, args }: Request) => {
  let reply: Reply;
  try {
    reply = { id, result: await (operations[op] as (args: never) => unknown)(args) };
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    reply = { id, error: message, code };
  }
  process.send?.(reply, undefined, undefined, () => {});
});
// The test run has ended, and nothing may outlive it.
process.on('disconnect', () => void endProcess(0));
