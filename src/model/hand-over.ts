import type { IpFamily } from './address.ts';
import type { ServicePortName } from './service.ts';
import type { ListenerId, ProxiedProtocol } from './service-port.ts';

/** A part of what a data plane has, on its way to another process. Only data planes know what is in it. */
export interface Parcel {
  /** Open descriptors of this process. The sender keeps them; the receiver owns copies. */
  readonly fds: readonly number[];
  readonly bytes: Uint8Array;
}

/** A listener that a predecessor had opened. */
export interface AdoptedPort {
  readonly id: ListenerId;
  readonly name: ServicePortName;
  readonly family: IpFamily;
  readonly protocol: ProxiedProtocol;
  /** Where it listens. */
  readonly address: string;
  readonly localPort: number;
}

/**
 * How a data plane passes on all that it has, or takes over all that another one of its kind had: listeners,
 * connections, flows, the pickers' state. Between `freeze` and `thaw` or `release` it touches none of its descriptors:
 * clients wait in the kernel's queues, and nothing is closed.
 */
export interface HandOver {
  /**
   * Resolves with everything, once the data plane is frozen. Nothing must be opened, updated or closed before `thaw`.
   * Rejects when a part of it cannot be frozen; `thaw` is due then as well.
   */
  freeze(): Promise<Iterable<Parcel>>;
  /** Throws an Error with a sentence when a part of it has failed since it was frozen. */
  check(): void;
  /**
   * Goes on as if nothing had happened. Also how a data plane that has adopted something begins with it. Connections of
   * a part that has failed meanwhile are reset.
   */
  thaw(): void;
  /** Resolves when all of it is at work again after {@link thaw}. What has failed meanwhile is in the log. */
  atWork(): Promise<void>;
  /**
   * In place of {@link thaw} when another process has gone on with all of it, and is dead. The ports go on, with their
   * endpoints and counters. Connections and flows, which that process may have left half done, are reset.
   */
  recover(): void;
  /** Another process goes on with all of it: closes this process's copies and ends the data plane. */
  release(): Promise<void>;
  /**
   * Takes over what another data plane has described, without touching it: from {@link thaw} on it is this one's. It
   * asks for the next parcel when it has adopted the one before. Rejects with a sentence when a parcel is not valid or
   * a part of the data plane fails. End the process then, without `shutdown`, which would reset connections that are
   * still the other's. Only between `freeze` and `thaw`, and before the first `open`.
   */
  adopt(parcels: AsyncIterable<Parcel> | Iterable<Parcel>): Promise<readonly AdoptedPort[]>;
}
