import type { IpFamily } from '../model/address.ts';

export type Table = 'nat' | 'filter';

/** One table's dump or one transaction for it, as `iptables-save` prints and `iptables-restore` reads. */
export interface Iptables {
  /** Which of the two kinds of tables. */
  readonly flavour: 'nft' | 'legacy';
  /** `iptables-save -t table`; without counters. Empty where the table does not exist. Rejects with {@link IptablesError}. */
  save(family: IpFamily, table: Table): Promise<string>;
  /**
   * `iptables -t table -S chain`: the rules of one chain, as lines of a dump. Empty where there is no such chain.
   * Rejects with {@link IptablesError}.
   */
  list(family: IpFamily, table: Table, chain: string): Promise<string>;
  /** One `iptables-restore --noflush`: all of `text` or nothing. Rejects with {@link IptablesError}. */
  restore(family: IpFamily, text: string): Promise<void>;
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
