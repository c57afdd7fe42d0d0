import { connect, type Socket } from 'node:net';
import type { Clock } from '../../util/clock.ts';
import { LineSplitter } from '../../util/line-splitter.ts';
import { isObject, parseJson } from '../../util/untrusted.ts';
import {
  type Answer,
  type CommandName,
  type Commands,
  type Control,
  PROTOCOL_VERSION,
  READ_TIMEOUT_MS,
} from './protocol.ts';

/* The client's side of the control socket, for subcommands. */

/** A Service with as many endpoints as possible is a few megabytes. */
const MAX_PIECE_BYTES = 64 * 1024 * 1024;
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
  const socket = connect(path);
  const lines = new LineSplitter(MAX_PIECE_BYTES);
  try {
    socket.write(`${JSON.stringify({ v: PROTOCOL_VERSION, command, params })}\n`);
    for await (const chunk of chunksOf(socket, clock)) {
      for (const line of lines.push(chunk)) {
        const answer = decodeAnswer<C>(line, path);
        if ('end' in answer) return;
        if ('error' in answer) throw new RefusedError(answer.error);
        yield answer.piece;
      }
    }
    throw cutOff();
  } catch (error) {
    throw error instanceof ControlError ? error : explained(error as NodeJS.ErrnoException, path);
  } finally {
    socket.destroy();
  }
}

/** Throws when the server is silent for too long, not counting time in which the consumer does not read. */
async function* chunksOf(socket: Socket, clock: Clock): AsyncGenerator<Buffer> {
  const chunks: AsyncIterator<Buffer> = socket[Symbol.asyncIterator]();
  const silence = `the proxy has said nothing for ${SILENCE_MS / 1_000} s: is it stopped, or the machine short of CPU?`;
  for (;;) {
    const timeout = clock.after(SILENCE_MS, () => socket.destroy(new ControlError(silence)));
    const { done, value } = await chunks.next().finally(() => timeout.cancel());
    if (done) return;
    yield value;
  }
}

function decodeAnswer<C extends CommandName>(line: string, path: string): Answer<C> {
  const answer = parseJson(line);
  if (isObject(answer) && ['piece', 'end', 'error'].some((key) => key in answer)) return answer as unknown as Answer<C>;
  throw new ControlError(`what listens at ${path} does not answer as this program does`);
}

function explained(error: NodeJS.ErrnoException, path: string): ControlError {
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
      return cutOff();
    default:
      return new ControlError(`cannot ask the proxy at ${path}: ${error.message}`);
  }
}

function cutOff(): ControlError {
  return new ControlError(
    `the proxy closed the connection before its answer was complete: it is stopping, handing over to a successor, has waited ${READ_TIMEOUT_MS / 1_000} s for this command to go on reading, or is busy with others; try again`,
  );
}
