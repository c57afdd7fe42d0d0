import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { DialFailure } from '../../../model/data-plane.ts';
import type { NamedEndpoint } from '../../../model/endpoint.ts';
import type { ProxyProtocol } from '../../../model/service.ts';
import { signal } from '../../../sys/descriptor.ts';
import { Deadline } from '../../core/deadlines.ts';
import type { Home } from '../../core/session.ts';
import type { EventLoop, Task } from './event-loop.ts';
import type { DiallingRecord, EstablishedRecord, FlowRecord, LiveRecord, WaitingRecord } from './records.ts';

/** Numbers a connection that is passed on; never used again on the same link. */
type PassId = number;

/**
 * What two workers tell each other of a connection that the home of its Service port has passed on to a carrier. The
 * descriptors of a record belong to whom it is sent to.
 */
export type Passed =
  /** To the carrier: dial for the client. */
  | ({ readonly kind: 'dial'; readonly id: PassId } & Dial)
  /** To the carrier: go on with it. */
  | { readonly kind: 'carry'; readonly id: PassId; readonly record: EstablishedRecord | FlowRecord }
  /** To the home: the endpoint has answered a dial or a flow. */
  | { readonly kind: 'answered'; readonly id: PassId }
  /** To the home: the carrier has it no longer. */
  | { readonly kind: 'over'; readonly id: PassId; readonly over: Over }
  /** To the home: these came to a flow that has ended, or gets no more. They begin the client's next flow. */
  | { readonly kind: 'datagrams'; readonly record: WaitingRecord };

/** How a carrier's part in a connection or flow ends. */
export type Over =
  | { readonly kind: 'ended' }
  /** The endpoint has failed: the client is the home's again. */
  | { readonly kind: 'failed'; readonly record: DiallingRecord; readonly reason: DialFailure }
  /** The flow has ended: its endpoint has failed. */
  | { readonly kind: 'flow-failed'; readonly reason: DialFailure };

export interface Dial {
  readonly record: DiallingRecord;
  readonly endpoint: NamedEndpoint;
  readonly terms: DialTerms;
}

/** What the home knows of the Service and its client. A carrier may hear of a change later than of the client. */
export interface DialTerms {
  readonly proxyProtocol: ProxyProtocol | undefined;
  /** Endpoints see its address. */
  readonly isSeen: boolean;
}

/** What the home remembers of a connection or flow that another worker carries. */
export interface PassedOn {
  onAnswered(): void;
  /** Called once. The other worker may have died with it. */
  onOver(over: Over): void;
}

interface LinkSetup {
  readonly worker: number;
  readonly channel: MessagePort;
  readonly loop: EventLoop;
  /** Wakes the other worker. */
  readonly wakeFd: number;
}

/** How long a message may wait that nobody waits for. */
const NOTICE_MS = 5;

/**
 * The way to one other worker, until its thread ends. Messages of one turn go together. Mere notices wait some
 * milliseconds for others, because waking the other worker costs more than the rest.
 */
export class Link implements Task {
  readonly #deadline = new Deadline(this);
  readonly worker: number;
  /** Connections that the other one carries for this one. */
  readonly #passedOn = new Map<PassId, PassedOn>();
  isClosed = false;
  /** Nothing is sent for now. */
  isHeld = false;
  readonly #setup: LinkSetup;
  #outbox: Passed[] = [];
  #isDue = false;
  #lastId: PassId = 0;

  constructor(setup: LinkSetup) {
    this.worker = setup.worker;
    this.#setup = setup;
  }

