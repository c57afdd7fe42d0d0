import { setImmediate } from 'node:timers/promises';
import type { Clock, Random } from '../util/clock.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import { LineSplitter, LineTooLongError } from '../util/line-splitter.ts';
import type { Log } from '../util/log.ts';
import { stackOf } from '../util/text.ts';
import { sleep } from '../util/wait.ts';
import { parseWatchEvent, readPage, type WatchEvent } from './answers.ts';
import type { Transport } from './api-client.ts';
import { ApiError, causeMessage } from './api-error.ts';
import type { ResourceHealth } from './api-health.ts';
import { type Change, type ObjectReader, ObjectStore, type PendingList } from './object-store.ts';
import { type Course, nextStep, type Outcome, SHORT_WATCH_MS, START } from './reflector-plan.ts';
import { awaitSilence, type OpenWatch, QUIET } from './watch-silence.ts';

/** One kind of object on the server. */
export interface Resource<T> extends ObjectReader<T> {
  /** As `/api/v1/services`. */
  readonly path: string;
  /** Parameters of the request. */
  readonly selectors: { readonly labelSelector?: string; readonly fieldSelector?: string };
  /** HTTP statuses that are an answer and no failure: old servers do not have it, or do not show it. */
  readonly absentAt: readonly number[];
}

/** Receives changes and the state of the resource. Never throws. */
interface ReflectorSink<T> extends Partial<Omit<ResourceHealth, 'dismissed'>> {
  /** Only real differences; all of one list together. */
  changed(changes: readonly Change<T>[]): void;
  /** The server does not have the resource (yet); it is retried later. */
  absent?(): void;
}

