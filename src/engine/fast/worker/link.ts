import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { DialFailure } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { ProxyProtocol } from '../../../model/service.ts';
import type { Candidates } from '../../../services/picker.ts';
import { signal } from '../../../sys/descriptor.ts';
import { Deadline } from './deadlines.ts';
import type { EventLoop, Task } from './event-loop.ts';
import type { Port } from './port.ts';
import type { DiallingRecord, EstablishedRecord, FlowRecord, LiveRecord, PortId } from './records.ts';
import type { Target } from './target.ts';

/** Numbers a connection that is passed on; never used again on the same link. */
export type PassId = number;

/**
 * What two workers tell each other of a connection that the home of its Service port has passed on to a carrier. The
 * descriptors of a record belong to whom it is sent to.
 */
export type Passed =
  /** To the carrier: dial this endpoint for the client. Ends with `ended` or `failed`. */
  | {
      readonly kind: 'dial';
      readonly id: PassId;
      readonly record: DiallingRecord;
      readonly endpoint: Endpoint;
      readonly terms: DialTerms;
    }
  /** To the carrier: go on with it. A connection ends with `ended`; a flow with that, `flow-failed` or `flow-back`. */
  | { readonly kind: 'carry'; readonly id: PassId; readonly record: EstablishedRecord | FlowRecord }
  /** To the home: the carrier counts it among its own. The endpoint of a connection has answered. */
  | { readonly kind: 'joined'; readonly id: PassId }
  /** To the home: the endpoint of a flow has answered. */
  | { readonly kind: 'answered'; readonly id: PassId }
  | { readonly kind: 'ended'; readonly id: PassId }
  /** To the home: the endpoint has failed, so the client is home's again. */
  | ({ readonly kind: 'failed'; readonly id: PassId; readonly record: DiallingRecord } & FailedDial)
  /** To the home: this client's datagrams come to the sender. The answer is `carry` or `refused`. */
  | { readonly kind: 'want'; readonly client: FlowClient }
  /** To the carrier: this client gets no flow. */
  | { readonly kind: 'refused'; readonly client: FlowClient }
  /** To the carrier: this client's datagrams come to another worker. The answer is `flow-back`, if it carries it. */
  | { readonly kind: 'recall'; readonly id: PassId; readonly client: FlowClient }
  /** To the home: the flow is the home's again. `isSilent`: the next endpoint is to be asked. */
  | { readonly kind: 'flow-back'; readonly id: PassId; readonly record: FlowRecord; readonly isSilent: boolean }
  /** To the home: the flow has ended for its endpoint. */
  | ({ readonly kind: 'flow-failed'; readonly id: PassId; readonly client: FlowClient } & FailedFlow);

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

/** What the home remembers of a flow that another worker carries, beside {@link PassedOn}. */
export interface AwayFlow {
  onEnded(): void;
  onFailed(why: FailedFlow): void;
  onBack(record: FlowRecord, isSilent: boolean): void;
}

/** One worker's part of a UDP port, to other workers. */
export interface FlowSharer {
  onWanted(link: Link, client: FlowClient): void;
  onRefused(client: FlowClient): void;
  onRecalled(link: Link, id: PassId, client: FlowClient): void;
  onLinked(link: Link): void;
  onUnlinked(link: Link): void;
}

export interface FailedDial {
  readonly reason: DialFailure;
  /** See `KeptClient`. */
  readonly needsNewPort: boolean;
}

/** What the home remembers of a connection that it has passed on. */
export interface PassedOn {
  readonly port: Port;
  /** Taken until the connection ends. */
  readonly target: Target;
  /** The endpoints to try if that one fails. Missing once it has answered. */
  readonly candidates?: Candidates<Target>;
  /** Where it still counts as active: a connection on its way counts twice rather than not at all. */
  readonly counts: 'port' | 'both' | 'nowhere';
  /** If it is a flow. */
  readonly away?: AwayFlow;
}

interface LinkSetup {
  readonly worker: number;
  readonly channel: MessagePort;
  readonly loop: EventLoop;
  /** Wakes the other worker. */
  readonly wakeFd: number;
}

/** Nobody waits for these. */
const NOTICES: ReadonlySet<Passed['kind']> = new Set(['joined', 'answered', 'ended']);

/** How long they may wait. */
const NOTICE_MS = 5;

/**
 * The way to one other worker, until its thread ends. Messages of one turn go together. Mere notices wait some
 * milliseconds for others, because waking the other worker costs more than the rest.
 */
export class Link implements Task {
  readonly #deadline = new Deadline(this);
  readonly worker: number;
  /** Connections that the other one carries for this one. */
  readonly passedOn = new Map<PassId, PassedOn>();
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

  /** The number under which it is passed on. */
  pass(passed: PassedOn): PassId {
    const id = ++this.#lastId;
    this.passedOn.set(id, passed);
    return id;
  }

  /** What is passed on under this number ends or comes back. */
  take(id: PassId): PassedOn | undefined {
    const passed = this.passedOn.get(id);
    this.passedOn.delete(id);
    return passed;
  }

  /** Lost when the link is closed: then nobody waits for it. */
  send(message: Passed): void {
    if (this.isClosed) return;
    const { loop } = this.#setup;
    const isFirst = this.#outbox.push(message) === 1;
    if (!NOTICES.has(message.kind) && !this.#isDue) {
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

  /** What was not sent is reset. */
  close(): void {
    this.isClosed = true;
    this.#deadline.cancel();
    const { channel, loop } = this.#setup;
    for (const fd of this.#outbox.flatMap(descriptorsIn)) loop.reset(fd);
    this.#outbox = [];
    channel.close();
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
  if ('record' in message) return message.record;
  if (message.kind !== 'flow-failed' || message.unanswered === undefined) return undefined;
  return { kind: 'waiting', ...message.client, datagrams: message.unanswered };
}

/** A connection whose home is another worker: what becomes of it is told there. */
export class Errand {
  readonly #link: Link;
  readonly #id: PassId;

  constructor(link: Link, id: PassId) {
    this.#link = link;
    this.#id = id;
  }

  answered(): void {
    this.#link.send({ kind: 'answered', id: this.#id });
  }

  joined(): void {
    this.#link.send({ kind: 'joined', id: this.#id });
  }

  ended(): void {
    this.#link.send({ kind: 'ended', id: this.#id });
  }

  failed(record: DiallingRecord, why: FailedDial): void {
    this.#link.send({ kind: 'failed', id: this.#id, record, ...why });
  }

  flowFailed(client: FlowClient, why: FailedFlow): void {
    this.#link.send({ kind: 'flow-failed', id: this.#id, client, ...why });
  }

  flowBack(record: FlowRecord, isSilent: boolean): void {
    this.#link.send({ kind: 'flow-back', id: this.#id, record, isSilent });
  }

  is(link: Link, id: PassId): boolean {
    return this.#link === link && this.#id === id;
  }

  get home(): number {
    return this.#link.worker;
  }

  get isHomeThere(): boolean {
    return !this.#link.isClosed;
  }
}
