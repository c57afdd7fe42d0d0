import { type Address, addressBytes, type Cidr, familyOf } from '../model/address.ts';
import type { ClientFacts, KeptAddresses, KeptFor } from '../model/client-address.ts';

/** Decides which clients endpoints see by their own address (docs/adr/0023). Asked once for each connection. */
export class KnownClients {
  readonly #families: ReadonlySet<string>;
  readonly #nodeAddresses: ReadonlySet<Address>;
  readonly #isPod: (client: Address) => boolean;

  constructor({ families, nodeAddresses, podCidrs }: ClientFacts) {
    this.#families = new Set(families);
    this.#nodeAddresses = new Set(nodeAddresses);
    this.#isPod = podCidrs === undefined ? () => true : containing(podCidrs);
  }

  /** For which destinations of a listener the address of this client is kept. */
  keptFor({ pods, others }: KeptAddresses, client: Address): KeptFor {
    if (pods === 'none' && others === 'none') return 'none';
    if (!this.#families.has(familyOf(client)) || isLoopback(client) || this.#nodeAddresses.has(client)) return 'none';
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

function isLoopback(address: Address): boolean {
  return address.startsWith('127.') || address === '::1';
}

function containing(cidrs: readonly Cidr[]): (address: Address) => boolean {
  const blocks = cidrs.map(({ network, prefixLength }) => ({ bytes: addressBytes(network), prefixLength }));
  return (address) => {
    const bytes = addressBytes(address);
    return blocks.some((block) => block.bytes.length === bytes.length && hasPrefix(bytes, block));
  };
}

function hasPrefix(
  bytes: readonly number[],
  block: { readonly bytes: readonly number[]; prefixLength: number },
): boolean {
  for (let i = 0, left = block.prefixLength; left > 0; i++, left -= 8) {
    const mask = left >= 8 ? 0xff : (0xff00 >> left) & 0xff;
    if ((((bytes[i] as number) ^ (block.bytes[i] as number)) & mask) !== 0) return false;
  }
  return true;
}
