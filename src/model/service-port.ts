import type { Address } from './address.ts';
import type { Endpoint } from './endpoint.ts';
import type { Protocol, ServicePortName, SessionAffinity } from './service.ts';

/** What a user-space proxy can carry. SCTP is not (upstream `pkg/proxy/userspace/proxysocket.go`). */
export type ProxiedProtocol = Exclude<Protocol, 'SCTP'>;

/**
 * The snapshot of one Service port, joined with its endpoints. Frozen: a change makes a new one, so whoever holds a
 * reference sees a consistent whole.
 */
export interface ServicePort {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  readonly port: number;
  /** 0 when there is none. */
  readonly nodePort: number;
  readonly clusterIPs: readonly Address[];
  readonly externalIPs: readonly Address[];
  readonly loadBalancerIPs: readonly Address[];
  readonly affinity: SessionAffinity;
  /** Ready ones, without duplicates, in a stable order that carries no meaning. */
  readonly endpoints: readonly Endpoint[];
}

/** What changed since the last snapshot was taken: consumers keep their own view and do work only for these. */
export interface SnapshotDelta {
  readonly upserted: readonly ServicePort[];
  readonly removed: readonly ServicePortName[];
  /** Service ports that cannot be carried, each told once per change of its Service. */
  readonly unserved: readonly UnservedPort[];
}

export interface UnservedPort {
  readonly name: ServicePortName;
  /** A clause for the log, such as "SCTP is not supported in user space". */
  readonly reason: string;
}
