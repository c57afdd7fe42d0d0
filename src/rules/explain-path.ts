import { type Address, parseAddress } from '../model/address.ts';
import type { Table } from '../model/iptables.ts';
import type { Clock } from '../util/clock.ts';
import { inSlices } from '../util/wait.ts';
import { plainSpec } from './chains.ts';
import { DumpReader } from './dump.ts';
import { type IsLocal, matchesPacket, parseRule, type RuleTarget, type TracedPacket } from './explain-match.ts';

/** A rule that a packet has met and that matched. */
export interface TracedRule {
  readonly table: Table;
  readonly chain: string;
  /** As iptables prints it, without the `-A CHAIN`. */
  readonly rule: string;
}

/** What becomes of a packet in one table. Without `by`, it was the policy of a chain. */
export type Fate =
  | { readonly kind: 'passes' }
  /** Without an address, to one of this node. */
  | { readonly kind: 'sent'; readonly to: Sent; readonly by: TracedRule }
  | { readonly kind: 'dropped' | 'rejected'; readonly by?: TracedRule }
  /** A rule may decide here that asks for something which is not known, or does something that is not. */
  | { readonly kind: 'unclear'; readonly by: TracedRule };

interface Sent {
  readonly address?: Address;
  readonly port: number;
}

export interface Path {
  /** In the order in which the packet has met them, in nat and then in filter. */
  readonly rules: readonly TracedRule[];
  readonly nat: Fate;
  /** In filter OUTPUT, with what NAT made of it. It passes where it does not come there, or leaves the node. */
  readonly output: Fate;
  /** In filter INPUT, in the same way, if OUTPUT has let it go. */
  readonly input: Fate;
}

/** `Iptables.list` of one family. */
export type ListChain = (table: Table, chain: string) => Promise<string>;

/** Nothing in the kernel is this deep. A chain may be rewritten between two looks, so a circle could seem to be. */
const MAX_DEPTH = 64;

const PASSES: Fate = { kind: 'passes' };

/** Targets that leave a packet on its way. */
const PASSING = new Set(
  'AUDIT CHECKSUM CLASSIFY CONNMARK CONNSECMARK CT DSCP HL LOG MARK NFLOG NOTRACK SECMARK SET TCPMSS TOS TRACE TTL ULOG'.split(
    ' ',
  ),
);

/**
 * Leads a packet through the rules that are in the kernel now, other programs' included, as far as they can be understood; only chains on
 * its way are read. Rejects with an `IptablesError`.
 */
export async function explainPath(
  packet: TracedPacket,
  isLocal: IsLocal,
  list: ListChain,
  clock: Clock,
): Promise<Path> {
  const walk = new Walk(isLocal, list, clock);
  const nat = await walk.from('nat', packet.isOwn ? 'OUTPUT' : 'PREROUTING', packet);
  const path: Path = { rules: walk.rules, nat, output: PASSES, input: PASSES };
  const translated = afterNat(packet, nat);
  if (translated === undefined || (translated.address !== undefined && !isLocal(translated.address))) return path;
  // For the kernel it leaves there, still, by the interface that it would have left by without NAT.
  const output = packet.isOwn ? await walk.from('filter', 'OUTPUT', translated) : PASSES;
  if (output.kind !== 'passes') return { ...path, output };
  const arriving: TracedPacket = packet.isOwn ? { ...translated, inInterface: 'lo', outInterface: '' } : translated;
  return { ...path, input: await walk.from('filter', 'INPUT', arriving) };
}

/** `undefined` when it goes no further. */
function afterNat(packet: TracedPacket, nat: Fate): TracedPacket | undefined {
  if (nat.kind === 'sent') return { ...packet, address: nat.to.address, port: nat.to.port, isFromNat: true };
  return nat.kind === 'passes' ? packet : undefined;
}

/** What a rule does with a packet that it is for. `return`: the rest of its chain is skipped. */
type Step = Fate | 'next' | 'return';

interface Place {
  readonly table: Table;
  readonly chain: string;
  /** How many jumps led here. */
  readonly depth: number;
}

interface Concerning {
  readonly by: TracedRule;
  readonly target: RuleTarget;
  readonly matched: true | undefined;
}

class Walk {
  /** Those that matched. */
  readonly rules: TracedRule[] = [];
  readonly #isLocal: IsLocal;
  readonly #list: ListChain;
  readonly #clock: Clock;
  /** What else could become of the packet, each where the rule stands that may be for it. */
  #possible: { readonly fate: Fate; readonly by: TracedRule; readonly at: number }[] = [];

  constructor(isLocal: IsLocal, list: ListChain, clock: Clock) {
    this.#isLocal = isLocal;
    this.#list = list;
    this.#clock = clock;
  }

