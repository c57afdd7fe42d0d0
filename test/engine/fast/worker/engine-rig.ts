import type { TestContext } from 'node:test';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { createShares, shareTable } from '../../../../src/engine/core/shares.ts';
import { openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import { CounterMemory, PortCounters } from '../../../../src/engine/fast/port-counters.ts';
import { Engine } from '../../../../src/engine/fast/worker/engine.ts';
import type { Passed } from '../../../../src/engine/fast/worker/link.ts';
import {
  type Command,
  type Report,
  type Spread,
  STATUS,
  STATUS_WORDS,
} from '../../../../src/engine/fast/worker/protocol.ts';
import type { FlowRecord } from '../../../../src/engine/fast/worker/records.ts';
import { descriptorLimit } from '../../../../src/kernel/descriptor-limit.ts';
import type { KeptAddresses } from '../../../../src/model/client-address.ts';
import type { DataPlaneOptions } from '../../../../src/model/data-plane.ts';
import type { NamedEndpoint } from '../../../../src/model/endpoint.ts';
import type { ProxiedProtocol } from '../../../../src/model/service-port.ts';
import { close, eventfd, signal } from '../../../../src/sys/descriptor.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import type { Clock } from '../../../../src/util/clock.ts';
import { systemClock } from '../../../../src/util/system-clock.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { OPTIONS } from '../rig.ts';

interface PortSetup {
  readonly protocol?: ProxiedProtocol;
  /** Of its listener. */
  readonly address?: string;
  readonly keptAddresses?: KeptAddresses;
  readonly endpoints?: readonly NamedEndpoint[];
  readonly flows?: readonly FlowRecord[];
}

/** An engine that takes its turns and commands from the test. `t`: what cleans up. `limit`: of descriptors. */
export function engineRig(
  t: Pick<TestContext, 'after'>,
  options: Partial<DataPlaneOptions> = {},
  {
    clock = systemClock,
    limit = 1 << 20,
    spread = 'when-busy',
  }: { readonly clock?: Clock; readonly limit?: number; readonly spread?: Spread } = {},
) {
  const owners = new Uint8Array(new SharedArrayBuffer(descriptorLimit() ?? 1 << 20));
  const status = new Int32Array(new SharedArrayBuffer(2 * STATUS_WORDS * 4), 0, STATUS_WORDS);
  const taken = shareTable(2);
  /** What other threads have. */
  const { descriptors } = createShares({ taken, row: 1, descriptorLimit: limit, options: OPTIONS });
  const [wakeFd, otherFd] = [must('eventfd', eventfd()), must('eventfd', eventfd())];
  const messages: (readonly Command[])[] = [];
  const reports: Report[] = [];
  /** Each runs when the worker looks for a message, and has taken it if there was one. */
  const meanwhile: (() => void)[] = [];
  const engine = new Engine(
    {
      index: 0,
      // The other worker is the test, which looks by itself.
      wakeFds: [wakeFd, otherFd],
      spread,
      options: { ...OPTIONS, ...options },
      taken,
      descriptorLimit: limit,
      owners: owners.buffer as SharedArrayBuffer,
      status: status.buffer as SharedArrayBuffer,
    },
    {
      clock,
      random: Math.random,
      receive: () => {
        const message = messages.shift();
        meanwhile.shift()?.();
        return message;
      },
      // As messages of a thread.
      report: (some, given = []) => reports.push(...structuredClone(some, { transfer: [...given] })),
    },
  );
  t.after(() => {
    for (let fd = 0; fd < owners.length; fd++) if (owners[fd] === 1) close(fd);
    close(wakeFd);
    close(otherFd);
  });
  const ofNamespace = shareTable(1);
  /** In one message, which the engine finds when it next looks for one. */
  const post = (...commands: readonly Command[]): void => {
    messages.push(commands);
    Atomics.add(status, STATUS.commands, 1);
    signal(wakeFd);
  };
  const command = (...commands: readonly Command[]): void => {
    post(...commands);
    engine.turn(100);
  };
  const open = (
    port: number,
    fd: number,
    { protocol = 'TCP', endpoints = [], flows, keptAddresses }: PortSetup = {},
  ): PortCounters => {
    const counters = new PortCounters(new CounterMemory());
    const backends = counters.follow({
      endpoints,
      affinity: { type: 'None' },
      ...(keptAddresses && { keptAddresses }),
    });
    command(
      {
        kind: 'open',
        question: 0,
        port,
        name: `a/${port}`,
        protocol,
        fd,
        backends,
        counters: counters.shared,
        taken: ofNamespace,
      },
      ...(flows ? [{ kind: 'adopt', question: 0, records: flows } as const] : []),
    );
    return counters;
  };
  /** Opens a Service port with a listening socket of its own. */
  const listen = (setup: PortSetup = {}, port = 1) => {
    const { protocol = 'TCP', address = '127.0.0.1' } = setup;
    const spec = { name: `a/${port}`, protocol, address, port: 0 } as const;
    const { fd, localPort } = openListenSocket(listenSpec(spec));
    t.after(() => close(fd));
    return { fd, localPort, counters: open(port, fd, setup) };
  };
  /** The way to another worker, the home of this Service port. `fd`: its listener, of a UDP port. */
  const home = (port: number, fd = -1) => {
    const { port1, port2 } = new MessageChannel();
    t.after(() => port2.close());
    const counters = new PortCounters(new CounterMemory());
    const backends = counters.follow({ endpoints: [], affinity: { type: 'None' } });
    const named = { port, name: `a/${port}`, protocol: fd < 0 ? 'TCP' : 'UDP' } as const;
    command(
      { kind: 'carry', question: 0, ...named, backends, counters: counters.shared, taken: ofNamespace, home: 1, fd },
      { kind: 'link', worker: 1, channel: port1 },
    );
    const tell = (message: Passed) => {
      port2.postMessage([message]);
      signal(wakeFd);
    };
    const told = () => receiveMessageOnPort(port2)?.message as readonly Passed[] | undefined;
    return { counters, tell, told };
  };
  /** The descriptors of its connections, flows, pipes and parked sockets. */
  const takenDescriptors = () => new Int32Array(taken)[0];
  return {
    engine,
    owners,
    status,
    descriptors,
    takenDescriptors,
    reports,
    meanwhile,
    open,
    listen,
    home,
    post,
    command,
  };
}
