import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadlines, type Loop, type Task } from '../../../src/engine/core/deadlines.ts';
import type { Port } from '../../../src/engine/core/port.ts';
import { type Guest, Waiter, WaitingRoom } from '../../../src/engine/core/waiting-room.ts';
import type { Backends } from '../../../src/model/data-plane.ts';
import { address } from '../../support/model.ts';

const CLIENT = address('192.0.2.1');

/** The room of a TCP Service port without endpoints, in a thread whose time stands still. */
function rig() {
  const deadlines = new Deadlines();
  const nowMs = 5_000;
  let next: Task[] = [];
  const loop: Partial<Loop> = {
    nowMs,
    start: (deadline, delayMs) => deadlines.after(delayMs).start(deadline, nowMs),
    inNextTurn: (task) => next.push(task),
  };
  const state = { hasEndpoint: false };
  const waiting: Backends['waiting'] = { forEndpointsMs: 60_000, whileFullMs: 0, max: 10_000 };
  const port = {
    protocol: 'TCP',
    waiting,
    count: () => {},
    countWaiting: () => {},
    causeOf: () => 'none',
    picker: { affine: () => undefined, peek: () => (state.hasEndpoint ? {} : undefined) },
    thread: { loop, nowMs, admission: { admitsWaiting: () => true, forget: () => {} } },
  };
  const room = new WaitingRoom(port as unknown as Port);
  const served: number[] = [];
  return {
    room,
    state,
    served,
    enter: (client: number) => {
      const serve = () => {
        served.push(client);
        room.leave(waiter);
      };
      const guest: Guest = { address: CLIENT, serve, refuse: () => {}, describe: () => undefined };
      const waiter = new Waiter(guest);
      assert.equal(room.enter(waiter, 'none'), undefined);
    },
    turn: () => {
      const tasks = next;
      next = [];
      for (const task of tasks) task.run();
    },
  };
}

test('the first is served in the turn after the first endpoint has come, all others in the next ones, in order', () => {
  const { room, state, served, enter, turn } = rig();
  const clients = Array.from({ length: 1_000 }, (_, client) => client);
  for (const client of clients) enter(client);
  room.updated();
  turn();
  turn();
  assert.deepEqual(served, [], 'there is no endpoint');
  state.hasEndpoint = true;
  room.updated();
  assert.deepEqual(served, [], 'an update serves nobody itself');
  turn();
  assert.deepEqual(served, clients.slice(0, 64));
  for (let left = Math.ceil(clients.length / 64) - 1; left > 0; left--) turn();
  assert.deepEqual(served, clients);
  assert.equal(room.isEmpty, true);
});