  /** The other worker dials. */
  dial(passed: PassedOn, { record, endpoint, terms }: Dial): void {
    this.send({ kind: 'dial', id: this.#pass(passed), record, endpoint, terms });
  }

  /** The other worker goes on with it. */
  carry(passed: PassedOn, record: EstablishedRecord | FlowRecord): void {
    this.send({ kind: 'carry', id: this.#pass(passed), record });
  }

  answered(id: PassId): void {
    this.#passedOn.get(id)?.onAnswered();
  }

  over(message: Extract<Passed, { readonly kind: 'over' }>): void {
    const passed = this.#passedOn.get(message.id);
    this.#passedOn.delete(message.id);
    if (passed !== undefined) passed.onOver(message.over);
    // Its way has been cut, and with it what was known of it.
    else for (const fd of descriptorsIn(message)) this.#setup.loop.reset(fd);
  }

  /** Lost when the link is closed: then nobody waits for it. */
  send(message: Passed): void {
    if (this.isClosed) return;
    const { loop } = this.#setup;
    const isFirst = this.#outbox.push(message) === 1;
    if (!isNotice(message) && !this.#isDue) {
      this.#isDue = true;
      loop.atEndOfTurn(this);
    } else if (isFirst) {
      loop.chores.after(NOTICE_MS).start(this.#deadline, loop.nowMs);
    }
  }

  onDue(): void {
    this.run();
  }

  run(): void {
    this.#isDue = false;
    if (this.#outbox.length === 0 || this.isClosed || this.isHeld) return;
    const { channel, loop, wakeFd } = this.#setup;
    // Not before: if this thread dies, what it has not sent is its own.
    for (const fd of this.#outbox.flatMap(descriptorsIn)) loop.give(fd, this.worker);
    channel.postMessage(this.#outbox);
    this.#outbox = [];
    signal(wakeFd);
  }

  get unsent(): readonly Passed[] {
    return this.#outbox;
  }

  *received(): Iterable<Passed> {
    const { channel } = this.#setup;
    for (let some = receiveMessageOnPort(channel); some !== undefined; some = receiveMessageOnPort(channel)) {
      yield* some.message as readonly Passed[];
    }
  }

  /** What was not sent is reset, and what was passed on is over. */
  close(): void {
    this.isClosed = true;
    this.#deadline.cancel();
    const { channel, loop } = this.#setup;
    for (const fd of this.#outbox.flatMap(descriptorsIn)) loop.reset(fd);
    this.#outbox = [];
    channel.close();
    const lost = [...this.#passedOn.values()];
    this.#passedOn.clear();
    for (const passed of lost) passed.onOver({ kind: 'ended' });
  }

  #pass(passed: PassedOn): PassId {
    const id = ++this.#lastId;
    this.#passedOn.set(id, passed);
    return id;
  }
}

/** Those that a message takes along. */
function descriptorsIn(message: Passed): readonly number[] {
  const record = recordIn(message);
  if (record === undefined || record.kind === 'waiting') return [];
  if (record.kind === 'flow') return record.ownFd === undefined ? [record.fd] : [record.fd, record.ownFd];
  if (record.kind === 'dialling') return [record.fd];
  return record.sides.flatMap(({ fd, piped }) => (piped === undefined ? fd : [fd, piped.readEnd, piped.writeEnd]));
}

/** What a message carries, if it carries something. */
export function recordIn(message: Passed): LiveRecord | undefined {
  const part = message.kind === 'over' ? message.over : message;
  return 'record' in part ? part.record : undefined;
}

function isNotice(message: Passed): boolean {
  return message.kind === 'answered' || (message.kind === 'over' && message.over.kind === 'ended');
}

/** The home of a session that this worker carries: what becomes of it is told there. */
export class RemoteHome implements Home {
  readonly #link: Link;
  readonly #id: PassId;

  constructor(link: Link, id: PassId) {
    this.#link = link;
    this.#id = id;
  }

  answered(): void {
    this.#link.send({ kind: 'answered', id: this.#id });
  }

  ended(): void {
    this.over({ kind: 'ended' });
  }

  over(over: Over): void {
    this.#link.send({ kind: 'over', id: this.#id, over });
  }

  get isThere(): boolean {
    return !this.#link.isClosed;
  }
}
