import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  congestionControlOf,
  congestionControlProblem,
  congestionOption,
  defaultCongestionControl,
} from '../../src/sys/congestion-control.ts';
import { AF_INET, SOCK_DGRAM, SOCK_STREAM, setOption, socket } from '../../src/sys/socket.ts';
import { otherCongestionControl } from '../support/congestion.ts';
import { owned } from './descriptors.ts';

test("a socket has the node's until it is told another", (t) => {
  const fd = owned(t, socket(AF_INET, SOCK_STREAM));
  assert.equal(congestionControlOf(fd), defaultCongestionControl());
  assert.equal(setOption(fd, congestionOption(otherCongestionControl())), 0);
  assert.equal(congestionControlOf(fd), otherCongestionControl());
  assert.equal(congestionControlOf(owned(t, socket(AF_INET, SOCK_DGRAM))), undefined);
});

test('the kernel is asked whether it has one', () => {
  assert.equal(congestionControlProblem(otherCongestionControl()), undefined);
  assert.equal(congestionControlProblem('no-such-one'), 'this kernel has no congestion control "no-such-one"');
});
