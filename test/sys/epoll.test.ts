import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EPOLLET, EPOLLIN, EPOLLOUT, Epoll } from '../../src/sys/epoll.ts';
import { Memory } from '../../src/sys/memory.ts';
import { recv, send } from '../../src/sys/socket.ts';
import { owned, ownedPair } from './descriptors.ts';

function seen(epoll: Epoll, count: number): (readonly number[])[] {
  return Array.from({ length: count }, (_, i) => [epoll.descriptor(i), epoll.tag(i), epoll.events(i)]);
}

test('every event of a batch brings its own descriptor and tag', (t) => {
  const epoll = new Epoll(8);
  owned(t, epoll.fd);
  const fds = Array.from({ length: 4 }, () => ownedPair(t)[0]);
  const tags = [0, 1, -1, 0x7fff_ffff];
  fds.forEach((fd, i) => {
    assert.equal(epoll.add(fd, EPOLLOUT, tags[i] ?? 0), 0);
  });
  const count = epoll.wait(0);
  assert.deepEqual(
    seen(epoll, count),
    fds.map((fd, i) => [fd, tags[i], EPOLLOUT]),
  );
});

test('an edge is told once, a level as long as it lasts', (t) => {
  const epoll = new Epoll(8);
  owned(t, epoll.fd);
  const [edge, edgePeer] = ownedPair(t);
  const [level, levelPeer] = ownedPair(t);
  epoll.add(edge, EPOLLIN | EPOLLET, 1);
  epoll.add(level, EPOLLIN, 2);
  for (const peer of [edgePeer, levelPeer]) send(peer, new Memory(1), 0, 1);
  assert.equal(epoll.wait(0), 2);
  assert.deepEqual(seen(epoll, epoll.wait(0)), [[level, 2, EPOLLIN]]);
  recv(level, new Memory(1), 0, 1);
  assert.equal(epoll.wait(0), 0);
  epoll.modify(level, EPOLLIN | EPOLLOUT, 3);
  assert.deepEqual(seen(epoll, epoll.wait(0)), [[level, 3, EPOLLOUT]]);
  epoll.remove(level);
  assert.equal(epoll.wait(0), 0);
});
