import { type Address, cidrMatcher, familyOf, isLoopback, needsLink } from '../model/address.ts';
import type { ClientFacts, KeptAddresses, KeptFor } from '../model/client-address.ts';

/** Decides which clients endpoints see by their own address (docs/adr/0023). Asked once for each connection. */
export class KnownClients {
  readonly #families: ReadonlySet<string>;
  readonly #nodeAddresses: ReadonlySet<Address>;
  readonly #isRoutedApart: (client: Address) => boolean;
  readonly #isPod: (client: Address) => boolean;

  constructor({ families, nodeAddresses, routedApart = [], podCidrs }: ClientFacts) {
    this.#families = new Set(families);
    this.#nodeAddresses = new Set(nodeAddresses);
    this.#isRoutedApart = cidrMatcher(routedApart);
    this.#isPod = podCidrs === undefined ? () => true : cidrMatcher(podCidrs);
  }

  /** For which destinations of a listener the address of this client is kept. */
  keptFor({ pods, others }: KeptAddresses, client: Address): KeptFor {
    if (pods === 'none' && others === 'none') return 'none';
    if (!this.#families.has(familyOf(client)) || isLoopback(client) || this.#nodeAddresses.has(client)) return 'none';
    if (needsLink(client) || this.#isRoutedApart(client)) return 'none';
    if (pods === others) return pods;
    return this.#isPod(client) ? pods : others;
  }
}

/** `destination`: what the client sent to. */
export function isKeptTowards(destination: Address, keptFor: KeptFor, { clusterIPs }: KeptAddresses): boolean {
  if (keptFor === 'all' || keptFor === 'none') return keptFor === 'all';
  return clusterIPs.includes(destination) === (keptFor === 'internal');
}

/**
 * Whether an endpoint can see the client's address at all. The answers of one that is the client would not come back,
 * and packets to a loopback address must have the source of one.
 */
export function canSee(endpoint: Address, client: Address): boolean {
  return endpoint !== client && !isLoopback(endpoint);
}
