import { type Iptables, IptablesError, type Table } from '../../src/capture/iptables/iptables.ts';
import type { IpFamily } from '../../src/model/address.ts';

const BUILT_IN: Readonly<Record<Table, readonly string[]>> = {
  nat: ['PREROUTING', 'INPUT', 'OUTPUT', 'POSTROUTING'],
  filter: ['INPUT', 'FORWARD', 'OUTPUT'],
  mangle: ['PREROUTING', 'INPUT', 'FORWARD', 'OUTPUT', 'POSTROUTING'],
};

const TARGETS = new Set('ACCEPT DROP REJECT RETURN REDIRECT DNAT MASQUERADE LOG MARK TPROXY'.split(' '));

type Chains = Map<string, string[]>;

/**
 * Tables in memory, held to the same suite as the kernel (`test/compliance/iptables.ts`). A restore works on a copy
 * that replaces the original only when every line was good.
 */
export class FakeIptables implements Iptables {
  readonly flavour = 'nft';
  readonly canRemove = true;
  /** Every text given to {@link restore}, refused ones too. */
  readonly restored: string[] = [];
  /** Whether a rule is refused: by default an unknown match or an invalid port. */
  refuses: (spec: string) => boolean = (spec) => /-m bogus|--dport 99999/.test(spec);
  readonly #tables = new Map<string, Chains>();

  async save(family: IpFamily, table: Table): Promise<string> {
    const chains = this.#tables.get(`${family} ${table}`);
    if (chains === undefined) return '';
    const isBuiltIn = (chain: string) => BUILT_IN[table].includes(chain);
    const names = [...chains.keys()].map((chain) => `:${chain} ${isBuiltIn(chain) ? 'ACCEPT' : '-'} [0:0]`);
    const rules = [...chains].flatMap(([chain, specs]) => specs.map((spec) => `-A ${chain} ${spec}`));
    return ['# A fake', `*${table}`, ...names, ...rules, 'COMMIT', ''].join('\n');
  }

  async list(family: IpFamily, table: Table, chain: string): Promise<string> {
    const specs = this.#tables.get(`${family} ${table}`)?.get(chain);
    if (specs === undefined) return '';
    const head = BUILT_IN[table].includes(chain) ? `-P ${chain} ACCEPT` : `-N ${chain}`;
    return [head, ...specs.map((spec) => `-A ${chain} ${spec}`), ''].join('\n');
  }

  generation(): string | undefined {
    return String(this.restored.length);
  }

  async restore(family: IpFamily, text: string): Promise<void> {
    this.restored.push(text);
    const draft = new Map<string, Chains>();
    let chains: Chains | undefined;
    for (const [index, line] of text.trimEnd().split('\n').entries()) {
      const table = /^\*(nat|filter|mangle)$/.exec(line)?.[1] as Table | undefined;
      let fault: string | undefined;
      if (table !== undefined) {
        chains = this.#copyOf(family, table);
        draft.set(`${family} ${table}`, chains);
      } else if (chains === undefined) {
        fault = 'Outside a table';
      } else if (line === 'COMMIT') {
        fault = danglingReference(chains);
        chains = undefined;
      } else {
        fault = this.#apply(chains, line);
      }
      if (fault !== undefined) throw new IptablesError('refused', `${fault}: ${line}`, { line: index + 1 });
    }
    if (chains !== undefined) throw new IptablesError('refused', 'COMMIT expected');
    for (const [key, value] of draft) this.#tables.set(key, value);
  }

  #copyOf(family: IpFamily, table: Table): Chains {
    const empty: Chains = new Map(BUILT_IN[table].map((chain) => [chain, []]));
    return structuredClone(this.#tables.get(`${family} ${table}`) ?? empty);
  }

  /** What is wrong with the line, if anything. */
  #apply(chains: Chains, line: string): string | undefined {
    const declared = /^:(\S+) - \[0:0\]$/.exec(line)?.[1];
    if (declared !== undefined) {
      chains.set(declared, []);
      return undefined;
    }
    const [, verb, chain = '', rest = ''] = /^-([AIDX]) (\S+)(?: (.*))?$/.exec(line) ?? [];
    const specs = chains.get(chain);
    if (specs === undefined) return 'No such chain';
    if (this.refuses(rest)) return 'No such match';
    switch (verb) {
      case 'A':
        specs.push(rest);
        return undefined;
      case 'I': {
        const [, position = '', spec = ''] = /^(\d+) (.*)$/.exec(rest) ?? [];
        if (!(Number(position) >= 1 && Number(position) <= specs.length + 1)) return 'Index too big';
        specs.splice(Number(position) - 1, 0, spec);
        return undefined;
      }
      case 'D': {
        const at = specs.indexOf(rest);
        if (at === -1) return 'No such rule';
        specs.splice(at, 1);
        return undefined;
      }
      case 'X':
        if (specs.length > 0) return 'Not empty';
        if (isReferredTo(chain, chains)) return 'Still referred to';
        chains.delete(chain);
        return undefined;
      default:
        return 'Not understood';
    }
  }
}

function danglingReference(chains: Chains): string | undefined {
  for (const spec of [...chains.values()].flat()) {
    const target = targetOf(spec);
    if (target !== undefined && !TARGETS.has(target) && !chains.has(target)) return `There is no chain ${target}`;
  }
  return undefined;
}

function isReferredTo(chain: string, chains: Chains): boolean {
  // By its name first: most rules need no closer look.
  for (const specs of chains.values()) {
    if (specs.some((spec) => spec.includes(chain) && targetOf(spec) === chain)) return true;
  }
  return false;
}

function targetOf(spec: string): string | undefined {
  return / ?-[jg] (\S+)/.exec(spec.replace(/"[^"]*"/g, ''))?.[1];
}
