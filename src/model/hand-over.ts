import type { IpFamily } from './address.ts';
import type { ServicePortName } from './service.ts';
import type { ListenerId, ProxiedProtocol } from './service-port.ts';

/** A part of what a data plane has, on its way to another process. */
export interface Parcel {
  /** Survives JSON. What it means is the data plane's matter; on arrival it is hostile until that has checked it. */
  readonly value: unknown;
  /** Open descriptors of this process, which a sender keeps and a receiver owns. */
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
 * How a data plane passes on all that it has, or takes over all that another one of its kind had: listeners, connections,
 * flows, the pickers' state. Between `freeze` and `thaw` or `release` it touches none of its descriptors: clients wait
 * in the kernel's queues, and nothing is closed.
 */
export interface HandOver {
  /**
   * Resolves with everything, once the data plane is frozen. Nothing must be opened, updated or closed before `thaw`.
   * Rejects when a part of it does not get there; `thaw` is due then as well.
   */
  freeze(): Promise<Iterable<Parcel>>;
  /** Throws an Error with a sentence when a part of it has failed since it was frozen. */
  check(): void;
  /**
   * Goes on as if nothing had been. Also how a data plane that has adopted something begins with it. What belongs to a
   * part that has failed meanwhile is reset.
   */
  thaw(): void;
  /** Resolves when all of it is at work again after {@link thaw}. What has failed meanwhile is told by the log. */
  atWork(): Promise<void>;
  /**
   * Another process has gone on with all of it, and is dead: in place of {@link thaw}. Its ports go on, with their
   * endpoints and counters. What that one may have left half done, connections and flows, is reset.
   */
  recover(): void;
  /** Another process goes on with all of it: this one's copies are closed, and the data plane is at its end. */
  release(): Promise<void>;
  /**
   * Takes over what another data plane has described, without touching it: from {@link thaw} on it is this one's. It asks
   * for the next parcel when it has adopted the one before. Rejects with a sentence when the parcels are not as they
   * should be, or a part of it fails; end the process then, without `shutdown`, which would reset connections that are
   * still the other's. Only between `freeze` and `thaw`, and before the first `open`.
   */
  adopt(parcels: AsyncIterable<Parcel> | Iterable<Parcel>): Promise<readonly AdoptedPort[]>;
}
