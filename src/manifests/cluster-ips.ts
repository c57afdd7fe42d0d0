import { type Address, addressBytes, type Cidr, familyOf, parseAddress } from '../model/address.ts';
import type { Service, ServiceKey } from '../model/service.ts';
import { hash32 } from '../util/hash.ts';
import { ipText } from '../util/ip-bytes.ts';

/** No hash has more. */
const MAX_BITS = 32;

/** Of places that are chosen by hash before the next free one is taken. */
const HASHES = 8;

/**
 * Addresses from these ranges for the Services that were written without, in each of their families that has a range.
 * A Service whose family has no free address is left without it.
 *
 * They follow from the Services alone, so every start finds the same ones, whatever order the files are read in. The
 * place of a Service is a hash of its name, so others hardly ever move it: only one that was given the same address by
 * hand, or that has the same hash and a name before its own.
 */
export function assignClusterIPs(
  services: Iterable<Service>,
  ranges: readonly Cidr[],
): ReadonlyMap<ServiceKey, readonly Address[]> {
  const taken = new Set<Address>();
  const waiting: Service[] = [];
  for (const service of services) {
    const { clusterIPs, externalIPs, loadBalancerIPs, families } = service;
    for (const address of [...clusterIPs, ...externalIPs, ...loadBalancerIPs]) taken.add(address);
    if (families !== undefined) waiting.push(service);
  }
  waiting.sort(({ key: a }, { key: b }) => (a < b ? -1 : 1));
  const pools = ranges.map((range) => ({ family: familyOf(range.network), places: placesOf(range) }));
  const assigned = new Map<ServiceKey, readonly Address[]>();
  for (const { key, families = [] } of waiting) {
    const addresses = families.flatMap((family) => {
      const places = pools.find((pool) => pool.family === family)?.places;
      const address = places && freeAddress(key, places, taken);
      if (address === undefined) return [];
      taken.add(address);
      return [address];
    });
    assigned.set(key, addresses);
  }
  return assigned;
}

/** The addresses of a range, by number: from `first` to `last`, those before `dynamic` only when no other is free. */
interface Places {
  readonly first: number;
  readonly dynamic: number;
  readonly last: number;
  address(place: number): Address;
}

/**
 * The first addresses are for people to choose from, as many as in the API server (Kubernetes' KEP 3070); the first and
 * the last one of IPv4 are those of the network and the broadcast.
 */
function placesOf({ network, prefixLength }: Cidr): Places {
  const base = addressBytes(network);
  const size = 2 ** Math.min(MAX_BITS, base.length * 8 - prefixLength);
  const hasEnds = size > 2;
  const byHand = size > 16 ? Math.min(Math.max(16, Math.floor(size / 16)), 256) : 0;
  const first = hasEnds ? 1 : 0;
  return {
    first,
    dynamic: Math.max(first, byHand),
    last: size - (hasEnds && base.length === 4 ? 2 : 1),
    address: (place) => {
      const bytes = base.map((byte, index) => byte | (Math.floor(place / 256 ** (base.length - 1 - index)) & 0xff));
      return parseAddress(ipText(bytes)) as Address;
    },
  };
}

function freeAddress(key: ServiceKey, places: Places, taken: ReadonlySet<Address>): Address | undefined {
  const { first, dynamic, last, address } = places;
  const count = last - dynamic + 1;
  let place = dynamic;
  for (let seed = 0; seed < HASHES && count > 0; seed++) {
    place = dynamic + (hash32(key, seed) % count);
    const candidate = address(place);
    if (!taken.has(candidate)) return candidate;
  }
  for (const next of round(place, { first, dynamic, last })) {
    const candidate = address(next);
    if (!taken.has(candidate)) return candidate;
  }
  return undefined;
}

/** From `place` to the end, from the dynamic ones on, and at last those for people. */
function* round(place: number, { first, dynamic, last }: Pick<Places, 'first' | 'dynamic' | 'last'>) {
  for (let each = place + 1; each <= last; each++) yield each;
  for (let each = dynamic; each < place; each++) yield each;
  for (let each = first; each < dynamic; each++) yield each;
}
