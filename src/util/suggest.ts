/** The candidate nearest to `word`; `undefined` when none is near enough. */
export function suggest<T extends string>(word: string, candidates: readonly T[]): T | undefined {
  // One mistake per three characters: `--bindaddress` is a typing error, `--kubeconfig` for `--config` is none.
  let best = Math.floor(word.length / 3);
  let found: T | undefined;
  for (const candidate of candidates) {
    const distance = editDistance(word, candidate);
    if (distance > best || (distance === best && found !== undefined)) continue;
    best = distance;
    found = candidate;
  }
  return found;
}

/** Insertions, deletions, substitutions, and swaps of two neighbours, from one word to the other. */
function editDistance(from: string, to: string): number {
  let above = Array.from({ length: to.length + 1 }, (_, column) => column);
  let twoAbove: readonly number[] = [];
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const substituted = (above[column - 1] ?? 0) + (from[row - 1] === to[column - 1] ? 0 : 1);
      const isSwap = row > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      const swapped = isSwap ? (twoAbove[column - 2] ?? 0) + 1 : substituted;
      current.push(Math.min(substituted, swapped, (above[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1));
    }
    [twoAbove, above] = [above, current];
  }
  return above[to.length] ?? 0;
}
