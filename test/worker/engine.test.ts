import assert from 'node:assert/strict';
import { openSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { openListenSocket } from '../../src/dataplane/fast/listen-socket.ts';
import { counterMemory, PortCounters } from '../../src/dataplane/fast/port-counters.ts';
import { systemClock } from '../../src/host/system-clock.ts';
import { close, eventfd, write } from '../../src/sys/descriptor.ts';
import { Memory } from '../../src/sys/memory.ts';
import { must } from '../../src/sys/sys-error.ts';
import { Engine } from '../../src/worker/engine.ts';
import { type Command, type Report, STATUS, STATUS_WORDS } from '../../src/worker/protocol.ts';
import { OPTIONS } from '../dataplane/fast/rig.ts';
import { listenSpec } from '../support/listen-spec.ts';

const one = new Memory(8);
one.bytes.writeBigUInt64LE(1n);

/** An engine that is turned by hand, and told what to do as the main thread would. */
function rig(t: TestContext) {
  const owners = new Uint8Array(new SharedArrayBuffer(4096));
  const status = new Int32Array(new SharedArrayBuffer(STATUS_WORDS * 4));
  const wakeFd = must('eventfd', eventfd());
  const messages: Command[][] = [];
  const reports: Report[] = [];
  const engine = new Engine(
    {
      index: 0,
      wakeFd,
      options: OPTIONS,
      descriptorCeiling: 4000,
      owners: owners.buffer as SharedArrayBuffer,
      status: status.buffer as SharedArrayBuffer,
    },
    {
      clock: systemClock,
      random: Math.random,
      receive: () => messages.shift(),
      report: (some) => reports.push(...some),
    },
  );
  t.after(() => {
    for (let fd = 0; fd < owners.length; fd++) if (owners[fd] === 1) close(fd);
    close(wakeFd);
  });
  const tell = (command: Command): void => {
    messages.push([command]);
    Atomics.add(status, STATUS.commands, 1);
    write(wakeFd, one, 8);
    engine.loop.turn(100);
  };
  const open = (port: number, fd: number): void => {
    const counters = new PortCounters(counterMemory());
    const backends = counters.follow({ endpoints: [], affinity: { type: 'None' } });
    tell({ kind: 'open', port, protocol: 'TCP', fd, backends, counters: counters.shared });
  };
  return { engine, owners, reports, open, tell };
}

test('a port is opened and given back, and both are reported', (t) => {
  const { owners, reports, open, tell } = rig(t);
  const { fd } = openListenSocket(listenSpec({ name: 'a/b', protocol: 'TCP', address: '127.0.0.1', port: 0 }));
  t.after(() => close(fd));
  open(1, fd);
  tell({ kind: 'close', port: 1 });
  assert.deepEqual(reports, [{ kind: 'ready' }, { kind: 'opened', port: 1 }, { kind: 'closed', port: 1 }]);
  assert.equal(owners[fd], 0, 'a lent descriptor is never the worker’s');
});

test('a descriptor that cannot be watched is reported as such, and the worker goes on', (t) => {
  const { reports, open } = rig(t);
  // epoll takes no regular files.
  const file = openSync(import.meta.filename, 'r');
  t.after(() => close(file));
  open(1, file);
  assert.deepEqual(reports.slice(1), [{ kind: 'opened', port: 1, err: 'epoll_ctl: EPERM (operation not permitted)' }]);
  const { fd } = openListenSocket(listenSpec({ name: 'a/b', protocol: 'TCP', address: '127.0.0.1', port: 0 }));
  t.after(() => close(fd));
  open(2, fd);
  assert.deepEqual(reports.at(-1), { kind: 'opened', port: 2 });
});

test('commands for ports that are not open are answered all the same', (t) => {
  const { reports, tell } = rig(t);
  tell({ kind: 'close', port: 9 });
  const counters = new PortCounters(counterMemory());
  tell({ kind: 'update', port: 9, backends: counters.follow({ endpoints: [], affinity: { type: 'None' } }) });
  assert.deepEqual(reports.slice(1), [{ kind: 'closed', port: 9 }]);
});

test('after a shutdown no descriptor is left but those lent to it', (t) => {
  const { engine, owners, open, tell } = rig(t);
  const { fd } = openListenSocket(listenSpec({ name: 'a/b', protocol: 'TCP', address: '127.0.0.1', port: 0 }));
  t.after(() => close(fd));
  open(1, fd);
  tell({ kind: 'shutdown' });
  assert.equal(engine.isStopping, true);
  engine.shutdown();
  assert.equal(owners.indexOf(1), -1);
});
