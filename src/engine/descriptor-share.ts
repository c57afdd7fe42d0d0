import type { ProxiedProtocol } from '../model/service-port.ts';
import { mayTakeMore } from '../services/fair-share.ts';

/** So many a client takes: its own and the endpoint's. Of the pipes of bulk there are few. */
export const DESCRIPTORS_OF: Readonly<Record<ProxiedProtocol, number>> = { TCP: 2, UDP: 1 };

/** How the descriptors of the process are divided. */
export interface DescriptorPlan {
  /** Those for listeners and clients. The others are kept for logs, the API server and iptables. */
  readonly total: number;
  /** Those of them that are kept for the first UDP flows of a namespace, and for clients who still need an endpoint. */
  readonly reserve: number;
}

/** Of the reserve, UDP flows count this part as free. */
const RESERVE_PART = 1 / 8;

export function planDescriptors(limit: number): DescriptorPlan {
  const reserve = Math.min(256, Math.ceil(limit / 8));
  return { total: limit - reserve, reserve };
}

/**
 * Whether a namespace may have one more connection or flow (docs/adr/0032). `held`: what it has; read only when
 * descriptors are scarce.
 */
export function hasShare(
  protocol: ProxiedProtocol,
  { total, reserve }: DescriptorPlan,
  free: number,
  held: { readonly total: number },
): boolean {
  const left = free - reserve;
  // Nobody holds more than what is not free.
  if (left > total / 2) return true;
  return mayTakeMore(held.total, protocol === 'UDP' ? Math.max(left, free * RESERVE_PART) : left);
}
