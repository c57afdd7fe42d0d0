import { createInterface } from 'node:readline';
import { endProcess } from '../../../src/kernel/process.ts';
import * as clients from './clients.ts';
import * as https from './https.ts';
import * as meddler from './meddler.ts';
import * as outcomes from './outcomes.ts';
import * as probes from './probes.ts';
import * as scan from './scan.ts';
import * as servers from './servers.ts';

/**
 * A long-lived process in one namespace that serves as backend and client, driven by JSON lines: `{id, op, args}` on
 * standard input, `{id, result}` or `{id, error, code}` on standard output. One process for many requests, because
 * starting one for each would cost more than the request itself.
 */
const operations = { ...clients, ...https, ...meddler, ...outcomes, ...probes, ...scan, ...servers };

export type Operations = typeof operations;

interface Request {
  readonly id: number;
  readonly op: keyof Operations;
  readonly args: never;
}

async function answer({ id, op, args }: Request): Promise<void> {
  let reply: object;
  try {
    reply = { id, result: await (operations[op] as (args: never) => unknown)(args) };
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    reply = { id, error: message, code };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}

const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => void answer(JSON.parse(line) as Request));
// Whoever started us is gone: nothing may outlive a test run.
lines.on('close', () => void endProcess(0));
