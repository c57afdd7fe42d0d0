import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { DialFailure } from '../../../model/data-plane.ts';
import type { NamedEndpoint } from '../../../model/endpoint.ts';
import type { ProxyProtocol } from '../../../model/service.ts';
import { signal } from '../../../sys/descriptor.ts';
import { Deadline } from '../../core/deadlines.ts';
import type { Errand as CoreErrand } from '../../core/session.ts';
import type { EventLoop, Task } from './event-loop.ts';
import type { DiallingRecord, EstablishedRecord, FlowRecord, LiveRecord, PortId } from './records.ts';

/** Numbers a connection that is passed on; never used again on the same link. */
export type PassId = number;

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
  /** To the home: this client's datagrams come to the sender. The answer is `carry` or `refused`. */
  | { readonly kind: 'want'; readonly client: FlowClient }
  /** To the carrier: this client gets no flow. */
  | { readonly kind: 'refused'; readonly client: FlowClient }
  /** To the carrier: this client's datagrams come to another worker. The answer is `flow-back`, if it carries it. */
  | { readonly kind: 'recall'; readonly id: PassId; readonly client: FlowClient };

/** How a carrier's part in a connection or flow ends. */
export type Over =
  | { readonly kind: 'ended' }
  /** The endpoint has failed: the client is the home's again. */
  | { readonly kind: 'failed'; readonly record: DiallingRecord; readonly reason: DialFailure }
  /** The flow is the home's again. `isSilent`: the next endpoint is to be asked. */
  | { readonly kind: 'flow-back'; readonly record: FlowRecord; readonly isSilent: boolean }
  /** The flow has ended for its endpoint. */
  | ({ readonly kind: 'flow-failed'; readonly client: FlowClient } & FailedFlow);

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

/** A client of a UDP port, and the way of replies to it: see `FlowRecord`. */
export interface FlowClient {
  readonly port: PortId;
  readonly name: Uint8Array;
  readonly control: Uint8Array;
}

export interface FailedFlow {
  /** Missing when the endpoint has left the set. */
  readonly reason: DialFailure | undefined;
  /** What another endpoint may be asked. */
  readonly unanswered: readonly Uint8Array[] | undefined;
}

/** What the home remembers of a connection or flow that another worker carries. */
export interface PassedOn {
  onAnswered(): void;
  /** Called once. The other worker may have died with it. */
  onOver(over: Over): void;
}

/** One worker's part of a UDP port, to other workers. */
export interface FlowSharer {
  onWanted(link: Link, client: FlowClient): void;
  onRefused(client: FlowClient): void;
  onRecalled(link: Link, id: PassId, client: FlowClient): void;
  onLinked(link: Link): void;
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

  /** The other worker goes on with it. Returns the number under which it does. */
  carry(passed: PassedOn, record: EstablishedRecord | FlowRecord): PassId {
    const id = this.#pass(passed);
    this.send({ kind: 'carry', id, record });
    return id;
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
  if (record?.kind !== 'established') return record === undefined || !('fd' in record) ? [] : [record.fd];
  return record.sides.flatMap(({ fd, piped }) => (piped === undefined ? fd : [fd, piped.readEnd, piped.writeEnd]));
}

/** The connection that a message carries, if it does. */
export function recordIn(message: Passed): LiveRecord | undefined {
  const part = message.kind === 'over' ? message.over : message;
  if ('record' in part) return part.record;
  if (part.kind !== 'flow-failed' || part.unanswered === undefined) return undefined;
  return { kind: 'waiting', ...part.client, datagrams: part.unanswered };
}

function isNotice(message: Passed): boolean {
  return message.kind === 'answered' || (message.kind === 'over' && message.over.kind === 'ended');
}

/** A connection whose home is another worker: what becomes of it is told there. */
export class Errand implements CoreErrand {
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

  is(link: Link, id: PassId): boolean {
    return this.#link === link && this.#id === id;
  }

  get isHomeThere(): boolean {
    return !this.#link.isClosed;
  }
}
