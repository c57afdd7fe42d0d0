import { type Address, addressBlock, cidrContains, parseAddress, parseCidr } from '../../model/address.ts';
import type { FollowedPacket, ServedSet } from '../../model/capture.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import type { RuleView } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { nextTurn } from '../../util/wait.ts';
import { isOurs, OWN_CONNECTIONS, plainSpec } from './chains.ts';
import { rulesOf } from './dump.ts';
import type { Table } from './iptables.ts';

/** The same packet somewhere in the kernel. */
export interface TracedPacket extends Omit<FollowedPacket, 'address'> {
  /** `undefined` after a redirect to an address of the incoming interface. */
  readonly address: Address | undefined;
  readonly isFromNat: boolean;
}

/** A rule in the kernel, as iptables prints it, without the `-A CHAIN`. */
export interface TracedRule extends Pick<RuleView, 'chain' | 'rule'> {
  readonly table: Table;
}

/** What becomes of a packet in one table. */
export type Fate =
  | { readonly kind: 'passes' }
  /** Without an address: to one of this node. */
  | { readonly kind: 'sent'; readonly address?: Address | undefined; readonly port: number; readonly by: TracedRule }
  | Stop;

/** `unclear`: the rule may decide, but has an unknown match or target. */
export interface Stop {
  readonly kind: 'dropped' | 'rejected' | 'unclear';
  /** For the policy of a chain, `-P` instead of a rule. */
  readonly by: TracedRule;
}

export interface Trace {
  /** In the order in which the packet meets them, in nat and then in filter. */
  readonly rules: readonly TracedRule[];
  readonly nat: Fate;
  /** After NAT: in OUTPUT for a packet of this node, and in INPUT if it comes there. */
  readonly filter: Fate;
}

export interface Kernel {
  /** `Iptables.list` of one family. */
  readonly list: (table: Table, chain: string) => Promise<string>;
  readonly isLocal: (address: Address) => boolean;
  readonly clock: Clock;
}

const PASSES: Fate = { kind: 'passes' };

/** Chains that are rewritten between two reads may seem to be a circle. */
const MAX_DEPTH = 64;

const SLICE_MS = 5;

/**
 * Finds the rules of all programs in the kernel that match a packet, and what they do with it. Reads only chains on its
 * way. Rejects with an `IptablesError`.
 */
export async function trace(packet: TracedPacket, kernel: Kernel): Promise<Trace> {
  const walk = new Walk(kernel);
  const { rules } = walk;
  const nat = await walk.from('nat', packet.isOwn ? 'OUTPUT' : 'PREROUTING', packet);
  if (nat.kind !== 'sent' && nat.kind !== 'passes') return { rules, nat, filter: PASSES };
  const isSent = nat.kind === 'sent';
  const translated = isSent ? { ...packet, address: nat.address, port: nat.port, isFromNat: true } : packet;
  if (translated.address !== undefined && !kernel.isLocal(translated.address)) return { rules, nat, filter: PASSES };
  if (!packet.isOwn) return { rules, nat, filter: await walk.from('filter', 'INPUT', translated) };
  // The kernel keeps the outgoing interface that it chose before NAT.
  const output = await walk.from('filter', 'OUTPUT', translated);
  if (output.kind !== 'passes') return { rules, nat, filter: output };
  const arriving = { ...translated, inInterface: 'lo', outInterface: '' };
  return { rules, nat, filter: await walk.from('filter', 'INPUT', arriving) };
}

/** What a rule does with a packet that it matches. `return`: the rest of its chain is skipped. */
type Step = Fate | 'next' | 'return';

