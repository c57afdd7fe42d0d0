/** One sign for each value, from none to the greatest; at the left blank when there are fewer values than columns. */
export function sparkline(values: readonly number[], columns: number, levels: readonly string[]): string {
  const shown = columns > 0 ? values.slice(-columns) : [];
  const greatest = Math.max(...shown, 0);
  const signs = shown.map((value) => {
    // Whatever is more than nothing is seen.
    const level = value <= 0 ? 0 : Math.max(1, Math.round((value / greatest) * (levels.length - 1)));
    return levels[level] ?? '';
  });
  return signs.join('').padStart(columns);
}
