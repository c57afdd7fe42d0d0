import type { Column } from './columns.ts';
import type { ServiceRow } from './look.ts';

/** Sorted by a column; those that are equal there stay as they were, whichever way around. */
export function sortRows<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  sortBy: string,
  isReversed: boolean,
): readonly Row[] {
  const column = columns.find(({ title }) => title === sortBy);
  if (column === undefined) return rows;
  const sign = column.isDescending === isReversed ? 1 : -1;
  return rows.toSorted((a, b) => sign * column.compare(a, b));
}

/** Those whose name has the text in it, or whose state or address begins so, an IPv6 address without its bracket, too. */
export function filterRows(rows: readonly ServiceRow[], filter: string): readonly ServiceRow[] {
  if (filter === '') return rows;
  const wanted = filter.toLowerCase();
  return rows.filter(
    ({ name, state, address }) =>
      name.includes(wanted) ||
      state.startsWith(wanted) ||
      address.startsWith(wanted) ||
      address.startsWith(`[${wanted}`),
  );
}
