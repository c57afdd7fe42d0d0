import type { ApiStatus } from '../model/source.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';

/** For the reflector of one kind of object. */
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

interface ApiHealthOptions {
  /** `host:port` of the one that is used, for messages. */
  readonly server: () => string;
  readonly lastContactAt: () => number | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The state of the connection to the API server as a whole. Logs one line with the reason when it is lost, and one when
 * it is back.
 */
export class ApiHealth {
  readonly #options: ApiHealthOptions;
  readonly #clock: Clock;
  readonly #resources = new Map<string, Resource>();
  #lostAt: number | undefined;
  /** What was said last of anything that is lost. */
  #err: string | undefined;
  #wasConnected = false;
  #isStopped = false;

  constructor(options: ApiHealthOptions) {
    this.#options = options;
    this.#clock = options.clock;
  }

  /** Counts the resource as lost until it is followed. */
  resource(name: string): ResourceHealth {
    const now = () => this.#clock.now();
    const resource: Resource = { listedAt: undefined, heardAt: now(), isFollowed: false };
    const setFollowed = (isFollowed: boolean) => {
      resource.isFollowed = isFollowed;
      this.#resources.set(name, resource);
    };
    setFollowed(false);
    return {
      listed: () => {
        resource.listedAt ??= now();
      },
      following: () => {
        resource.heardAt = now();
        setFollowed(true);
        this.#followed();
      },
      heard: () => {
        resource.heardAt = now();
      },
      lost: (reason) => {
        setFollowed(false);
        this.#lost(name, reason);
      },
      dismissed: () => {
        this.#resources.delete(name);
        this.#followed();
      },
    };
  }

  status(): Omit<ApiStatus, 'servers'> {
    const all = [...this.#resources.values()];
    const now = this.#clock.now();
    const lost = all.filter(({ isFollowed }) => !isFollowed);
    const listed = all.flatMap(({ listedAt }) => listedAt ?? []);
    return {
      connected: lost.length === 0,
      lastContactAt: this.#options.lastContactAt(),
      listedAt: listed.length === all.length && all.length > 0 ? Math.max(...listed) : undefined,
      staleForMs: Math.max(0, ...lost.map(({ heardAt }) => now - heardAt)),
      ...(lost.length > 0 && this.#err !== undefined && { err: this.#err }),
    };
  }

  stop(): void {
    this.#isStopped = true;
  }

  #lost(resource: string, err: string): void {
    this.#err = err;
    if (this.#lostAt !== undefined || this.#isStopped) return;
    this.#lostAt = this.#clock.now();
    const message = this.#wasConnected
      ? 'Cannot watch the API server; the last known state is served until it is back'
      : 'Cannot watch the API server yet; retrying';
    this.#options.log.warn(message, { server: this.#options.server(), resource, err });
  }

  #followed(): void {
    const isNews = this.#lostAt !== undefined || !this.#wasConnected;
    if (this.#isStopped || !isNews || !this.status().connected) return;
    this.#err = undefined;
    const { log, server } = this.#options;
    const message = this.#wasConnected ? 'Watching the API server again' : 'Watching the API server';
    const awayMs = this.#clock.now() - (this.#lostAt ?? 0);
    log.info(message, {
      server: server(),
      ...(this.#lostAt !== undefined && { awaySeconds: Math.round(awayMs / 1_000) }),
    });
    this.#wasConnected = true;
    this.#lostAt = undefined;
  }
}
