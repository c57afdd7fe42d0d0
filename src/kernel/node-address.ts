import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import type { Log } from '../util/log.ts';
import { type HostAddress, hostAddress, localAddresses } from './host-address.ts';

export interface NodeAddressOptions {
  readonly family: IpFamily;
  readonly log: Log;
  /** What the machine says; by default this one, as it is now. */
  readonly machine?: {
    readonly hostAddress: () => HostAddress | undefined;
    readonly localAddresses: () => readonly Address[];
  };
}

/**
 * The address of this node, of one family, that rules lead to: what its Node object says, as long as this machine has that
 * address (a rule to any other would send the node's own connections away), or else that of the default route.
 * Warns once of each thing that is not as it should be.
 */
export class NodeAddress {
  readonly #family: IpFamily;
  readonly #log: Log;
  readonly #machine: NonNullable<NodeAddressOptions['machine']>;
  /** `undefined` while nothing is known of the Node object. */
  #preferred: readonly Address[] | undefined;
  #isExpected = true;
  #told: string | undefined;

  constructor({ family, log, machine = machineOf(family) }: NodeAddressOptions) {
    this.#family = family;
    this.#log = log;
    this.#machine = machine;
  }

  /** The addresses of the Node object. `isExpected`: that none of them is of this family is worth a warning. */
  prefer(addresses: readonly Address[], { isExpected }: { readonly isExpected: boolean }): void {
    this.#preferred = addresses.filter((address) => familyOf(address) === this.#family);
    this.#isExpected = isExpected;
  }

  /** `undefined` on a machine that has no address but loopback ones. */
  current(): Address | undefined {
    const local = new Set(this.#machine.localAddresses());
    const preferred = this.#preferred ?? [];
    const named = preferred.find((address) => local.has(address));
    if (named !== undefined) {
      this.#tell(named, () => this.#log.v(1)?.info('Rules lead to the address of the Node object', { address: named }));
      return named;
    }
    const found = this.#machine.hostAddress();
    if (found === undefined) return undefined;
    const fields = { address: found.address, interface: found.interfaceName, nodeObject: preferred.join(',') };
    const isMissed = this.#isExpected && this.#preferred?.length === 0;
    this.#tell(JSON.stringify([fields, isMissed]), () => {
      if (isMissed) {
        this.#log.warn(
          `The Node object names no ${this.#family} address; rules lead to the address of the default route`,
          fields,
        );
      } else if (preferred.length > 0) {
        this.#log.warn(
          'This machine has no address of its Node object; rules lead to another of its addresses',
          fields,
        );
      } else if (found.isFallback) {
        this.#log.warn('No default route; rules lead to another address of this node', fields);
      } else {
        this.#log.v(1)?.info('Rules lead to the address of the default route', fields);
      }
    });
    return found.address;
  }

  #tell(what: string, say: () => void): void {
    if (this.#told === what) return;
    this.#told = what;
    say();
  }
}

function machineOf(family: IpFamily): NonNullable<NodeAddressOptions['machine']> {
  return { hostAddress: () => hostAddress(family), localAddresses: () => localAddresses(family) };
}
