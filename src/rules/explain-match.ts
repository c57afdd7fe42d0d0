import type { Address } from '../model/address.ts';
import { addressBlock, cidrContains, parseCidr } from '../model/address.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { OWN_CONNECTIONS } from './chains.ts';

/** The first packet of a connection or flow, as it stands at one place on its way through the kernel. */
export interface TracedPacket {
  readonly protocol: ProxiedProtocol;
  readonly source: Address;
  /** `undefined` once it has been redirected to whatever address the interface has that it came in by. */
  readonly address: Address | undefined;
  readonly port: number;
  /** A process of this node has made it. */
  readonly isOwn: boolean;
  /** Which it came in by; empty: none. `undefined` when that is not known. */
  readonly inInterface: string | undefined;
  /** By which one leaves that this node has made; empty once it comes in. `undefined` when that is not known. */
  readonly outInterface?: string | undefined;
  /** NAT has sent it here. */
  readonly isFromNat: boolean;
}

/** Whether this machine has an address. */
export type IsLocal = (address: Address) => boolean;

/** A rule as `iptables -S` prints it, without `-A CHAIN`. */
export interface ParsedRule {
  readonly matches: readonly Match[];
  /** Absent for a rule that only counts. */
  readonly target?: RuleTarget;
}

export interface RuleTarget {
  /** Of a chain, or what iptables calls a target. */
  readonly name: string;
  /** `-g`: what follows in this chain is skipped. */
  readonly isGoto: boolean;
  readonly options: readonly string[];
}

interface Match {
  readonly option: string;
  readonly isNegated: boolean;
  readonly values: readonly string[];
}

const COMMENT = '--comment';
const WORD = /"(?:[^"\\]|\\.)*"|\S+/g;

export function parseRule(spec: string): ParsedRule {
  const matches: { option: string; isNegated: boolean; values: string[] }[] = [];
  const words = spec.match(WORD) ?? [];
  let isNegated = false;
  for (const [index, word] of words.entries()) {
    const last = matches.at(-1);
    // Whatever the word is: iptables prints one like "-j" without quotes.
    if (last?.option === COMMENT && last.values.length === 0) {
      last.values.push(word);
    } else if (word === '-j' || word === '-g') {
      const [name = '', ...options] = words.slice(index + 1);
      return { matches, target: { name, isGoto: word === '-g', options } };
    } else if (word === '!') {
      isNegated = true;
    } else if (word.startsWith('-')) {
      matches.push({ option: word, isNegated, values: [] });
      isNegated = false;
    } else {
      last?.values.push(word);
    }
  }
  return { matches };
}

/** Whether the rule is for this packet; `undefined` when it asks for something that is not known here. */
export function matchesPacket({ matches }: ParsedRule, packet: TracedPacket, isLocal: IsLocal): boolean | undefined {
  let isKnown = true;
  // No packet that is traced here is the proxy's own.
  if (matches.some(({ option, values }) => option === COMMENT && values[0] === `"${OWN_CONNECTIONS}"`)) return false;
  for (const match of matches) {
    const matched = matchOne(match, packet, isLocal);
    // One that says no is enough, whatever the others say.
    if (matched !== undefined && matched === match.isNegated) return false;
    if (matched === undefined) isKnown = false;
  }
  return isKnown ? true : undefined;
}

/** Without regard to its negation. */
function matchOne({ option, values }: Match, packet: TracedPacket, isLocal: IsLocal): boolean | undefined {
  const [value = ''] = values;
  switch (option) {
    // Loads a match, whose options follow, or explains the rule to people.
    case '-m':
    case COMMENT:
      return true;
    case '-p':
      return PROTOCOL_NAMES[packet.protocol].includes(value);
    case '-s':
      return isWithin(value, packet.source);
    case '-d':
      return packet.address && isWithin(value, packet.address);
    case '-i':
      return isInterface(value, packet.inInterface);
    case '-o':
      return isInterface(value, packet.isOwn ? packet.outInterface : '');
    case '--dport':
    case '--dports':
      return value.split(',').some((range) => hasPort(range, packet.port));
    case '--dst-type':
      return isOfType(value, packet.address, isLocal);
    case '--src-type':
      return isOfType(value, packet.source, isLocal);
    case '--state':
    case '--ctstate':
      return value.split(',').some((state) => state === 'NEW' || (state === 'DNAT' && packet.isFromNat));
    default:
      return undefined;
  }
}

const PROTOCOL_NAMES: Readonly<Record<ProxiedProtocol, readonly string[]>> = { TCP: ['tcp', '6'], UDP: ['udp', '17'] };

function isWithin(network: string, address: Address): boolean | undefined {
  const cidr = parseCidr(network.includes('/') ? network : `${network}/${addressBlock(address).prefixLength}`);
  return cidr && cidrContains(cidr, address);
}

/** "eth0"; "cali+" is every interface whose name begins like this. */
function isInterface(pattern: string, name: string | undefined): boolean | undefined {
  if (name === undefined) return undefined;
  return pattern.endsWith('+') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** "80", "0:255" */
function hasPort(range: string, port: number): boolean {
  const [first = Number.NaN, last = first] = range.split(':').map(Number);
  return first <= port && port <= last;
}

function isOfType(types: string, address: Address | undefined, isLocal: IsLocal): boolean | undefined {
  // What was redirected to an address of the node is local, whichever it is.
  if (address !== undefined && !isLocal(address)) return types === 'LOCAL' ? false : undefined;
  return types.split(',').includes('LOCAL') ? true : undefined;
}
