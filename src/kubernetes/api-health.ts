import type { ApiStatus } from '../model/source.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';

/** The state of one kind of object, as its reflector reports it. */
export interface ResourceHealth {
  /** A list was taken over. */
  listed(): void;
  /** Changes arrive from here on. */
  following(): void;
  /** The server showed that it is still there for this resource. */
  heard(): void;
  /** Changes are missed from the last {@link heard} on. */
  lost(reason: string): void;
  /** It is not watched any more, or the server does not have it: it no longer counts. */
  dismissed(): void;
}

interface Resource {
  listedAt: number | undefined;
  heardAt: number;
  isFollowed: boolean;
}

/**
 * The state of the connection to the API server as a whole. Logs one line with the reason when it is lost, and one when
 * it is back.
 */
export class ApiHealth {
  readonly #server: string;
  readonly #lastContactAt: () => number | undefined;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #resources = new Map<string, Resource>();
  #lostAt: number | undefined;
  #wasConnected = false;
  #isStopped = false;

  constructor(options: {
    /** `host:port`, for messages. */
    readonly server: string;
    readonly lastContactAt: () => number | undefined;
    readonly clock: Clock;
    readonly log: Log;
  }) {
    this.#server = options.server;
    this.#lastContactAt = options.lastContactAt;
    this.#clock = options.clock;
    this.#log = options.log;
  }

  /** Counts the resource as lost until it is followed. */
  resource(name: string): ResourceHealth {
    const resource: Resource = { listedAt: undefined, heardAt: this.#clock.now(), isFollowed: false };
    this.#resources.set(name, resource);
    return {
      listed: () => {
        resource.listedAt ??= this.#clock.now();
      },
      following: () => {
        resource.isFollowed = true;
        resource.heardAt = this.#clock.now();
        this.#resources.set(name, resource);
        this.#followed();
      },
      heard: () => {
        resource.heardAt = this.#clock.now();
      },
      lost: (reason) => {
        resource.isFollowed = false;
        this.#resources.set(name, resource);
        this.#lost(name, reason);
      },
      dismissed: () => {
        this.#resources.delete(name);
        this.#followed();
      },
    };
  }

  status(): ApiStatus {
    const all = [...this.#resources.values()];
    const now = this.#clock.now();
    const lost = all.filter(({ isFollowed }) => !isFollowed);
    const listed = all.flatMap(({ listedAt }) => listedAt ?? []);
    return {
      connected: lost.length === 0,
      lastContactAt: this.#lastContactAt(),
      listedAt: listed.length === all.length && all.length > 0 ? Math.max(...listed) : undefined,
      staleForMs: Math.max(0, ...lost.map(({ heardAt }) => now - heardAt)),
    };
  }

  /** Logs no more. */
  stop(): void {
    this.#isStopped = true;
  }

  #lost(resource: string, err: string): void {
    if (this.#lostAt !== undefined || this.#isStopped) return;
    this.#lostAt = this.#clock.now();
    const message = this.#wasConnected
      ? 'Cannot watch the API server; the last known state is served until it is back'
      : 'Cannot watch the API server yet; retrying';
    this.#log.warn(message, { server: this.#server, resource, err });
  }

  #followed(): void {
    if (this.#isStopped || !this.status().connected) return;
    if (this.#lostAt !== undefined) {
      const awaySeconds = Math.round((this.#clock.now() - this.#lostAt) / 1_000);
      const message = this.#wasConnected ? 'Watching the API server again' : 'Watching the API server';
      this.#log.info(message, { server: this.#server, awaySeconds });
    } else if (!this.#wasConnected) {
      this.#log.info('Watching the API server', { server: this.#server });
    }
    this.#wasConnected = true;
    this.#lostAt = undefined;
  }
}
