import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDead, NEVER, unansweredSinceMs } from '../../src/engine/dead-peer.ts';
import type { PeerState } from '../../src/sys/socket.ts';

const TIMEOUT_MS = 30_000;

/** What looks at these times find: at which the peer counts as dead, if at all. */
function diesAt(looks: readonly (Omit<PeerState, 'hasEnded'> & { readonly at: number })[]): number | undefined {
  let sinceMs = NEVER;
  return looks.find(({ at, ...found }) => {
    const state = { hasEnded: false, ...found };
    sinceMs = unansweredSinceMs(state, sinceMs, at);
    return isDead(state, at - sinceMs, TIMEOUT_MS);
  })?.at;
}

test('a peer that answers nothing is dead after the timeout, however long it had nothing to answer before', () => {
  const looks = [1, 2, 3, 4, 5, 6].map((n) => ({ at: n * 10_000, unanswered: 2 + n, silentMs: 600_000 + n * 10_000 }));
  assert.equal(diesAt(looks), 40_000);
});

test('an acknowledgement in between restarts the timeout', () => {
  const looks = [
    { at: 10_000, unanswered: 3, silentMs: 10_000 },
    { at: 30_000, unanswered: 3, silentMs: 5_000 },
    { at: 50_000, unanswered: 4, silentMs: 25_000 },
    { at: 55_000, unanswered: 5, silentMs: 30_000 },
  ];
  assert.equal(diesAt(looks), 55_000);
});

test('a lost answer or two do not count: the probes of a window that has long been closed are two minutes apart', () => {
  const looks = Array.from({ length: 30 }, (_, n) => ({
    at: n * 8_000,
    unanswered: 1 + (n >> 4),
    silentMs: n * 8_000,
  }));
  assert.equal(diesAt(looks), undefined);
});
