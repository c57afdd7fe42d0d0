import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import type { ServicePortName } from '../../../model/service.ts';
import { KnownClients } from '../../../services/known-clients.ts';
import type { Candidates } from '../../../services/picker.ts';
import { read } from '../../../sys/descriptor.ts';
import { EPOLLIN } from '../../../sys/epoll.ts';
import { Memory } from '../../../sys/memory.ts';
import { must, SysError } from '../../../sys/sys-error.ts';
import type { Clock } from '../../../util/clock.ts';
import { stackOf } from '../../../util/text.ts';
import { TokenBucket } from '../../../util/token-bucket.ts';
import type { Shown } from '../../core/port.ts';
import { shareTable } from '../../core/shares.ts';
import { Carrier } from './carrier.ts';
import type { EventLoop, Handler } from './event-loop.ts';
import type { RemoteHome } from './link.ts';
import type { Listener } from './listener.ts';
import type { Carrying } from './peers.ts';
import { Port } from './port.ts';
import {
  COUNTERS_BYTES,
  type Command,
  type CountedBackends,
  type FrozenWorker,
  type ListedPage,
  type ListId,
  LONGEST_TURN_MS,
  NO_PORT,
  type Outcome,
  type PortId,
  type Question,
  type QuestionId,
  type Questions,
  type Report,
  STATUS,
  type WorkerSetup,
} from './protocol.ts';
import type { DiallingRecord, EstablishedRecord, FlowRecord, LiveRecord, SideRecord } from './records.ts';
import { isSession } from './session.ts';
import type { Target } from './target.ts';
import { TcpConnection } from './tcp-connection.ts';
import { TcpListener } from './tcp-listener.ts';
import { UdpCarrier } from './udp-carrier.ts';
import { FlowClient } from './udp-flows.ts';
import { UdpListener } from './udp-listener.ts';
import { WorkerContext, type WorkerEffects } from './worker-context.ts';

/** A page takes about 0.2 ms: more than a microsecond per connection. */
const CONNECTIONS_PER_PAGE = 128;

/** Those of slow readers may have 64 KiB a side. */
const RECORDS_PER_PIECE = 256;

/** More than so many exceptions are no fault of single connections: the worker ends, and another takes its place. */
const FAULT_RATE = { burst: 4, ratePerSecond: 4 };

/** Of a Service port that was closed before. */
const UNKNOWN: ServicePortName = '/';

/**
 * Makes the calling thread a worker, until a command ends it.
 *
 * The thread waits in its own epoll and not in Node's loop, so a command is a message and a write to an eventfd in that
 * epoll. Once a second it lets Node's loop run: V8 leaves tasks of its own there, and an exiting process waits for its
 * threads to run it.
 */
export function runWorker(clock: Clock): void {
  if (parentPort === null) throw new Error('a worker runs in a worker thread');
  const port = parentPort;
  const engine = new Engine(workerData, {
    clock,
    random: Math.random,
    receive: () => receiveMessageOnPort(port)?.message,
    report: (reports, given = []) => port.postMessage(reports, given),
  });
  const { loop } = engine;
  const run = (): void => {
    const beganMs = loop.nowMs;
    while (!engine.isStopping && loop.nowMs - beganMs < LONGEST_TURN_MS) engine.turn(LONGEST_TURN_MS);
    if (engine.isStopping) engine.shutdown();
    else setImmediate(run);
  };
  run();
}

/** A worker apart from its thread: it obeys the main thread's commands and turns the loop. */
export class Engine implements Handler {
  readonly loop: EventLoop;
  isStopping = false;
  #progress: 'running' | 'freezing' | 'frozen' | 'released' = 'running';
  /** Answered when it is frozen. */
  #frozenFor: QuestionId = 0;
  readonly #context: WorkerContext;
  readonly #effects: WorkerEffects;
  readonly #listeners = new Map<PortId, Listener>();
  /** Service ports of which other workers are the home. */
  readonly #carriers = new Map<PortId, Carrier>();
  readonly #closedPorts = new Map<ServicePortName, Port>();
  /** Questions for a page of connections: one is answered per turn. */
  readonly #pages: Question<'list'>[] = [];
  /** Of the lists that go on: what comes next. */
  readonly #lists = new Map<ListId, Iterator<Shown>>();
  /** While frozen: what has not been given yet. */
  #left: Iterator<LiveRecord> | undefined;
  readonly #faults: TokenBucket;
  readonly #wakeFd: number;
  readonly #wakeups = new Memory(8);
  #messagesSeen = 0;
  #isObeying = false;
  /** Sent when all commands that have arrived are obeyed. */
  #answers: Report[] = [];

