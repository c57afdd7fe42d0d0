import type { Address } from './address.ts';

/** `namespace/name` */
export type PodKey = `${string}/${string}`;

/** Knows where the pods of this node are, whatever an API server says. */
export interface PodAddresses {
  /**
   * Of those that run; without an address, a pod has the node's own. Rejects with a sentence when nobody can say.
   */
  addressesOf(pods: ReadonlySet<PodKey>): Promise<ReadonlyMap<PodKey, readonly Address[]>>;
}