class Walk {
  readonly rules: TracedRule[] = [];
  readonly #kernel: Kernel;
  /** The effects of rules whose match is undecided. */
  #possible: { readonly fate: Fate; readonly by: TracedRule; readonly at: number }[] = [];

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
  }

  async from(table: Table, chain: string, packet: TracedPacket): Promise<Fate> {
    this.#possible = [];
    const text = await this.#kernel.list(table, chain);
    const [policy] = /^-P \S+ DROP$/m.exec(text) ?? [];
    const last: Fate = policy === undefined ? PASSES : { kind: 'dropped', by: { table, chain, rule: policy } };
    const fate = (await this.#through({ table, chain, text, depth: 0 }, packet)) ?? last;
    // An undecided rule matters only if it would make a difference.
    const other = this.#possible.find((possible) => !isSame(possible.fate, fate));
    if (other === undefined) return fate;
    this.rules.splice(other.at, Infinity, other.by);
    return { kind: 'unclear', by: other.by };
  }

  /** `undefined` when the chain decides nothing. */
  async #through(
    { table, chain, text, depth }: { table: Table; chain: string; text: string; depth: number },
    packet: TracedPacket,
  ): Promise<Fate | undefined> {
    const { clock, isLocal } = this.#kernel;
    let endMs = clock.now() + SLICE_MS;
    for (const spec of rulesOf(text, chain)) {
      if (clock.now() >= endMs) {
        await nextTurn(clock);
        endMs = clock.now() + SLICE_MS;
      }
      const rule = plainSpec(spec);
      const { matches, target } = parseRule(rule);
      const matched = matchesPacket(matches, packet, isLocal);
      if (matched === false || target === undefined) continue;
      const by: TracedRule = { table, chain, rule };
      const at = this.rules.push(by) - 1;
      const known = this.#possible.length;
      const step = await this.#follow(target, by, packet, depth);
      if (matched === undefined) this.#mayDo(step, by, at, known);
      else if (step === 'return') return undefined;
      else if (step !== 'next') return step;
    }
    return undefined;
  }

  /** The match is undecided: records the rule's effects as possible; the walk continues as if it did not match. */
  #mayDo(step: Step, by: TracedRule, at: number, known: number): void {
    this.rules.length = at;
    const effects = this.#possible.splice(known).map(({ fate }) => fate);
    if (step !== 'next') effects.push(step === 'return' ? { kind: 'unclear', by } : step);
    this.#possible.push(...effects.map((fate) => ({ fate, by, at })));
  }

  async #follow({ name, isGoto, options }: Target, by: TracedRule, packet: TracedPacket, depth: number): Promise<Step> {
    if (PASSING.has(name)) return 'next';
    if (name === 'ACCEPT') return PASSES;
    if (name === 'RETURN') return 'return';
    if (name === 'DROP') return { kind: 'dropped', by };
    if (name === 'REJECT') return { kind: 'rejected', by };
    if (name === 'DNAT' || name === 'REDIRECT') return sentTo(options, packet, by);
    const text = depth < MAX_DEPTH ? await this.#kernel.list(by.table, name) : '';
    // No such chain: an unknown target.
    if (text === '') return { kind: 'unclear', by };
    const fate = await this.#through({ table: by.table, chain: name, text, depth: depth + 1 }, packet);
    return fate ?? (isGoto ? 'return' : 'next');
  }
}

/** Targets after which a packet goes on. */
const PASSING = new Set(
  'AUDIT CHECKSUM CLASSIFY CONNMARK CONNSECMARK CT DSCP HL LOG MARK NFLOG NOTRACK SECMARK SET TCPMSS TOS TRACE TTL'
    .concat(' ULOG')
    .split(' '),
);

/** "--to-ports 8080", "--to-destination 10.0.0.1:8080", ":8080"; unclear for several ports or addresses. */
function sentTo([option, value = '', ...others]: readonly string[], packet: TracedPacket, by: TracedRule): Fate {
  const unclear: Fate = { kind: 'unclear', by };
  if (option === undefined) return { kind: 'sent', port: packet.port, by };
  if (others.length > 0) return unclear;
  if (option === '--to-ports') return /^\d+$/.test(value) ? { kind: 'sent', port: Number(value), by } : unclear;
  const [, bracketed, plain = value, port = packet.port] = /^(?:\[(.+)\]|([^:]*))(?::(\d+))?$/.exec(value) ?? [];
  // ":8080" leaves the address as it is.
  const address = plain === '' ? packet.address : parseAddress(bracketed ?? plain);
  const isOne = option === '--to-destination' && address !== undefined;
  return isOne ? { kind: 'sent', address, port: Number(port), by } : unclear;
}