  /** Throws a SysError when there is no descriptor for it. */
  constructor(setup: WorkerSetup, effects: WorkerEffects) {
    this.#effects = effects;
    this.#wakeFd = setup.wakeFds[setup.index] as number;
    this.#context = new WorkerContext(
      setup,
      effects,
      () => this.#catchUp(),
      this.#carrying(),
      (err, thrower) => this.#endFaulty(err, thrower),
    );
    this.#faults = new TokenBucket({ clock: effects.clock, ...FAULT_RATE });
    this.loop = this.#context.loop;
    must('epoll_ctl', this.loop.watch(this.#wakeFd, EPOLLIN, this));
    this.#context.report({ kind: 'ready' });
  }

  onEvents(): void {
    // First, so that a command that comes from now on wakes again.
    read(this.#wakeFd, this.#wakeups, 0, 8);
    const { peers } = this.#context;
    // Before the commands: a home hears of a change last, so they tell of what it knew of those whom it passes on.
    peers.receive();
    this.#catchUp();
    peers.handle();
  }

  onShutdown(): void {
    this.loop.unwatch(this.#wakeFd);
  }

  /** Waits, at most `maxWaitMs`, and handles all that is due; only commands while frozen. */
  turn(maxWaitMs: number): void {
    if (this.#progress === 'frozen') {
      if (this.loop.standStill(this.#wakeFd, maxWaitMs)) this.onEvents();
      return;
    }
    this.loop.turn(maxWaitMs);
    // Not earlier: the command may have come in the middle of an accept.
    if (this.#progress === 'freezing') this.#freeze();
  }

  /** Resets every connection and ends every flow, unless another process has them. Lent descriptors stay open. */
  shutdown(): void {
    if (this.#progress === 'released') return;
    this.loop.shutdown();
    this.#context.admission.makeRoom();
    this.#context.connectionLog.flush();
  }

  /** One connection's fault must not end all the others. */
  #endFaulty(err: unknown, thrower: object): void {
    if (!isSession(thrower) || !this.#faults.tryTake(this.loop.nowMs)) throw err;
    this.#context.report({ kind: 'fault', err: stackOf(err) });
    thrower.cut('proxy-error');
  }

  #catchUp(): void {
    // A closing port accepts its last clients, which calls this again. Obeying the next message before the rest of this
    // one would let the older of two updates win.
    if (this.#isObeying) return;
    const sent = Atomics.load(this.#context.status, STATUS.commands);
    if (sent === this.#messagesSeen) return;
    this.#messagesSeen = sent;
    this.#isObeying = true;
    for (let commands = this.#effects.receive(); commands !== undefined; commands = this.#effects.receive()) {
      for (const command of commands) this.#obey(command);
    }
    this.#isObeying = false;
    if (this.#answers.length === 0) return;
    this.#effects.report(this.#answers);
    this.#answers = [];
  }

  #obey(command: Command): void {
    switch (command.kind) {
      case 'open':
        this.#try(command, () => this.#open(command));
        break;
      case 'update':
        (this.#listeners.get(command.port) ?? this.#carriers.get(command.port))?.update(command.backends);
        break;
      case 'know-clients':
        this.#context.clients = new KnownClients(command.facts);
        break;
      case 'close':
        this.#close(command);
        break;
      case 'carriers':
        this.#setCarriers(command);
        break;
      case 'carry':
        this.#try(command, () => this.#beCarrier(command));
        break;
      case 'uncarry':
        // What the home has passed on before comes first.
        this.#context.peers.receive();
        this.#context.peers.handle();
        this.#carriers.get(command.port)?.close();
        this.#carriers.delete(command.port);
        this.#answer(command, {});
        break;
      case 'link':
        this.#context.peers.link(command.worker, command.channel);
        break;
      case 'unlink':
        this.#context.peers.unlink(command.worker);
        this.#answer(command, {});
        break;
      case 'hold':
        this.#context.peers.hold();
        this.#answer(command, {});
        break;
      case 'adopt':
        this.#try(command, () => this.#adopt(command));
        break;
      case 'peek': {
        const port = this.#listeners.get(command.port)?.port;
        this.#answer(command, { endpoint: port?.picker.peek(command.client, this.loop.nowMs)?.endpoint });
        break;
      }
      case 'list':
        if (this.#pages.push(command) === 1) this.loop.inNextTurn({ run: () => this.#listOne() });
        break;
      case 'unlist':
        this.#lists.delete(command.list);
        break;
      case 'turn':
        this.loop.inNextTurn({ run: () => this.#answerLate(command, {}) });
        break;
      case 'freeze':
        this.#frozenFor = command.question;
        if (this.#progress === 'frozen') this.#freeze();
        else this.#progress = 'freezing';
        break;
      case 'give':
        this.#give(command);
        break;
      case 'thaw':
        this.#left = undefined;
        this.#progress = 'running';
        this.#context.peers.resume();
        break;
      case 'release':
        this.#progress = 'released';
        this.isStopping = true;
        break;
      case 'shutdown':
        this.isStopping = true;
    }
  }

  #answer<Kind extends keyof Questions>({ question }: Question<Kind>, answer: Questions[Kind]['gets']): void {
    this.#answers.push({ kind: 'answer', question, answer });
  }

  /** Answers with a reason when a system call fails. */
  #try(command: Question<'open' | 'adopt' | 'carry'>, attempt: () => void): void {
    let outcome: Outcome = {};
    try {
      attempt();
    } catch (err) {
      if (!(err instanceof SysError)) throw err;
      outcome = { err: err.message };
    }
    this.#answer(command, outcome);
  }

  /** Not from within a command. */
  #answerLate<Kind extends keyof Questions>({ question }: Question<Kind>, answer: Questions[Kind]['gets']): void {
    this.#context.report({ kind: 'answer', question, answer });
  }

  #open({ port: id, name, backends, counters, taken, protocol, fd, picker }: Question<'open'>): void {
    const port = new Port({ id, name, protocol, worker: this.#context, backends, counters, taken });
    this.#listeners.set(id, protocol === 'TCP' ? new TcpListener(port, fd) : new UdpListener(port, fd));
    if (picker !== undefined) port.restorePicker(picker);
  }

  #beCarrier({ port: id, name, backends, counters, taken, protocol, home, fd }: Question<'carry'>): void {
    const port = new Port({ id, name, protocol, worker: this.#context, backends, counters, taken, isHome: false });
    this.#carriers.set(id, protocol === 'UDP' ? new UdpCarrier(port, { fd, home }) : new Carrier(port));
  }

  #setCarriers({ port: id, workers }: Extract<Command, { readonly kind: 'carriers' }>): void {
    const port = this.#listeners.get(id)?.port;
    if (port !== undefined) port.carriers = workers;
  }

  /** What other workers pass on. */
  #carrying(): Carrying {
    return {
      carryClient: ({ record, endpoint, terms }, home) => {
        // A thread that began while the home was closing the port has never had it.
        const port = this.#carriers.get(record.port)?.port ?? this.#closed(UNKNOWN);
        const candidates = onlyOne(port.targetOf(endpoint));
        new TcpConnection(port, record.fd, record.client, { home, terms }).dialAgain(record, { candidates });
      },
      carry: (record, home) => {
        if (record.kind === 'flow') this.#carryFlow(record, home);
        else this.#carry(record, home);
      },
      stay: () => {
        for (const port of this.#context.busyPorts) {
          for (const session of port.sessions) if (session.hasLostHome) session.stay();
        }
      },
      bring: (record) => {
        const listener = this.#listeners.get(record.port);
        if (listener instanceof UdpListener) listener.bring(FlowClient.of(record), record.datagrams);
      },
    };
  }

  #carryFlow(record: FlowRecord, home: RemoteHome): void {
    const carrier = this.#carriers.get(record.port);
    if (!(carrier instanceof UdpCarrier)) {
      // The port has been closed meanwhile.
      for (const fd of [record.fd, record.ownFd ?? -1]) if (fd >= 0) this.loop.close(fd);
      home.over({ kind: 'ended' });
      return;
    }
    try {
      carrier.carry(record, home);
    } catch (err) {
      if (!(err instanceof SysError)) throw err;
      // Such as the kernel's limit of watches.
      carrier.port.listenerFailed(err.message);
    }
  }

  #carry(record: EstablishedRecord, home: RemoteHome): void {
    const port = this.#carriers.get(record.port)?.port ?? this.#closed(UNKNOWN);
    const connection = new TcpConnection(port, record.sides[0].fd, record.client, { home });
    try {
      connection.resume(record, port.targetOf(record.endpoint));
    } catch (err) {
      if (!(err instanceof SysError)) throw err;
      // Such as the kernel's limit of watches.
      port.listenerFailed(err.message);
      connection.cut('proxy-error');
    }
  }

  #close(command: Question<'close'>): void {
    const listener = this.#listeners.get(command.port);
    this.#listeners.delete(command.port);
    listener?.port.forgetClients();
    const { peers } = this.#context;
    const closed = () => {
      peers.flush();
      this.#answerLate(command, {});
    };
    if (!(listener?.close(closed) ?? true)) return;
    // Carriers close the port after the answer, and must have all clients by then.
    peers.flush();
    this.#answer(command, {});
  }

  #adopt({ records }: Question<'adopt'>): void {
    for (const record of records) {
      const listener = this.#listeners.get(record.port);
      const port = listener?.port ?? this.#closed(record.closedPort ?? UNKNOWN);
      if (record.kind === 'dialling') {
        this.#redial(port, record);
        continue;
      }
      if (record.kind === 'waiting') {
        if (listener instanceof UdpListener) listener.resumeWaiting(record);
        continue;
      }
      const target = port.targetOf(record.endpoint);
      if (record.kind === 'established') {
        new TcpConnection(port, record.sides[0].fd, record.client).resume(record, target);
      } else if (listener instanceof UdpListener) listener.resume(record, target);
    }
  }

  /** Another process was still dialling. */
  #redial(port: Port, known: DiallingRecord): void {
    const { fd, client } = known;
    this.loop.own(fd);
    const connection = new TcpConnection(port, fd, client);
    // Not while frozen.
    this.loop.inNextTurn({
      run: () => {
        if (known.waiting !== undefined) {
          connection.waitAgain(known, known.waiting);
          return;
        }
        const candidates = port.picker.pick(client.address, this.loop.nowMs);
        // An answer to that dial may come late.
        connection.dialAgain(known, { candidates, needsNewPort: true });
      },
    });
  }

  /** Stands for ports that were closed before: nobody knows which endpoints they had. */
  #closed(name: ServicePortName): Port {
    const known = this.#closedPorts.get(name);
    if (known !== undefined) return known;
    const counters = { memory: new SharedArrayBuffer(COUNTERS_BYTES), offset: 0 };
    const backends: CountedBackends = { endpoints: [], affinity: { type: 'None' }, counters: new Map() };
    const closed = { id: NO_PORT, name, protocol: 'TCP', worker: this.#context, isClosed: true } as const;
    const taken = shareTable(this.#context.index + 1);
    const port = new Port({ ...closed, backends, counters, taken, isHome: false });
    this.#closedPorts.set(name, port);
    return port;
  }

  /** One page in a turn, however many were asked for: the events of the turn come first. */
  #listOne(): void {
    const command = this.#pages.shift();
    if (command !== undefined) this.#answerLate(command, this.#page(command));
    if (this.#pages.length > 0) this.loop.inNextTurn({ run: () => this.#listOne() });
  }

  /** Between two pages connections may come and go. */
  #page({ port: id, list }: Question<'list'>): ListedPage {
    const connections: ListedPage['connections'][number][] = [];
    const port = (this.#listeners.get(id) ?? this.#carriers.get(id))?.port;
    const shown = this.#lists.get(list) ?? port?.shown() ?? [].values();
    this.#lists.set(list, shown);
    while (connections.length < CONNECTIONS_PER_PAGE) {
      const next = shown.next();
      if (next.done) {
        this.#lists.delete(list);
        return { connections, hasMore: false };
      }
      const connection = next.value.describe();
      if (connection !== undefined) connections.push(connection);
    }
    return { connections, hasMore: true };
  }

  #freeze(): void {
    this.#progress = 'frozen';
    this.#context.connectionLog.flush();
    // Another process has no use for them.
    this.#context.admission.makeRoom();
    this.#left = this.#sessionRecords();
    const records = this.#context.peers.underWay();
    const pickers: FrozenWorker['pickers'][number][] = [];
    for (const [id, { port }] of this.#listeners) {
      const picker = port.pickerRecord();
      if (picker !== undefined) pickers.push([id, picker]);
    }
    this.#effects.report([{ kind: 'answer', question: this.#frozenFor, answer: { pickers, records } }]);
  }

  *#sessionRecords(): Generator<LiveRecord, undefined> {
    for (const { sessions } of this.#context.busyPorts) {
      for (const session of sessions) {
        if (!isSession(session)) continue;
        const { id, name } = session.port;
        const isOpen = this.#listeners.has(id) || this.#carriers.has(id);
        yield isOpen ? session.record() : { ...session.record(), closedPort: name };
      }
    }
    for (const listener of this.#listeners.values()) if (listener instanceof UdpListener) yield* listener.waiting();
  }

  /** In pieces, because slow readers may have left hundreds of megabytes. */
  #give({ question }: Question<'give'>): void {
    const records: LiveRecord[] = [];
    while (records.length < RECORDS_PER_PIECE) {
      const next = this.#left?.next();
      if (next === undefined || next.done) break;
      records.push(next.value);
    }
    const given = records.flatMap((record) => (record.kind === 'established' ? record.sides.flatMap(restOf) : []));
    this.#effects.report([{ kind: 'answer', question, answer: { records } }], given);
  }
}

/** The home has picked it, and asks the next one itself. */
function onlyOne(target: Target): Candidates<Target> {
  const left = [target];
  return { next: () => left.pop() };
}

/** The record's own copy. */
function restOf({ rest }: SideRecord): readonly ArrayBuffer[] {
  return rest === undefined ? [] : [rest.buffer as ArrayBuffer];
}
