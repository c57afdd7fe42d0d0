import type { DialFailure } from './data-plane.ts';
import type { Endpoint } from './endpoint.ts';
import type { ServicePortName } from './service.ts';
import type { ProxiedProtocol } from './service-port.ts';

/** Who ended a connection or flow, and how. docs/commands.md explains each. */
export const ENDINGS = [
  'client-end',
  'client-reset',
  'backend-end',
  'backend-reset',
  'backend-error',
  'proxy-idle',
  'proxy-dead',
  'proxy-drain',
  'proxy-removed',
  'proxy-replaced',
  'proxy-shutdown',
  'proxy-error',
  'proxy-age',
  'refused-no-endpoints',
  'refused-exhausted',
  'refused-wait-timeout',
  'refused-wait-full',
  'refused-limit',
  'refused-error',
] as const;

export type Ending = (typeof ENDINGS)[number];

export interface FailedTry {
  /** `endpointName` of an endpoint that did not answer. */
  readonly backend: string;
  readonly reason: DialFailure;
}

/** So many failed tries of one connection are kept one by one. A Service may have thousands of dead endpoints. */
const MAX_FAILED_TRIES = 16;

/** What became of the dials of one connection. */
export interface Tries {
  /** Dials after the first. */
  readonly retries: number;
  /** The first {@link MAX_FAILED_TRIES} that failed. */
  readonly failed: readonly FailedTry[];
  /** The others, by reason. */
  readonly moreFailed?: Readonly<Partial<Record<DialFailure, number>>> | undefined;
}

export const NO_TRIES: Tries = { retries: 0, failed: [] };

/**
 * One TCP connection or UDP flow that has ended, or one client that was refused. Every TCP entry is counted among the
 * `connections` of its Service port, and every UDP entry that is not refused.
 */
export interface ConnectionEntry {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  /** `undefined` when it had gone before anything was known of it. */
  readonly client: Endpoint | undefined;
  /** `endpointName` of the endpoint that answered, or that a flow was sent to. */
  readonly backend: string | undefined;
  readonly ending: Ending;
  /** Milliseconds since 1970, by the clock as it was set at the end. */
  readonly endedAt: number;
  readonly durationMs: number;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  readonly tries: Tries;
  /** How long it waited for an endpoint. Absent: not at all. */
  readonly waitedMs?: number;
}

/** Called on the data path by an engine without threads: must be cheap, and must not throw. */
export interface ConnectionLogSink {
  ended(entries: readonly ConnectionEntry[]): void;
  /** So many entries are missing, because they came faster than they could be passed on. */
  lost(count: number): void;
}

/** The tries of one connection, as they happen. Only connections with a failed dial have one. */
export class TryLog implements Tries {
  retries: number;
  readonly failed: FailedTry[];
  moreFailed: Partial<Record<DialFailure, number>> | undefined;

  /** Continues what another process has noted. */
  constructor({ retries, failed, moreFailed }: Tries = NO_TRIES) {
    this.retries = retries;
    this.failed = [...failed];
    this.moreFailed = moreFailed && { ...moreFailed };
  }

  fail(backend: string, reason: DialFailure): void {
    if (this.failed.length < MAX_FAILED_TRIES) {
      this.failed.push({ backend, reason });
      return;
    }
    this.moreFailed ??= {};
    this.moreFailed[reason] = (this.moreFailed[reason] ?? 0) + 1;
  }

  /** As a value, which may leave the thread or the process. */
  get value(): Tries {
    const { retries, failed, moreFailed } = this;
    return { retries, failed, ...(moreFailed && { moreFailed }) };
  }
}
