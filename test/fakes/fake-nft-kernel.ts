import { type Element, keyOf, type SetName } from '../../src/capture/nft/element.ts';
import type { ElementChange, NftKernel } from '../../src/capture/nft/nft-kernel.ts';
import { TABLE } from '../../src/capture/nft/table.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { CaptureError } from '../../src/model/capture.ts';

interface FakeTable {
  readonly elements: Map<string, Element>;
  /** The handles of the rules of each chain. */
  readonly chains: Map<string, number[]>;
}

/** Tables of our name, in memory. Elements do not expire. It passes test/compliance/nft-kernel.ts. */
export class FakeNftKernel implements NftKernel {
  /** Every text that was run, and every change that was accepted. */
  readonly texts: string[] = [];
  readonly changes: ElementChange[] = [];
  readonly #tables = new Map<IpFamily, FakeTable>();
  #generation = 1;

  generation(): number {
    return this.#generation;
  }

  async obstacle(): Promise<undefined> {}

  async run(text: string, { isTrial }: { readonly isTrial: boolean } = { isTrial: false }): Promise<void> {
    if (isTrial) return;
    this.texts.push(text);
    this.#generation++;
    for (const line of text.split('\n')) this.#obey(line.trim().split(' '));
  }

  async elements(family: IpFamily, set: SetName): Promise<readonly Element[] | undefined> {
    const table = this.#tables.get(family);
    return table && [...table.elements.values()].filter((element) => element.set === set);
  }

  async element(family: IpFamily, key: Element): Promise<Element | undefined> {
    return this.#tables.get(family)?.elements.get(keyOf(key));
  }

  async change(family: IpFamily, change: ElementChange): Promise<void> {
    const table = this.#tables.get(family);
    const isThere = (element: Element) => table?.elements.has(keyOf(element));
    const after = new Map(table?.elements);
    if (table === undefined || !change.deleted.every(isThere)) throw new CaptureError('ENOENT', { mayPass: false });
    for (const element of change.deleted) after.delete(keyOf(element));
    for (const element of change.added) {
      if (typeof element.data === 'string' && !table.chains.has(element.data)) {
        throw new CaptureError('ENOENT', { mayPass: false });
      }
      const other = after.get(keyOf(element));
      if (other !== undefined && other.data !== element.data) throw new CaptureError('EEXIST', { mayPass: false });
      if (other === undefined) after.set(keyOf(element), element);
    }
    this.changes.push(change);
    this.#generation++;
    this.#tables.set(family, { elements: after, chains: table.chains });
  }

  async rules(family: IpFamily): Promise<ReadonlyMap<string, string>> {
    const chains = [...(this.#tables.get(family)?.chains ?? [])].filter(([, handles]) => handles.length > 0);
    return new Map(chains.map(([name, handles]) => [name, handles.join(' ')]));
  }

  async deleteTable(family: IpFamily, table: string): Promise<boolean> {
    this.#generation++;
    return table === TABLE && this.#tables.delete(family);
  }

  #obey([verb = '', what = '', family = '', name = '', chain = '']: readonly string[]): void {
    if (verb === 'table') this.#declare(what === 'ip' ? 'IPv4' : 'IPv6');
    else if (verb === 'chain') this.#last?.chains.set(what, this.#last.chains.get(what) ?? []);
    const table = this.#tables.get(family === 'ip' ? 'IPv4' : 'IPv6');
    if (name !== TABLE || table === undefined) return;
    if (verb === 'delete' && what === 'table') this.#tables.delete(family === 'ip' ? 'IPv4' : 'IPv6');
    else if (verb === 'delete') table.chains.delete(chain);
    else if (verb === 'flush') table.chains.set(chain, []);
    else if (what === 'chain') table.chains.set(chain, table.chains.get(chain) ?? []);
    else if (what === 'rule') table.chains.get(chain)?.push(++this.#generation);
  }

  #last: FakeTable | undefined;

  #declare(family: IpFamily): void {
    this.#last = this.#tables.get(family) ?? { elements: new Map(), chains: new Map() };
    this.#tables.set(family, this.#last);
  }
}