  async from(table: Table, builtIn: string, packet: TracedPacket): Promise<Fate> {
    this.#possible = [];
    const text = await this.#list(table, builtIn);
    const fate = (await this.#through({ table, chain: builtIn, depth: 0 }, text, packet)) ?? policyOf(text);
    // A rule that may be for this packet matters where it would make a difference.
    const other = this.#possible.find((possible) => !sameFate(possible.fate, fate));
    if (other === undefined) return fate;
    this.rules.splice(other.at, Infinity, other.by);
    return { kind: 'unclear', by: other.by };
  }

  /** `undefined` when the chain decides nothing. */
  async #through({ table, chain, depth }: Place, text: string, packet: TracedPacket): Promise<Fate | undefined> {
    for await (const { by, target, matched } of this.#concerning({ table, chain }, text, packet)) {
      const at = this.rules.push(by) - 1;
      const known = this.#possible.length;
      const step = await this.#follow(target, by, packet, depth);
      if (matched === undefined) this.#mayDo(step, by, at, known);
      else if (step === 'return') return undefined;
      else if (step !== 'next') return step;
    }
    return undefined;
  }

  /**
   * The rules of a chain that are, or may be (`matched: undefined`), for the packet, and do something with it. A list of
   * banned addresses can have a hundred thousand others, so they are gone through a slice at a time.
   */
  async *#concerning(
    { table, chain }: Pick<Place, 'table' | 'chain'>,
    text: string,
    packet: TracedPacket,
  ): AsyncGenerator<Concerning> {
    const dump = new DumpReader(`*${table}\n${text}`);
    await inSlices(this.#clock, () => dump.readSome());
    const rules = (dump.tables.get(table)?.get(chain) ?? []).values();
    for (;;) {
      let found: Concerning | undefined;
      await inSlices(this.#clock, () => {
        const { done, value } = rules.next();
        if (done) return false;
        const rule = plainSpec(value);
        const parsed = parseRule(rule);
        const matched = matchesPacket(parsed, packet, this.#isLocal);
        if (matched === false || parsed.target === undefined) return true;
        found = { by: { table, chain, rule }, target: parsed.target, matched };
        return false;
      });
      if (found === undefined) return;
      yield found;
    }
  }

  async #follow(
    { name, isGoto, options }: RuleTarget,
    by: TracedRule,
    packet: TracedPacket,
    depth: number,
  ): Promise<Step> {
    if (PASSING.has(name)) return 'next';
    switch (name) {
      case 'ACCEPT':
        return PASSES;
      case 'RETURN':
        return 'return';
      case 'DROP':
        return { kind: 'dropped', by };
      case 'REJECT':
        return { kind: 'rejected', by };
      case 'REDIRECT':
      case 'DNAT': {
        const to = sentTo(options, packet);
        return to === undefined ? { kind: 'unclear', by } : { kind: 'sent', to, by };
      }
      default: {
        const text = depth < MAX_DEPTH ? await this.#list(by.table, name) : '';
        // No chain: a target that is not known here.
        if (text === '') return { kind: 'unclear', by };
        const fate = await this.#through({ table: by.table, chain: name, depth: depth + 1 }, text, packet);
        return fate ?? (isGoto ? 'return' : 'next');
      }
    }
  }

  /** Notes what a rule does that may be for the packet, and all that may happen behind it, and goes on as if it were not. */
  #mayDo(step: Step, by: TracedRule, at: number, known: number): void {
    this.rules.length = at;
    const fates = this.#possible.splice(known).map(({ fate }) => fate);
    if (step === 'return') fates.push({ kind: 'unclear', by });
    else if (step !== 'next') fates.push(step);
    this.#possible.push(...fates.map((fate) => ({ fate, by, at })));
  }
}

/** "--to-ports 8080", "--to-destination 10.0.0.1:8080", ":8080"; `undefined` for several ports or addresses, of which the kernel chooses. */
function sentTo([option, value = '', ...others]: readonly string[], packet: TracedPacket): Sent | undefined {
  const { port } = packet;
  if (option === undefined) return { port };
  if (others.length > 0) return undefined;
  if (option === '--to-ports') return /^\d+$/.test(value) ? { port: Number(value) } : undefined;
  const [, bracketed, plain = value, toPort = port] = /^(?:\[(.+)\]|([^:]*))(?::(\d+))?$/.exec(value) ?? [];
  if (option !== '--to-destination') return undefined;
  // ":8080" leaves the address as it is.
  const address = plain === '' ? packet.address : parseAddress(bracketed ?? plain);
  return address === undefined ? undefined : { address, port: Number(toPort) };
}

function policyOf(text: string): Fate {
  return /^-P \S+ DROP$/m.test(text) ? { kind: 'dropped' } : PASSES;
}

function sameFate(a: Fate, b: Fate): boolean {
  if (a.kind === 'unclear' || b.kind === 'unclear') return false;
  if (a.kind === 'sent' && b.kind === 'sent') return a.to.address === b.to.address && a.to.port === b.to.port;
  return a.kind === b.kind;
}
