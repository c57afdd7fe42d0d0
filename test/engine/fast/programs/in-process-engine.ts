import { readdirSync } from 'node:fs';
import { openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import { CounterMemory, PortCounters } from '../../../../src/engine/fast/port-counters.ts';
import { Engine } from '../../../../src/engine/fast/worker/engine.ts';
import { type Command, STATUS, STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { endProcess } from '../../../../src/kernel/process.ts';
import { descriptorLimit, eventfd, write } from '../../../../src/sys/descriptor.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { systemClock } from '../../../../src/util/system-clock.ts';
import { endpointAt, OPTIONS } from '../../../compliance/data-plane/harness.ts';
import { listenSpec } from '../../../support/listen-spec.ts';

/*
 * The engine of a worker without its thread, so that its heap can be measured from within. Argument: the backend's port.
 * Sends its own port, and what it holds whenever it is asked by any message.
 */
const counters = new PortCounters(new CounterMemory());
const socket = openListenSocket(listenSpec({ name: 'a/b', protocol: 'TCP', address: '127.0.0.1', port: 0 }));
const messages: Command[][] = [
  [
    {
      kind: 'open',
      question: 1,
      port: 1,
      protocol: 'TCP',
      fd: socket.fd,
      backends: counters.follow({
        endpoints: [endpointAt('127.0.0.1', Number(process.argv[2]))],
        affinity: { type: 'None' },
      }),
      counters: counters.shared,
    },
  ],
];

const status = new SharedArrayBuffer(STATUS_WORDS * 4);
new Int32Array(status)[STATUS.commands] = 1;
const wakeFd = eventfd();
const { loop } = new Engine(
  {
    index: 0,
    wakeFd,
    options: OPTIONS,
    descriptorCeiling: descriptorLimit(),
    owners: new SharedArrayBuffer(descriptorLimit()),
    status,
  },
  { clock: systemClock, random: Math.random, receive: () => messages.shift(), report: () => {} },
);
const one = new Memory(8);
one.bytes.writeBigUInt64LE(1n);
write(wakeFd, one, 8);

const run = (): void => {
  loop.turn(1);
  setImmediate(run);
};

process.on('message', () => {
  // Twice: what finalizers hold goes with the second.
  globalThis.gc?.();
  globalThis.gc?.();
  const { heapUsed, external, rss } = process.memoryUsage();
  process.send?.({
    active: counters.read().active,
    descriptors: readdirSync('/proc/self/fd').length,
    heapUsed,
    external,
    rss,
  });
});
process.on('disconnect', () => void endProcess(0));
process.send?.({ port: socket.localPort });
run();
