import type { Clock, Random } from '../../contracts/clock.ts';
import type { Log } from '../../contracts/log.ts';
import { ApiError, causeMessage } from './api-error.ts';
import type { ResourceHealth } from './api-health.ts';
import { LineSplitter, LineTooLongError } from './line-splitter.ts';
import { type Change, type ObjectReader, ObjectStore } from './object-store.ts';
import { type Course, nextStep, type Outcome, START } from './reflector-plan.ts';
import { sleep } from './sleep.ts';
import type { Transport } from './transport.ts';
import { type Vigil, watchOver } from './vigil.ts';
import { parseWatchEvent, type WatchEvent } from './watch-event.ts';

/** One kind of object on the server. */
export interface Resource<T> extends ObjectReader<T> {
  /** As `/api/v1/services`. */
  readonly path: string;
  readonly labelSelector: string;
  /** Old servers do not have it: 404 is an answer, not a failure. */
  readonly isOptional: boolean;
}

export interface ReflectorSink<T> {
  /** Only real differences; those of one list together. Never throws. */
  changed(changes: readonly Change<T>[]): void;
  /** A list has been taken over, its changes included. */
  listed(): void;
  /** The server does not have the resource (yet); it will be asked again. */
  absent(): void;
}

export interface ReflectorOptions<T> {
  readonly resource: Resource<T>;
  readonly sink: ReflectorSink<T>;
  readonly transport: Transport;
  readonly health: ResourceHealth;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** The API server takes no object of more than 1.5 MiB from etcd; as JSON with all its escapes it may be larger. */
const LINE_MAX_BYTES = 16 * 1024 * 1024;

/** client-go's page size. */
const PAGE_SIZE = 500;

/** An old server takes a streamed list for a plain watch, which never says that the list is complete. */
const STREAMED_LIST_DEADLINE_MS = 60_000;

/** client-go: 5 to 10 minutes, so that watches move to other servers after a while, and not all at once. */
const WATCH_MIN_SECONDS = 300;

/**
 * Keeps a sink in step with one kind of object on the server, for ever: list, watch, and again after whatever goes
 * wrong (the idea is client-go's `tools/cache` Reflector; what to do when is in `reflector-plan.ts`).
 */
export class Reflector<T> {
  readonly #options: ReflectorOptions<T>;
  readonly #store: ObjectStore<T>;
  #course: Course = START;
  /** Of the last event or list; opaque. */
  #resourceVersion = '';
  #isListed = false;
  /** When the current exchange began to deliver changes; `undefined` while it does not. */
  #followingSince: number | undefined;
  #heardAt: number;

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
    this.#store = new ObjectStore(options.resource, options.log);
    this.#heardAt = options.clock.now();
  }

  /** Keys of the objects that have been given to the sink. */
  keys(): Iterable<string> {
    return this.#store.keys();
  }

  /** Resolves only after the abort. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, random, resource, health, sink, log } = this.#options;
    while (!signal.aborted) {
      this.#followingSince = undefined;
      const outcome = await this.#exchange(signal);
      if (signal.aborted) return;

      const now = clock.now();
      const { course, delayMs, absent } = nextStep(this.#course, outcome, {
        following: this.#followingSince !== undefined,
        followedMs: this.#followingSince === undefined ? 0 : now - this.#followingSince,
        silentMs: now - this.#heardAt,
        mayBeAbsent: resource.isOptional && !this.#isListed,
        random,
      });
      log.v(2)?.info('an exchange with the API server has ended', {
        resource: resource.path,
        exchange: this.#course.next,
        outcome: outcome.kind,
        err: outcome.kind === 'failed' ? outcome.error.message : undefined,
        next: course.next,
        delayMs: Math.round(delayMs),
      });
      if (absent) {
        health.dismissed();
        sink.absent();
      } else if (outcome.kind === 'failed' && delayMs > 0) {
        health.lost(outcome.error.message);
      } else if (outcome.kind === 'unconfirmed') {
        log.warn('a list is empty although there are objects; it counts once a second one is empty too', {
          resource: resource.path,
        });
      }
      this.#course = course;
      await sleep(delayMs, clock, signal);
    }
  }

  async #exchange(signal: AbortSignal): Promise<Outcome> {
    try {
      switch (this.#course.next) {
        case 'stream':
          return await this.#stream(signal);
        case 'pages':
          return await this.#list(PAGE_SIZE, signal);
        case 'whole':
          return await this.#list(0, signal);
        case 'watch':
          return await this.#watch(signal);
      }
    } catch (error) {
      if (error instanceof ApiError) return { kind: 'failed', error };
      if (error instanceof LineTooLongError) return { kind: 'failed', error: new ApiError('garbage', error.message) };
      if (!signal.aborted) {
        // A defect of ours. A new list is the state that most likely does not meet it again.
        const err = error instanceof Error ? (error.stack ?? error.message) : String(error);
        this.#options.log.error('following the API server failed for a reason of our own', { err });
      }
      return { kind: 'failed', error: new ApiError('garbage', causeMessage(error)) };
    }
  }

  /** A list in pages. Each is read and let go of before the next is asked for. */
  async #list(pageSize: number, signal: AbortSignal): Promise<Outcome> {
    const list = this.#store.beginList();
    let next = '';
    for (let pages = 0; pages === 0 || next !== ''; pages += 1) {
      if (pages === MAX_PAGES) throw new ApiError('garbage', `a list has more than ${MAX_PAGES} pages`);
      const query = { ...(pageSize > 0 && { limit: `${pageSize}` }), ...(next !== '' && { continue: next }) };
      const page = readPage(await this.#options.transport.get(this.#path(query), signal));
      for (const item of page.items) list.add(item);
      next = page.next;
      this.#resourceVersion = page.resourceVersion;
    }
    this.#heard();
    return this.#takeOver(list) ? { kind: 'listed' } : { kind: 'unconfirmed' };
  }

  /** A list that comes as a watch and goes on as one (KEP-3157), so that neither side ever holds all of it. */
  async #stream(signal: AbortSignal): Promise<Outcome> {
    const controller = new AbortController();
    const abort = () => controller.abort(signal.reason);
    signal.addEventListener('abort', abort);
    const seconds = STREAMED_LIST_DEADLINE_MS / 1_000;
    const late = new ApiError('timeout', `a streamed list was not complete within ${seconds} s`);
    const deadline = this.#options.clock.after(STREAMED_LIST_DEADLINE_MS, () => controller.abort(late));
    const list = this.#store.beginList();
    const initial = (event: WatchEvent): Outcome | 'complete' | undefined => {
      if (event.type === 'changed') list.add(event.object);
      else if (event.type === 'deleted') list.remove(event.object);
      else if (event.type === 'bookmark' && event.endsInitialEvents) {
        deadline.cancel();
        return this.#takeOver(list) ? 'complete' : { kind: 'unconfirmed' };
      }
      return undefined;
    };
    try {
      // Without a resourceVersion: the list is as new as any read, whichever server answers.
      return await this.#follow({ sendInitialEvents: 'true', resourceVersionMatch: 'NotOlderThan' }, controller, initial);
    } finally {
      deadline.cancel();
      signal.removeEventListener('abort', abort);
    }
  }

  async #watch(signal: AbortSignal): Promise<Outcome> {
