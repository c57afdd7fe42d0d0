/**
 * The same work, one piece of it at a time. Each piece gives way to others after every slice of time, and many that take
 * turns would still hold them up together. Gives `undefined` for whoever has left before it was his turn.
 */
export function inTurn<Argument, Result>(
  work: (argument: Argument) => Promise<Result>,
): (argument: Argument, signal: AbortSignal) => Promise<Result | undefined> {
  let last: Promise<unknown> = Promise.resolve();
  return (argument, signal) => {
    const result = last.then(() => (signal.aborted ? undefined : work(argument)));
    // Whoever asked hears of a failure; the next one has nothing to do with it.
    last = result.catch(() => {});
    return result;
  };
}
