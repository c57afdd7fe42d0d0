import type { Address } from '../model/address.ts';

/** Which objects mention an address. Most addresses are mentioned once, so only others pay for a set. */
export class AddressIndex<T extends object> {
  readonly #mentions = new Map<Address, T | Set<T>>();

  add(address: Address, mention: T): void {
    const known = this.#mentions.get(address);
    if (known === undefined || known === mention) this.#mentions.set(address, mention);
    else if (known instanceof Set) known.add(mention);
    else this.#mentions.set(address, new Set([known, mention]));
  }

  delete(address: Address, mention: T): void {
    const known = this.#mentions.get(address);
    if (known instanceof Set) {
      known.delete(mention);
      if (known.size === 0) this.#mentions.delete(address);
    } else if (known === mention) {
      this.#mentions.delete(address);
    }
  }

  of(address: Address): Iterable<T> {
    const known = this.#mentions.get(address);
    if (known === undefined) return [];
    return known instanceof Set ? known : [known];
  }
}
