import type { Table } from '../model/iptables.ts';
import { type ChainRules, DumpReader } from '../rules/dump.ts';
import type { Clock } from '../util/clock.ts';
import { inSlices } from '../util/wait.ts';

/*
 * Tens of thousands of rules take tens of milliseconds to read, to lay out and to write; the event loop turns meanwhile.
 */

/** The chains of one table, as `iptables-save` printed it; none where it does not exist. */
export async function readTable(clock: Clock, table: Table, dump: string): Promise<ChainRules> {
  const reader = new DumpReader(dump);
  await inSlices(clock, () => reader.readSome());
  return reader.tables.get(table) ?? new Map();
}

/** All that `items` yields. */
export async function gathered<T>(clock: Clock, items: Iterable<T>): Promise<readonly T[]> {
  const all: T[] = [];
  const iterator = items[Symbol.iterator]();
  await inSlices(clock, () => {
    const { done, value } = iterator.next();
    if (done) return false;
    all.push(value);
    return true;
  });
  return all;
}
