import type { Address } from '../../model/address.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';

/** How the keys of a set of ours look, and what a map has for a key. */
interface SetShape {
  readonly hasAddress: boolean;
  /** `port`: a local port, or a number that stands for a refusal. `verdict`: the chain to go on with. Absent: a set. */
  readonly data?: 'port' | 'verdict';
  readonly expires?: true;
}

/**
 * The sets and maps of the table, in the order in which they are declared. Those with an address are about addresses of
 * Services, or of one address of the node; the others about NodePorts and local ports.
 */
export const SETS = {
  portals: { hasAddress: true, data: 'port' },
  'portals-local': { hasAddress: true, data: 'port' },
  conditions: { hasAddress: true, data: 'verdict' },
  'conditions-out': { hasAddress: true, data: 'verdict' },
  nodeports: { hasAddress: false, data: 'port' },
  'nodeports-local': { hasAddress: false, data: 'port' },
  'nodeport-conditions': { hasAddress: false, data: 'verdict' },
  spared: { hasAddress: true },
  'let-in': { hasAddress: true },
  'health-checks': { hasAddress: false },
  'local-ports': { hasAddress: false },
  retired: { hasAddress: false, expires: true },
} as const satisfies Readonly<Record<string, SetShape>>;

export type SetName = keyof typeof SETS;

export const SET_NAMES = Object.keys(SETS) as readonly SetName[];

export function shapeOf(set: SetName): SetShape {
  return SETS[set];
}

/** One element of a set or map. */
export interface Element {
  readonly set: SetName;
  /** Where the set's keys have one. */
  readonly address?: Address | undefined;
  readonly protocol: ProxiedProtocol;
  readonly port: number;
  /** A port, or the name of a chain. */
  readonly data?: number | string | undefined;
  /** The Service port that it is for. */
  readonly comment: string;
  /** How long it stays, where elements expire. */
  readonly leftMs?: number | undefined;
}

/** Identifies an element in the table. */
export function keyOf({ set, address, protocol, port }: Element): string {
  // Joined, as a text from a template keeps its parts, and there are tens of thousands.
  return [set, address ?? '', protocol, port].join(' ');
}

/** Whether both lead to the same. The time that is left does not count. */
export function sameElement(one: Element, other: Element): boolean {
  return one.data === other.data && one.comment === other.comment;
}

/** As nft prints it: `10.96.0.1 . tcp . 80 comment "shop/web:http" : 40001`. */
export function elementText({ address, protocol, port, data, comment }: Element): string {
  const key = [...(address === undefined ? [] : [address]), protocol.toLowerCase(), port].join(' . ');
  const value = data === undefined ? '' : ` : ${typeof data === 'string' ? `goto ${data}` : data}`;
  return `${key} comment "${comment}"${value}`;
}
