import { hash32 } from '../../util/hash.ts';
import type { Member } from '../member.ts';
import type { MaglevTables, Table } from './maglev-tables.ts';
import { byName, drawn, type Except, type Scheduler } from './scheduler.ts';

/**
 * Prime. An entry more or less is at most 3 % of a share among up to {@link FEW} endpoints, and 6 % among 1,000. The
 * size has only two steps, because nearly all clients change their endpoint when it changes. A larger one would hold up
 * all connections of its thread: to fill these takes 0.5 ms and 5 ms, 65,537 entries take 30 ms.
 */
const SMALL = 4093;
const LARGE = 16_381;
const FEW = 128;

/** An entry that is free; so many endpoints have a place in the table, and the rest are for retries. */
const NOBODY = 0xffff;

/**
 * `mh`: the table of Maglev (Eisenbud et al., NSDI 2016, section 3.4): the same on every node that knows the same
 * endpoints, and an endpoint that comes or goes moves few clients of others. Made for the first client.
 */
export class Maglev implements Scheduler {
  readonly #tables: MaglevTables;
  #members: readonly Member[] = [];
  #table: Table | undefined;

  constructor(tables: MaglevTables) {
    this.#tables = tables;
  }

  update(members: readonly Member[]): void {
    this.#members = members.toSorted(byName);
    this.#tables.drop(this.#table);
    this.#table = undefined;
  }

  choose(client: string, _nowMs: number, except?: Except): Member | undefined {
    if (this.#members.length === 0) return undefined;
    if (this.#table?.entries === undefined) this.#table = this.#tables.keep(maglevTable(this.#members));
    const entries = this.#table.entries as Uint16Array;
    return drawn(this.#members, (attempt) => entries[hash32(client, attempt) % entries.length] as number, except);
  }
}

/** For each entry the index of a member. `all`: at least one, and in an order that all nodes have. */
function maglevTable(all: readonly Member[]): Uint16Array {
  const members = all.slice(0, NOBODY);
  const size = members.length <= FEW ? SMALL : LARGE;
  const entries = new Uint16Array(size).fill(NOBODY);
  const left = quotas(members, size);
  const next = members.map(({ name }) => hash32(name, 1) % size);
  const skip = members.map(({ name }) => 1 + (hash32(name, 2) % (size - 1)));
  let active = [...members.keys()];
  for (let filled = 0; filled < size; active = active.filter((index) => (left[index] as number) > 0)) {
    for (const index of active) {
      if ((left[index] as number) === 0) continue;
      let entry = next[index] as number;
      while (entries[entry] !== NOBODY) entry = (entry + (skip[index] as number)) % size;
      entries[entry] = index;
      next[index] = entry;
      (left[index] as number)--;
      filled++;
    }
  }
  return entries;
}

/** How many entries each member gets, in proportion to weights. */
function quotas(members: readonly Member[], size: number): Uint32Array {
  const total = members.reduce((sum, { weight }) => sum + weight, 0);
  let [weights, end] = [0, 0];
  return Uint32Array.from(members, ({ weight }) => {
    weights += weight;
    const start = end;
    end = Math.round((size * weights) / total);
    return end - start;
  });
}
