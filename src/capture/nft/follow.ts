import { type Address, cidrContains, familyOf, type IpFamily, isWildcard } from '../../model/address.ts';
import type { Fate, FollowedPacket, Path } from '../../model/capture.ts';
import type { RuleView } from '../../model/view.ts';
import { DROP_PORT, REJECT_PORT } from '../portal.ts';
import { servedSetOf } from './claim-elements.ts';
import { type Element, elementText, type SetName } from './element.ts';
import type { NftKernel } from './nft-kernel.ts';
import {
  type Condition,
  type ConditionRule,
  conditionText,
  nftFamily,
  TABLE,
  type TableFacts,
  TO_DROP,
  TO_LOCAL,
  TO_PORTAL,
} from './table.ts';

export interface FollowOptions {
  readonly family: IpFamily;
  readonly kernel: Pick<NftKernel, 'element' | 'rules'>;
  readonly isLocal: (address: Address) => boolean;
  /** Of the table as it was written; `undefined` before that. */
  readonly facts: TableFacts | undefined;
  readonly conditionOf: (chain: string) => Condition | undefined;
}

const CAVEAT =
  'Rules of other programs are not looked at: "nft list ruleset" shows them, and check finds chains that drop.';

/** Looks up in the kernel's maps what they hold for one packet, as the rules of the table do. */
export async function followIn(options: FollowOptions, packet: FollowedPacket): Promise<Path> {
  const walk = new Walk(options, packet);
  const nat = await walk.through();
  return { rules: walk.rules, nat, caveat: CAVEAT };
}

class Walk {
  readonly rules: RuleView[] = [];
  readonly #options: FollowOptions;
  readonly #packet: FollowedPacket;

  constructor(options: FollowOptions, packet: FollowedPacket) {
    this.#options = options;
    this.#packet = packet;
  }

  async through(): Promise<Fate> {
    const { isOwn, address } = this.#packet;
    const [portals, nodePorts] = isOwn ? ['portals-out', 'nodeports-out'] : ['portals-in', 'nodeports-in'];
    const chains = await this.#options.kernel.rules(this.#options.family);
    for (const chain of [portals, nodePorts] as const) {
      if (!chains.has(chain))
        return { kind: 'passes', missing: `the nft table "${this.#table}" has no chain ${chain}` };
    }
    const conditional = await this.#conditional(portals as string, isOwn ? 'conditions-out' : 'conditions');
    const portal = conditional ?? (await this.#lookUp(portals as string, 'portals'));
    if (portal !== undefined) return portal;
    const block = this.#options.facts?.unassigned.find((each) => cidrContains(each, address));
    if (block !== undefined) {
      const { network, prefixLength } = block;
      this.rules.push(this.#view(nodePorts as string, `daddr ${network}/${prefixLength} dnat to port ${DROP_PORT}`));
      return { kind: 'unassigned' };
    }
    if (!this.#options.isLocal(address)) return PASSES;
    return (await this.#atNodePort(nodePorts as string)) ?? PASSES;
  }

  async #atNodePort(chain: string): Promise<Fate | undefined> {
    const { isOwn, address } = this.#packet;
    const node = this.#options.facts?.node;
    const spared = await this.#element('spared');
    if (spared !== undefined) {
      this.#show(chain, spared);
      return PASSES;
    }
    const networks = node?.nodePortCidrs.filter(({ network }) => familyOf(network) === familyOf(address)) ?? [];
    if (networks.length === 0 || networks.some((network) => cidrContains(network, address))) {
      const conditional = isOwn ? undefined : await this.#conditional(chain, 'nodeport-conditions');
      const nodePort = conditional ?? (await this.#lookUp(chain, 'nodeports'));
      if (nodePort !== undefined) return nodePort;
    }
    const isListened = node === undefined || isWildcard(node.bindAddress) || node.bindAddress === address;
    const closed = isOwn || !isListened ? undefined : await this.#element('local-ports');
    const name = servedSetOf(closed?.comment ?? '')?.name;
    if (closed === undefined || name === undefined) return undefined;
    this.#show(chain, closed);
    return { kind: 'closed', name };
  }

  /** Where a condition leads; `undefined` if there is none for the packet's destination. */
  async #conditional(chain: string, set: SetName): Promise<Fate | undefined> {
    const element = await this.#element(set);
    if (element === undefined) return undefined;
    this.#show(chain, element);
    const unclear: Fate = { kind: 'foreign', text: `it depends on the chain ${element.data} of the nft table` };
    const to = this.#throughCondition(String(element.data));
    const name = servedSetOf(element.comment)?.name;
    if (to === TO_DROP) return name === undefined ? unclear : { kind: 'drop', name };
    const isNodePort = set === 'nodeport-conditions';
    if (to === TO_PORTAL) return (await this.#lookUp(to, isNodePort ? 'nodeports' : 'portals')) ?? unclear;
    if (to !== TO_LOCAL) return unclear;
    return (await this.#lookUp(to, isNodePort ? 'nodeports-local' : 'portals-local')) ?? unclear;
  }

  /** The chain behind one of a condition; `undefined` where that cannot be told. */
  #throughCondition(chain: string): string | undefined {
    const condition = this.#options.conditionOf(chain);
    if (condition === undefined) return chain;
    for (const rule of condition.rules) {
      const matches = this.#matches(rule);
      if (matches === undefined) return undefined;
      if (!matches) continue;
      this.rules.push(this.#view(chain, conditionText(rule, nftFamily(this.#options.family))));
      return rule.to;
    }
    return undefined;
  }

  #matches({ source, inInterface }: ConditionRule): boolean | undefined {
    const { source: from, inInterface: by } = this.#packet;
    if (source !== undefined && !cidrContains(source, from)) return false;
    if (inInterface === undefined) return true;
    if (by === undefined) return undefined;
    return inInterface.isPrefix ? by.startsWith(inInterface.name) : by === inInterface.name;
  }

  async #lookUp(chain: string, set: SetName): Promise<Fate | undefined> {
    const element = await this.#element(set);
    const name = servedSetOf(element?.comment ?? '')?.name;
    if (element === undefined || name === undefined) return undefined;
    this.#show(chain, element);
    if (element.data === REJECT_PORT) return { kind: 'reject', name };
    if (element.data === DROP_PORT) return { kind: 'drop', name };
    return { kind: 'listener', name, localPort: Number(element.data) };
  }

  #element(set: SetName): Promise<Element | undefined> {
    const { address, protocol, port } = this.#packet;
    return this.#options.kernel.element(this.#options.family, { set, address, protocol, port, comment: '' });
  }

  get #table(): string {
    return `${nftFamily(this.#options.family)} ${TABLE}`;
  }

  #show(chain: string, element: Element): void {
    this.rules.push(this.#view(chain, `@${element.set} { ${elementText(element)} }`));
  }

  #view(chain: string, rule: string): RuleView {
    return { table: this.#table, chain, rule, line: `nft ${this.#table} ${chain}: ${rule}` };
  }
}

const PASSES: Fate = { kind: 'passes' };