export interface ReflectorOptions<T> {
  readonly resource: Resource<T>;
  readonly sink: ReflectorSink<T>;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** etcd stores objects of up to 1.5 MiB; JSON escapes make them larger. */
const LINE_MAX_BYTES = 16 * 1024 * 1024;

/** client-go's page size. */
const PAGE_SIZE = 500;

/** In case that a server never sends the last page. */
const MAX_PAGES = 2_000;

/** client-go: 5 to 10 minutes, so that watches move to other servers after a while, and not all at once. */
const WATCH_MIN_SECONDS = 300;

const WATCH = { watch: '1', allowWatchBookmarks: 'true' } as const;

/** Without a `resourceVersion` the list is as new as any read, whichever server answers. */
const STREAMED_LIST = { ...WATCH, sendInitialEvents: 'true', resourceVersionMatch: 'NotOlderThan' } as const;

/**
 * Keeps a sink in step with one kind of object on the server, until it is stopped: list, watch, and again after every
 * failure. The idea is client-go's `tools/cache` Reflector; `reflector-plan.ts` decides what comes next.
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
  /** Whether the current exchange has delivered changes. */
  #hasChanged = false;
  #heardAt: number;
  readonly #shortWatches: LastingFault;

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
    this.#store = new ObjectStore(options.resource, options.log, options.clock);
    this.#heardAt = options.clock.now();
    this.#shortWatches = new LastingFault({
      log: options.log,
      begun: 'The API server or a proxy in front of it ends each watch at once, so changes arrive late; retrying',
      over: 'Watches of the API server last again',
    });
  }

  /** The objects that the sink was given. */
  get objects(): Pick<ObjectStore<T>, 'keys' | 'has' | 'leftOut'> {
    return this.#store;
  }

  /** Resolves only after the abort. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, random, resource, sink, log } = this.#options;
    while (!signal.aborted) {
      this.#followingSince = undefined;
      this.#hasChanged = false;
      const outcome = await this.#exchange(signal);
      if (signal.aborted) return;

      const error = 'error' in outcome ? outcome.error : undefined;
      const { course, delayMs, absent } = nextStep(this.#course, outcome, {
        hasPlace: this.#course.next === 'watch' || this.#followingSince !== undefined,
        followedMs: this.#followedMs(),
        hasChanged: this.#hasChanged,
        silentMs: clock.now() - this.#heardAt,
        absentAt: this.#isListed ? [] : resource.absentAt,
        random,
      });
      log.v(2)?.info('An exchange with the API server has ended', {
        resource: resource.path,
        exchange: this.#course.next,
        outcome: outcome.kind,
        err: error?.message,
        next: course.next,
        delayMs: Math.round(delayMs),
      });
      if (absent) {
        sink.absent?.();
      } else if (error !== undefined && delayMs > 0 && error.status !== 410) {
        // A version that is too old is no trouble with the server: a new list fixes it.
        sink.lost?.(error.message);
      } else if (outcome.kind === 'ended' && course.refusals > 1) {
        const err = `it ended within ${SHORT_WATCH_MS / 1_000} s without a change`;
        this.#shortWatches.failed(err, { resource: resource.path });
      } else if (outcome.kind === 'unconfirmed') {
        log.warn('A list is empty although there are objects; it counts once a second one is empty too', {
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
          return await this.#follow(this.#store.beginList(), signal);
        case 'pages':
          return await this.#list(PAGE_SIZE, signal);
        case 'watch':
          return await this.#follow(undefined, signal);
      }
    } catch (error) {
      if (error instanceof ApiError) return { kind: 'failed', error };
      if (error instanceof LineTooLongError) return { kind: 'failed', error: new ApiError('garbage', error.message) };
      if (!signal.aborted) {
        // A defect of this program. A new list most likely avoids it.
        const err = stackOf(error);
        this.#options.log.error('Watching the API server failed because of a defect of this program', { err });
      }
      return { kind: 'failed', error: new ApiError('garbage', causeMessage(error)) };
    }
  }

  /** A list in pages. Each is decoded before the next is requested, so that only one is in memory. */
  async #list(pageSize: number, signal: AbortSignal): Promise<Outcome> {
    const list = this.#store.beginList();
    let next = '';
    for (let pages = 0; pages === 0 || next !== ''; pages += 1) {
      if (pages === MAX_PAGES) throw new ApiError('garbage', `a list has more than ${MAX_PAGES} pages`);
      const query = { ...(pageSize > 0 && { limit: `${pageSize}` }), ...(next !== '' && { continue: next }) };
      let body: unknown;
      try {
        body = await this.#options.transport.get(this.#path(query), signal);
      } catch (error) {
        // The server no longer has the version of the first page: ask for all in one piece, as client-go does.
        if (next !== '' && error instanceof ApiError && error.status === 410) return await this.#list(0, signal);
        throw error;
      }
      const page = readPage(body);
      for (const item of page.items) list.add(item);
      next = page.next;
      this.#resourceVersion = page.resourceVersion;
    }
    this.#heard();
    return this.#takeOver(list) ? { kind: 'listed' } : { kind: 'unconfirmed' };
  }

  /** Reads a watch to its end. With a `list`, it begins with all objects that there are (KEP-3157). */
  async #follow(list: PendingList<T> | undefined, outer: AbortSignal): Promise<Outcome> {
    const { transport, clock } = this.#options;
    const controller = new AbortController();
    const signal = AbortSignal.any([outer, controller.signal]);
    const watch: Watch<T> = { list, heardAt: clock.now() };
    let isOpen = false;
    let gone: unknown;
    try {
      const path = this.#path(list === undefined ? this.#changes() : STREAMED_LIST);
      const { body, server } = await transport.watch(path, signal);
      isOpen = true;
      watch.heardAt = clock.now();
      if (list === undefined) this.#following();
      void awaitSilence(watch, { server, clock, onAlive: () => this.#heard(), signal }).then((reason) => {
        gone = reason;
        if (reason !== undefined) controller.abort(reason);
      });
      const lines = new LineSplitter(LINE_MAX_BYTES);
      for await (const chunk of body) {
        if (this.#take(lines.push(chunk), watch) === 'unconfirmed') return { kind: 'unconfirmed' };
        // libuv may read 32 times from one socket before it serves others; connections would wait for a list.
        await setImmediate();
      }
    } catch (error) {
      if (isOpen && error instanceof ApiError && error.code === 'unreachable') {
        if (watch.list !== undefined) throw incomplete(error.message);
        if (gone === undefined) return { kind: 'ended', error };
      }
      if (gone !== QUIET) throw error;
    } finally {
      controller.abort();
    }
    if (watch.list === undefined) return { kind: 'ended' };
    throw incomplete(gone === QUIET ? 'nothing more came' : 'the server ended it');
  }

  /** The lines of one chunk take effect together. */
  #take(lines: Iterable<string>, watch: Watch<T>): 'unconfirmed' | undefined {
    const changes: Change<T>[] = [];
    try {
      for (const line of lines) {
        this.#heard();
        watch.heardAt = this.#heardAt;
        const event = parseWatchEvent(line);
        this.#resourceVersion = event.resourceVersion;
        if (watch.list !== undefined) {
          if (this.#takeListed(event, watch.list) === 'more') continue;
          if (!this.#takeOver(watch.list)) return 'unconfirmed';
          watch.list = undefined;
          this.#following();
        } else if (event.type !== 'bookmark') {
          const { object } = event;
          const change = event.type === 'deleted' ? this.#store.delete(object) : this.#store.change(object);
          if (change !== undefined) changes.push(change);
        }
      }
      return undefined;
    } finally {
      // Also after a bad line: earlier changes are in the store, so a new list would not report them again.
      if (changes.length > 0) {
        this.#hasChanged = true;
        this.#options.sink.changed(changes);
      }
    }
  }

  #takeListed(event: WatchEvent, list: PendingList<T>): 'more' | 'complete' {
    if (event.type === 'bookmark') {
      // A server that does not know streamed lists may answer with a plain watch.
      if (!event.endsInitialEvents) throw incomplete('it is a plain watch');
      return 'complete';
    }
    list.add(event.object, { isGone: event.type === 'deleted' });
    return 'more';
  }

  /** `false` for a list that is suspiciously empty. */
  #takeOver(list: PendingList<T>): boolean {
    const { sink } = this.#options;
    const changes = list.finish();
    if (changes === 'unconfirmed') return false;
    this.#isListed = true;
    if (changes.length > 0) sink.changed(changes);
    sink.listed?.();
    return true;
  }

  #followedMs(): number {
    return this.#followingSince === undefined ? 0 : this.#options.clock.now() - this.#followingSince;
  }

  #following(): void {
    this.#followingSince = this.#options.clock.now();
    this.#heardAt = this.#followingSince;
    this.#options.sink.following?.();
  }

  #heard(): void {
    const { clock, resource, sink } = this.#options;
    this.#heardAt = clock.now();
    if (this.#followedMs() >= SHORT_WATCH_MS) this.#shortWatches.succeeded({ resource: resource.path });
    sink.heard?.();
  }

  #changes(): Record<string, string> {
    const seconds = Math.floor(WATCH_MIN_SECONDS * (1 + this.#options.random()));
    return { ...WATCH, resourceVersion: this.#resourceVersion, timeoutSeconds: `${seconds}` };
  }

  #path(query: Readonly<Record<string, string>>): string {
    const { path, selectors } = this.#options.resource;
    return `${path}?${new URLSearchParams({ ...query, ...selectors })}`;
  }
}

interface Watch<T> extends OpenWatch {
  list: PendingList<T> | undefined;
}

function incomplete(why: string): ApiError {
  return new ApiError('incomplete', `a streamed list did not become complete: ${why}`);
}
