/**
 * How many times what is free a tenant may hold: alone 4/5 of the whole, two 4/9 each, n at most 4/(4n + 1). Some is
 * always free for the next.
 */
const SHARE_OF_FREE = 4;

/**
 * Whether a tenant that holds so many of a limited resource may take one more. No tenant has a share of its own that
 * would lie idle: the bound falls as others need more, and rises when they need less. Nobody is evicted; who holds more
 * than the bound gets nothing new until enough of it has ended. These are the dynamic thresholds of shared-memory
 * switches (Choudhury and Hahne, 1998).
 */
export function mayTakeMore(held: number, free: number): boolean {
  return held < SHARE_OF_FREE * free;
}
