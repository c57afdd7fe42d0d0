import type { Address } from './address.ts';

export type Protocol = 'TCP' | 'UDP' | 'SCTP';

/** `namespace/name` of a Service, or of a slice; both halves are validated DNS names, so the key never needs quoting. */
export type ServiceKey = `${string}/${string}`;

/**
 * Upstream's ServicePortName in its printed form: `namespace/name` for an unnamed port, else `namespace/name:port`.
 * It names a Service port in logs, metrics and rule comments.
 */
export type ServicePortName = ServiceKey | `${ServiceKey}:${string}`;

export type SessionAffinity =
  | { readonly type: 'None' }
  | {
      readonly type: 'ClientIP';
      /** Since the client's last new connection. */
      readonly timeoutSeconds: number;
    };

/** One entry of a Service's `spec.ports`. */
export interface ServicePortSpec {
  /** Empty for the single unnamed port. Endpoints are matched by it. */
  readonly name: string;
  readonly protocol: Protocol;
  /** 1…65535 */
  readonly port: number;
  /** 0 when the Service has none. */
  readonly nodePort: number;
}

/** A Service as far as a node proxy needs it: every field validated, nothing else kept. */
export interface Service {
  readonly key: ServiceKey;
  readonly clusterIPs: readonly Address[];
  readonly externalIPs: readonly Address[];
  readonly loadBalancerIPs: readonly Address[];
  readonly ports: readonly ServicePortSpec[];
  readonly affinity: SessionAffinity;
}

export function servicePortName(service: ServiceKey, port: string): ServicePortName {
  return port === '' ? service : `${service}:${port}`;
}
