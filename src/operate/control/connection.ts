import type { Socket } from 'node:net';
import { messageOf } from '../../util/text.ts';
import { type Answerer, answer } from './answer.ts';
import { linesOf } from './lines.ts';
import { READ_TIMEOUT_MS } from './protocol.ts';
import { decodeRequest, RequestError } from './request.ts';

export const MAX_REQUEST_BYTES = 64 * 1024;
export const REQUEST_TIMEOUT_MS = 5_000;

/** Takes one request and answers it. Never rejects; the socket is closed in the end. */
export async function serveConnection(socket: Socket, answerer: Answerer): Promise<void> {
  const { clock, log } = answerer;
  // The client has left; what is under way ends when it finds that.
  socket.on('error', () => {});
  try {
    const timeout = clock.after(REQUEST_TIMEOUT_MS, () => socket.destroy());
    const line = await firstLine(socket).finally(() => timeout.cancel());
    if (line !== undefined) {
      const request = decodeRequest(line);
      await answerer.known;
      for await (const piece of answer(request, answerer)) {
        if (!(await written(socket, `{"piece":${piece}}\n`, answerer))) return;
        await turn();
      }
      await written(socket, '{"end":true}\n', answerer);
    }
  } catch (error) {
    if (socket.destroyed) return;
    if (!(error instanceof RequestError)) {
      log.error('Cannot answer a request on the control socket', { err: messageOf(error) });
    }
    await written(socket, `${JSON.stringify({ error: messageOf(error) })}\n`, answerer);
  } finally {
    closeSoon(socket, answerer);
  }
}

/** When the client has taken the rest, or has not for too long. */
function closeSoon(socket: Socket, { clock }: Answerer): void {
  if (socket.destroyed) return;
  const timeout = clock.after(READ_TIMEOUT_MS, () => socket.destroy());
  socket.on('close', () => timeout.cancel()).destroySoon();
}

/** `undefined` when the client has left without a request. */
async function firstLine(socket: Socket): Promise<string | undefined> {
  try {
    for await (const line of linesOf(socket.iterator({ destroyOnReturn: false }), MAX_REQUEST_BYTES)) return line;
    return undefined;
  } catch (error) {
    if (socket.destroyed) throw error;
    throw new RequestError(messageOf(error));
  }
}

/** A whole one of the event loop, with the sockets' part in it; a timer of the clock would add a millisecond to each. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/** Resolves when the client has taken enough to be given more: with `false` when there will be no more. */
function written(socket: Socket, text: string, { clock }: Answerer): boolean | Promise<boolean> {
  if (socket.destroyed) return false;
  if (socket.write(text)) return true;
  return new Promise((resolve) => {
    const timeout = clock.after(READ_TIMEOUT_MS, () => socket.destroy());
    const settle = () => {
      timeout.cancel();
      socket.off('drain', settle).off('close', settle);
      resolve(!socket.destroyed);
    };
    socket.on('drain', settle).on('close', settle);
  });
}
