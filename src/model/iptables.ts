import type { IpFamily } from './address.ts';

export type Table = 'nat' | 'filter' | 'mangle';

/** One table's dump or one transaction for it, as `iptables-save` prints and `iptables-restore` reads. */
export interface Iptables {
  /** Which of the two kinds of tables. */
  readonly flavour: 'nft' | 'legacy';
  /**
   * `iptables-save -t table`; without counters. Empty where the table does not exist. Rules that iptables cannot print
   * appear as `-m nft --handle N`, with `-j CHAIN` behind it where they lead to one. Rejects with {@link
   * IptablesError}, also when what stands in the table cannot be found out.
   */
  save(family: IpFamily, table: Table): Promise<string>;
  /**
   * `iptables -t table -S chain`: the rules of one chain, as lines of a dump. Empty where there is no such chain.
   * Rejects with {@link IptablesError}.
   */
  list(family: IpFamily, table: Table, chain: string): Promise<string>;
  /**
   * One `iptables-restore --noflush`: all of `text` or nothing. Only rules that {@link save} gave by their handle are
   * deleted before, in a transaction of their own. Rejects with {@link IptablesError}.
   */
  restore(family: IpFamily, text: string): Promise<void>;
  /**
   * Another text after each change of the family's nat and filter tables, by whomever; finding that out starts no
   * program. `undefined` where the kernel cannot be asked. Both tables must exist: asking creates legacy ones.
   */
  generation(family: IpFamily): string | undefined;
}

/**
 * `missing`: the program is not installed. `locked`: another program holds the xtables lock; worth a retry.
 * `refused`: the text or a rule in it was not accepted. `timeout`: killed at the deadline. `failed`: anything else.
 */
export type IptablesErrorCode = 'missing' | 'locked' | 'refused' | 'timeout' | 'failed';

export class IptablesError extends Error {
  override readonly name = 'IptablesError';
  readonly code: IptablesErrorCode;
  /**
   * With `refused`: the line of the text that the tool named, from 1, or `undefined` when it named none. The legacy
   * tools name `COMMIT` for whatever the kernel did not take.
   */
  readonly line: number | undefined;

  constructor(
    code: IptablesErrorCode,
    message: string,
    options?: ErrorOptions & { readonly line?: number | undefined },
  ) {
    super(message, options);
    this.code = code;
    this.line = options?.line;
  }
}
