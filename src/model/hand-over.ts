import type { ListenerName } from './data-plane.ts';

/** A part of a data plane's state on its way to another process. Only data planes know its contents. */
export interface Parcel {
  /** Open descriptors of this process. The sender keeps them; the receiver owns copies. */
  readonly fds: readonly number[];
  readonly bytes: Uint8Array;
}

/** A listener that a predecessor had opened. */
export interface AdoptedPort extends ListenerName {
  /** Where it listens. */
  readonly address: string;
  readonly localPort: number;
}

/**
 * Moves listeners, connections, flows and the pickers' state from one data plane to another of its kind. Between
 * `freeze` and `thaw` or `release` it touches none of its descriptors: clients wait in the kernel's queues.
 */
export interface HandOver {
  /**
   * Resolves with everything, parcel by parcel, because all of it at once may take hundreds of megabytes. Nothing must
   * be opened, updated or closed before `thaw`. Rejects when a part cannot be frozen, and throws later when a part has
   * failed before it was described; `thaw` is due then as well.
   */
  freeze(): Promise<AsyncIterable<Parcel> | Iterable<Parcel>>;
  /** Throws a sentence when a part has failed since it was frozen. */
  check(): void;
  /** Continues, also after {@link adopt}. Resets the connections of a part that has failed meanwhile. */
  thaw(): void;
  /** Resolves when all of it works again after {@link thaw}. Failures are in the log. */
  atWork(): Promise<void>;
  /**
   * In place of {@link thaw} when another process has taken over and died. Ports continue with their endpoints and
   * counters. Connections and flows, which that process may have left half done, are reset.
   */
  recover(): void;
  /** Another process has taken over: closes this process's copies and ends the data plane. */
  release(): Promise<void>;
  /**
   * Takes over what another data plane has described, without touching it before {@link thaw}. Asks for one parcel at
   * a time. Rejects with a sentence when a parcel is not valid or a part of the data plane fails. Then end the process
   * without `shutdown`, which would reset the other's connections. Only between `freeze` and `thaw`, before any `open`.
   */
  adopt(parcels: AsyncIterable<Parcel> | Iterable<Parcel>): Promise<readonly AdoptedPort[]>;
}
