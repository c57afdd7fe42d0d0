import type { IpFamily } from '../../model/address.ts';
import { CaptureError } from '../../model/capture.ts';

export type Table = 'nat' | 'filter' | 'mangle';

export interface Iptables {
  readonly flavour: 'nft' | 'legacy';
  /** Whether {@link restore} can remove rules. */
  readonly canRemove: boolean;
  /**
   * `iptables-save -t table` without counters. Empty where the table does not exist. Rules that iptables cannot print
   * appear as `-m nft --handle N`, followed by `-j CHAIN` for a jump. Rejects with {@link IptablesError}.
   */
  save(family: IpFamily, table: Table): Promise<string>;
  /**
   * `iptables -t table -S chain`. Empty where there is no such chain. Rejects with {@link IptablesError}.
   */
  list(family: IpFamily, table: Table, chain: string): Promise<string>;
  /**
   * One `iptables-restore --noflush`: all of `text` or nothing. Only rules that {@link save} named by handle are
   * deleted before, in another transaction. Rejects with {@link IptablesError}.
   */
  restore(family: IpFamily, text: string): Promise<void>;
  /**
   * Differs after each change of the family's nat and filter tables by any program. Starts no program. `undefined`
   * where the kernel does not tell. Both tables must exist: asking creates legacy ones.
   */
  generation(family: IpFamily): string | undefined;
}

/**
 * `missing`: the program is not installed. `locked`: another program holds the xtables lock; worth a retry.
 * `refused`: the text or a rule in it was not accepted. `timeout`: killed at the deadline. `failed`: anything else.
 */
export type IptablesErrorCode = 'missing' | 'locked' | 'refused' | 'timeout' | 'failed';

export class IptablesError extends CaptureError {
  override readonly name = 'IptablesError';
  readonly code: IptablesErrorCode;
  /**
   * With `refused`: the line of the text that the tool named, from 1. The legacy tools name `COMMIT` for whatever the
   * kernel refused.
   */
  readonly line: number | undefined;

  constructor(code: IptablesErrorCode, message: string, options?: ErrorOptions & { line?: number | undefined }) {
    super(message, { ...options, mayPass: code === 'locked' || code === 'timeout' });
    this.code = code;
    this.line = options?.line;
  }
}