function isSame(a: Fate, b: Fate): boolean {
  if (a.kind === 'sent' && b.kind === 'sent') return a.address === b.address && a.port === b.port;
  return a.kind === b.kind && a.kind !== 'unclear';
}

interface Target {
  /** A chain, or a target such as DROP. */
  readonly name: string;
  /** `-g`: the rest of this chain is skipped. */
  readonly isGoto: boolean;
  readonly options: readonly string[];
}

interface Match {
  readonly option: string;
  readonly isNegated: boolean;
  readonly values: string[];
}

const COMMENT = '--comment';
const WORD = /"(?:[^"\\]|\\.)*"|\S+/g;

/** A rule that only counts has no target. */
function parseRule(spec: string): { readonly matches: readonly Match[]; readonly target?: Target } {
  const matches: Match[] = [];
  const words = spec.match(WORD) ?? [];
  let isNegated = false;
  for (const [index, word] of words.entries()) {
    const last = matches.at(-1);
    // Whatever the word is: iptables prints a comment like "-j" without quotes.
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

/** `undefined` when the rule has an unknown match. */
function matchesPacket(
  matches: readonly Match[],
  packet: TracedPacket,
  isLocal: Kernel['isLocal'],
): boolean | undefined {
  const results = matches.map((match) => {
    const matched = matchOne(match, packet, isLocal);
    return matched === undefined ? undefined : matched !== match.isNegated;
  });
  if (results.includes(false)) return false;
  return results.includes(undefined) ? undefined : true;
}

const PROTOCOL_NAMES: Readonly<Record<ProxiedProtocol, readonly string[]>> = { TCP: ['tcp', '6'], UDP: ['udp', '17'] };

/** Ignores negation. */
function matchOne({ option, values }: Match, packet: TracedPacket, isLocal: Kernel['isLocal']): boolean | undefined {
  const [value = ''] = values;
  switch (option) {
    case '-m':
      return true;
    case COMMENT:
      // No packet that is traced here is the proxy's own.
      return value !== `"${OWN_CONNECTIONS}"`;
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
      return value.split(',').some((range) => {
        const [first = Number.NaN, last = first] = range.split(':').map(Number);
        return first <= packet.port && packet.port <= last;
      });
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

function isWithin(network: string, address: Address): boolean | undefined {
  const cidr = parseCidr(network.includes('/') ? network : `${network}/${addressBlock(address).prefixLength}`);
  return cidr && cidrContains(cidr, address);
}

/** "eth0"; "cali+" is every interface whose name begins like this. */
function isInterface(pattern: string, name: string | undefined): boolean | undefined {
  if (name === undefined) return undefined;
  return pattern.endsWith('+') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** A redirected packet goes to a local address. */
function isOfType(types: string, address: Address | undefined, isLocal: Kernel['isLocal']): boolean | undefined {
  if (address !== undefined && !isLocal(address)) return types === 'LOCAL' ? false : undefined;
  return types.split(',').includes('LOCAL') ? true : undefined;
}

const OWNER = /^"([^\s/"]+\/[^\s/"]+)( local)?( proxy port)?"$/;

/**
 * The Service port of a rule in our chains, from its comment. `isClosing`: it closes a local port to clients that
 * connect to the port itself.
 */
export function ruleOwner({ table, chain, rule }: TracedRule): (ServedSet & { isClosing: boolean }) | undefined {
  const comment = parseRule(rule).matches.find(({ option }) => option === COMMENT)?.values[0] ?? '';
  const [, name, local, closing] = OWNER.exec(comment) ?? [];
  if (name === undefined || !isOurs(table, chain)) return undefined;
  const set = local === undefined ? 'own' : 'local';
  return { name: name as ServicePortName, set, isClosing: closing !== undefined };
}
