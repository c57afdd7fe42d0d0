import { type IncomingMessage, request } from 'node:http';
import {
  type CommandName,
  type Commands,
  type Control,
  encodeQuery,
  pathOf,
  READ_TIMEOUT_MS,
  ROUTES,
} from '../operate/control/protocol.ts';
import type { Clock } from '../util/clock.ts';
import { LineSplitter } from '../util/line-splitter.ts';
import { isObject, parseJson } from '../util/untrusted.ts';

/* The client's side of the control socket: HTTP over a Unix socket (docs/api.md). */

/** A Service with as many endpoints as possible is a few megabytes. */
const MAX_LINE_BYTES = 64 * 1024 * 1024;
/** Longer than the server waits for iptables, which `explain` runs. */
const SILENCE_MS = 45_000;

/** An error of the running program, or the reason why it cannot be reached: a sentence for people. */
export class ControlError extends Error {
  override readonly name = 'ControlError';
}

/** What the running program says to a question that it does not answer. */
export class RefusedError extends ControlError {}

/** Opens a connection for each question. */
export function connectControl(path: string, clock: Clock): Control {
  return { ask: (command, params) => ask(path, clock, command, params) };
}

async function* ask<C extends CommandName>(
  path: string,
  clock: Clock,
  command: C,
  params: Commands[C]['params'],
): AsyncGenerator<Commands[C]['piece']> {
  const { method, isRows } = ROUTES[command];
  const url = `${pathOf(command)}?${encodeQuery(params)}`;
  const asked = request({ socketPath: path, host: 'localhost', method, path: url, agent: false });
  try {
    const response = await inTime(answerTo(asked), clock);
    const isAnswer = response.statusCode === 200;
    const lines = new LineSplitter(MAX_LINE_BYTES);
    const chunks: AsyncIterator<Buffer> = response[Symbol.asyncIterator]();
    for (;;) {
      const { done, value } = await inTime(chunks.next(), clock);
      if (done) break;
      const found = [...lines.push(value)].map(parseJson);
      if (found.some((each) => !isObject(each))) throw stranger(path);
      if (!isAnswer) throw refusal(found[0], path);
      if (isRows) yield found as unknown as Commands[C]['piece'];
      else yield* found as Commands[C]['piece'][];
    }
    if (!isAnswer) throw stranger(path);
  } catch (error) {
    throw error instanceof ControlError ? error : explained(error as NodeJS.ErrnoException, path);
  } finally {
    asked.destroy();
  }
}

function answerTo(asked: ReturnType<typeof request>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    asked.on('response', resolve).on('error', reject).end();
  });
}

/** Rejects when the server is silent for too long. Time in which the consumer does not read is not counted. */
async function inTime<T>(step: Promise<T>, clock: Clock): Promise<T> {
  const { promise: isLate, reject } = Promise.withResolvers<never>();
  const text = `the proxy has said nothing for ${SILENCE_MS / 1_000} s: is it stopped, or the machine short of CPU?`;
  const timeout = clock.after(SILENCE_MS, () => reject(new ControlError(text)));
  return await Promise.race([step, isLate]).finally(() => timeout.cancel());
}

function refusal(answer: unknown, path: string): ControlError {
  const error = isObject(answer) ? answer['error'] : undefined;
  return typeof error === 'string' ? new RefusedError(error) : stranger(path);
}

function stranger(path: string): ControlError {
  return new ControlError(`what listens at ${path} does not answer as this program does`);
}

function explained(error: NodeJS.ErrnoException, path: string): ControlError {
  // Of Node's parser of HTTP.
  if (error.code?.startsWith('HPE_')) {
    return new ControlError(
      `what listens at ${path} does not speak HTTP: a proxy of an earlier release, which serves until it is reloaded or restarted, or another program`,
    );
  }
  switch (error.code) {
    case 'ENOENT':
    case 'ENOTDIR':
      return new ControlError(
        `no proxy serves ${path}: is it running on this node? If it was started with another --control-socket, give the same here`,
      );
    case 'ECONNREFUSED':
      return new ControlError(`nobody listens at ${path} any more: the proxy has ended, or is about to start`);
    case 'EACCES':
    case 'EPERM':
      return new ControlError(`${path} may be opened by root only; run this as root`);
    case 'ECONNRESET':
    case 'EPIPE':
      return new ControlError(
        `the proxy closed the connection before its answer was complete: it is stopping, handing over to a successor, has waited ${READ_TIMEOUT_MS / 1_000} s for this command to go on reading, is busy with others, or has failed, as its log says; try again`,
      );
    default:
      return new ControlError(`cannot ask the proxy at ${path}: ${error.message}`);
  }
}
