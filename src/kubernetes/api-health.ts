import type { ApiStatus } from '../model/source.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log } from '../util/log.ts';

/** How one kind of object fares; told by its reflector. */
export interface ResourceHealth {
  /** A list was taken over. */
  listed(): void;
  /** Changes arrive from here on. */
  following(): void;
  /** The server showed that it is still there for this resource. */
  heard(): void;
  /** Changes are missed from the last {@link heard} on. */
  lost(reason: string): void;
  /** It is not followed any more, or the server does not have it: it counts no longer. */
  dismissed(): void;
}

interface Resource {
  listedAt: number | undefined;
  heardAt: number;
  /** `undefined` while it is followed. */
  lostReason: string | undefined;
}

/** The first reminder that the server is still away; each further one waits twice as long. */
const REMINDER_MS = 30_000;
const REMINDER_MAX_MS = 3_600_000;

/**
 * The state of the connection to the API server as a whole: one line in the log when it goes, with the reason, some at
 * growing intervals while it is away, and one when it is back.
 */
export class ApiHealth {
  readonly #server: string;
  readonly #lastContactAt: () => number | undefined;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #resources = new Map<string, Resource>();
  #away: { readonly since: number; reminderMs: number; timer: Timer } | undefined;
  #wasConnected = false;
  #isStopped = false;

  constructor({
    server,
    lastContactAt,
    clock,
    log,
  }: {
    /** `host:port`, for messages. */
    readonly server: string;
    readonly lastContactAt: () => number | undefined;
    readonly clock: Clock;
    readonly log: Log;
  }) {
    this.#server = server;
    this.#lastContactAt = lastContactAt;
    this.#clock = clock;
    this.#log = log;
  }

  /** Counts the resource as lost until it is followed. */
  resource(name: string): ResourceHealth {
    const resource: Resource = { listedAt: undefined, heardAt: this.#clock.now(), lostReason: 'not followed yet' };
    this.#resources.set(name, resource);
    return {
      listed: () => {
        resource.listedAt ??= this.#clock.now();
      },
      following: () => {
        resource.lostReason = undefined;
        resource.heardAt = this.#clock.now();
        this.#resources.set(name, resource);
        this.#followed();
      },
      heard: () => {
        resource.heardAt = this.#clock.now();
      },
      lost: (reason) => {
        resource.lostReason = reason;
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
    const lost = all.filter(({ lostReason }) => lostReason !== undefined);
    const listed = all.flatMap(({ listedAt }) => listedAt ?? []);
    return {
      connected: lost.length === 0,
      lastContactAt: this.#lastContactAt(),
      listedAt: listed.length === all.length && all.length > 0 ? Math.max(...listed) : undefined,
      staleForMs: Math.max(0, ...lost.map(({ heardAt }) => now - heardAt)),
    };
  }

  /** Says no more. */
  stop(): void {
    this.#isStopped = true;
    this.#endAway();
  }

  #endAway(): void {
    this.#away?.timer.cancel();
    this.#away = undefined;
  }

  #lost(resource: string, reason: string): void {
    if (this.#away !== undefined || this.#isStopped) return;
    this.#away = { since: this.#clock.now(), reminderMs: REMINDER_MS, timer: this.#remindIn(REMINDER_MS) };
    const message = this.#wasConnected
      ? 'The API server cannot be followed; the last known state is served until it is back'
      : 'The API server cannot be followed yet; trying on';
    this.#log.warn(message, { server: this.#server, resource, err: reason });
  }

  #followed(): void {
    if (this.#isStopped || !this.status().connected) return;
    const message = this.#wasConnected ? 'The API server is followed again' : 'The API server is followed';
    if (this.#away !== undefined) {
      this.#log.info(message, { server: this.#server, awaySeconds: this.#awaySeconds(this.#away.since) });
    } else if (!this.#wasConnected) {
      this.#log.info(message, { server: this.#server });
    }
    this.#wasConnected = true;
    this.#endAway();
  }

  #remindIn(ms: number): Timer {
    return this.#clock.after(ms, () => {
      const away = this.#away;
      if (away === undefined) return;
      const lost = [...this.#resources].find(([, { lostReason }]) => lostReason !== undefined);
      this.#log.warn('The API server still cannot be followed', {
        server: this.#server,
        awaySeconds: this.#awaySeconds(away.since),
        resource: lost?.[0],
        err: lost?.[1].lostReason,
      });
      away.reminderMs = Math.min(2 * away.reminderMs, REMINDER_MAX_MS);
      away.timer = this.#remindIn(away.reminderMs);
    });
  }

  #awaySeconds(since: number): number {
    return Math.round((this.#clock.now() - since) / 1_000);
  }
}
