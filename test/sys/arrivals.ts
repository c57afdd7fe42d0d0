import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { waitReadable } from '../../src/sys/descriptor.ts';
import { EPOLLET, EPOLLIN, Epoll } from '../../src/sys/epoll.ts';
import { PATIENCE_MS } from '../netns/wait.ts';
import { owned } from './descriptors.ts';

/** Of a socket: waits for one more datagram. The kernel may deliver what goes over loopback after `send` has returned. */
export function arrivals(t: TestContext, fd: number): () => void {
  const epoll = new Epoll(1);
  owned(t, epoll.fd);
  assert.equal(epoll.add(fd, EPOLLIN | EPOLLET, 0), 0);
  return () => assert.equal(epoll.wait(PATIENCE_MS), 1);
}

/** Waits until there is something to receive. */
export function hasArrived(fd: number): void {
  assert.equal(waitReadable(fd, PATIENCE_MS), 1);
}
