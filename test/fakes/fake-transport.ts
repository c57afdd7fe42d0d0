import assert from 'node:assert/strict';
import type { Contact, Transport, WatchStream } from '../../src/kubernetes/api-client.ts';
import type { Clock } from '../../src/util/clock.ts';
import { settle } from '../support/until.ts';

/** A transport whose every request waits for the test to answer it. */
export class FakeTransport implements Transport, Contact {
  readonly #clock: Clock;
  readonly #calls: Call[] = [];
  /** Every path that was asked for, in order. */
  readonly paths: string[] = [];
  lastContactAt: number | undefined;
  probes = 0;
  /** What a probe does; by default the server answers. */
  onProbe: () => Promise<void> = async () => {};

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  watch(path: string, signal: AbortSignal): Promise<WatchStream> {
    return new Promise((resolve, reject) => {
      this.#add(
        new Call('watch', path, { resolve: resolve as (value: unknown) => void, reject, signal, server: this }),
      );
    });
  }

  get(path: string, signal: AbortSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#add(new Call('get', path, { resolve, reject, signal, server: this }));
    });
  }

  async probe(): Promise<void> {
    this.probes += 1;
    await this.onProbe();
    this.lastContactAt = this.#clock.now();
  }

  /** The next request that has not been taken yet; there must be one. */
  async call(kind: 'watch' | 'get'): Promise<Call> {
    await settle();
    const call = this.#calls.shift();
    assert.ok(call !== undefined, `no request is waiting, expected a ${kind}`);
    assert.equal(call.kind, kind);
    return call;
  }

  async assertIdle(): Promise<void> {
    await settle();
    assert.deepEqual(this.#calls, [], 'no request should be waiting');
  }

  #add(call: Call): void {
    this.paths.push(call.path);
    this.#calls.push(call);
  }
}

class Call {
  readonly kind: 'watch' | 'get';
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  readonly #server: Contact;
  readonly #resolve: (value: unknown) => void;
  readonly #reject: (error: unknown) => void;

  constructor(
    kind: 'watch' | 'get',
    path: string,
    {
      resolve,
      reject,
      signal,
      server,
    }: {
      resolve: (value: unknown) => void;
      reject: (error: unknown) => void;
      signal: AbortSignal;
      server: Contact;
    },
  ) {
    this.#server = server;
    this.kind = kind;
    this.path = path;
    this.query = Object.fromEntries(new URL(path, 'http://server').searchParams);
    this.signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
    signal.addEventListener('abort', () => reject(signal.reason));
  }

  /** Answers with one JSON value. */
  answer(value: unknown): void {
    this.#resolve(value);
  }

  fail(error: Error): void {
    this.#reject(error);
  }

  /** Answers with a stream. */
  open(): FakeStream {
    const stream = new FakeStream(this.signal);
    this.#resolve({ body: stream.read(), server: this.#server });
    return stream;
  }
}

/** The server's end of a watch. */
export class FakeStream {
  readonly #signal: AbortSignal;
  readonly #queue: (Uint8Array | Error | 'end')[] = [];
  #wake: () => void = () => {};

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener('abort', () => this.#wake());
  }

  /** Each line on its own; all of them in one chunk. */
  send(...lines: (object | string)[]): void {
    const text = lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join('');
    this.#push(Buffer.from(text));
  }

  end(): void {
    this.#push('end');
  }

  fail(error: Error): void {
    this.#push(error);
  }

  #push(item: Uint8Array | Error | 'end'): void {
    this.#queue.push(item);
    this.#wake();
  }

  async *read(): AsyncGenerator<Uint8Array> {
    for (;;) {
      if (this.#signal.aborted) throw this.#signal.reason;
      const item = this.#queue.shift();
      if (item === 'end') return;
      if (item instanceof Error) throw item;
      if (item !== undefined) yield item;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }
}
