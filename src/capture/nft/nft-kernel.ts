import type { IpFamily } from '../../model/address.ts';
import type { Element, SetName } from './element.ts';

/** What the kernel and the program `nft` do for us. All but `generation` reject with a `CaptureError`. */
export interface NftKernel {
  /**
   * Another number after each change of any table of nf_tables in this network namespace. `undefined` where the kernel
   * cannot tell now.
   */
  generation(): number | undefined;
  /** Why this node cannot have our table, for people: the kernel or the program is too old or missing. */
  obstacle(): Promise<string | undefined>;
  /** One `nft -f`: all of `text` or nothing. With `isTrial` nothing in any case. */
  run(text: string, how?: { readonly isTrial: boolean }): Promise<void>;
  /** The elements of one of our sets; `undefined` where there is no such set. */
  elements(family: IpFamily, set: SetName): Promise<readonly Element[] | undefined>;
  /** The one with this key. */
  element(family: IpFamily, key: Element): Promise<Element | undefined>;
  /** All of these changes or none, the deletions first. */
  change(family: IpFamily, change: ElementChange): Promise<void>;
  /**
   * The rules of each of our chains, as a text that differs when any of them was replaced, moved or deleted; none where
   * there is no table of ours.
   */
  rules(family: IpFamily): Promise<ReadonlyMap<string, string>>;
  /** Deletes a whole table. Resolves with whether there was one. */
  deleteTable(family: IpFamily, table: string): Promise<boolean>;
}

export interface ElementChange {
  readonly deleted: readonly Element[];
  readonly added: readonly Element[];
}
