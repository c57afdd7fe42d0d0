import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { DialFailure } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { Candidates } from '../../../services/picker.ts';
import type { Target } from './endpoints.ts';
import type { Task } from './event-loop.ts';
import type { Port } from './port.ts';
import type { DiallingRecord, EstablishedRecord, LiveRecord } from './records.ts';

/** Numbers a connection that is passed on; never used again on the same link. */
export type PassId = number;

/**
 * What two workers tell each other of a connection that the home of its Service port has passed on to a carrier. The
 * descriptors of a record belong to whom it is sent to.
 */
export type Passed =
  /** To the carrier: dial this endpoint for the client. Ends with `ended` or `failed`. */
  | { readonly kind: 'dial'; readonly id: PassId; readonly record: DiallingRecord; readonly endpoint: Endpoint }
  /** To the carrier: go on with this connection. Ends with `ended`. */
  | { readonly kind: 'carry'; readonly id: PassId; readonly record: EstablishedRecord }
  /** To the home: the carrier counts it among its own, because the endpoint has answered. */
  | { readonly kind: 'joined'; readonly id: PassId }
  | { readonly kind: 'ended'; readonly id: PassId }
  /** To the home: the endpoint has failed, so the client is home's again. */
  | ({ readonly kind: 'failed'; readonly id: PassId; readonly record: DiallingRecord } & FailedDial);

export interface FailedDial {
  readonly reason: DialFailure;
  /** See `KeptClient`. */
  readonly hasWaited: boolean;
}

/** What the home remembers of a connection that it has passed on. */
export interface PassedOn {
  readonly port: Port;
  /** Taken until the connection ends. */
  readonly target: Target;
  /** The endpoints to try if that one fails. Missing once it has answered. */
  readonly candidates?: Candidates;
  /** Where it still counts as active: a connection on its way counts twice rather than not at all. */
  readonly counts: 'port' | 'both' | 'nowhere';
}

interface LinkSetup {
  readonly worker: number;
  readonly channel: MessagePort;
  /** Wakes the other worker. */
  readonly wake: () => void;
  readonly atEndOfTurn: (task: Task) => void;
  /** Runs it some milliseconds later. */
  readonly soon: (task: Task) => void;
}

/**
 * The way to one other worker, until its thread ends. Messages of one turn go together. Mere notices wait some
 * milliseconds for others, because waking the other worker costs more than the rest.
 */
export class Link implements Task {
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

  nextId(): PassId {
    return ++this.#lastId;
  }

  /** Lost when the link is closed: then nobody waits for it. */
  send(message: Passed): void {
    if (this.isClosed) return;
    const isFirst = this.#outbox.push(message) === 1;
    if ('record' in message && !this.#isDue) {
      this.#isDue = true;
      this.#setup.atEndOfTurn(this);
    } else if (isFirst) {
      this.#setup.soon(this);
    }
  }

  run(): void {
    this.#isDue = false;
    if (this.#outbox.length === 0 || this.isClosed || this.isHeld) return;
    this.#setup.channel.postMessage(this.#outbox);
    this.#outbox = [];
    this.#setup.wake();
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

  close(): void {
    this.isClosed = true;
    this.#setup.channel.close();
  }
}

/** The connection that a message carries, if it does. */
export function recordIn(message: Passed): LiveRecord | undefined {
  return 'record' in message ? message.record : undefined;
}

/** A connection whose home is another worker: what becomes of it is told there. */
export class Errand {
  readonly #link: Link;
  readonly #id: PassId;

  constructor(link: Link, id: PassId) {
    this.#link = link;
    this.#id = id;
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

  get home(): number {
    return this.#link.worker;
  }

  get isHomeThere(): boolean {
    return !this.#link.isClosed;
  }
}
