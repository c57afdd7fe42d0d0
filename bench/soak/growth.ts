/**
 * Whether a figure grows that was taken once a minute, at rest and each time with the same Services.
 *
 * It goes up and down, and it rises at first: buffers and V8's heap find their size. So the first third does not count.
 * Of the rest, the whole last third must lie by `slack` above the whole first third. Chance does not order figures so,
 * and a leak does in time: the longer the run, the smaller a leak is found.
 */
export function grows(figures: readonly number[], slack: number): boolean {
  const settled = figures.slice(Math.ceil(figures.length / 3));
  const third = Math.floor(settled.length / 3);
  // Of so few, chance could.
  if (third < 3) return false;
  return Math.min(...settled.slice(-third)) > Math.max(...settled.slice(0, third)) + slack;
}
