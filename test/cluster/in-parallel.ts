/** `count` pieces of work, so many at once. Results in the order of completion. */
export async function inParallel<T>(count: number, workers: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  const worker = async () => {
    while (next < count) results.push(await work(next++));
  };
  await Promise.all(Array.from({ length: workers }, worker));
  return results;
}
