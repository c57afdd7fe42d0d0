import type { TestContext } from 'node:test';
import { close } from '../../src/sys/descriptor.ts';
import { SOCK_STREAM, socketpair } from '../../src/sys/socket.ts';
import { must } from '../../src/sys/sys-error.ts';

/** Closes the descriptor after the test. Throws for a negative errno. */
export function owned(t: TestContext, fd: number): number {
  must('open', fd);
  t.after(() => close(fd));
  return fd;
}

export function ownedPair(t: TestContext, type: number = SOCK_STREAM): readonly [number, number] {
  const fds = new Int32Array(2);
  must('socketpair', socketpair(type, fds));
  return [owned(t, fds[0] ?? -1), owned(t, fds[1] ?? -1)];
}
