import type { Socket } from 'node:net';

/**
 * Ends a connection with a RST, which the peer cannot take for a clean end. Safe to call at any time.
 *
 * libuv refuses to reset while a shutdown of the writing side is under way (`uv_tcp_close_reset` gives EINVAL), and Node
 * then leaks the descriptor. That is so from the last write's end until 'finish', one turn of the event loop.
 */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  const isShuttingDown = socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
  if (isShuttingDown) socket.once('finish', () => socket.resetAndDestroy());
  else socket.resetAndDestroy();
}
