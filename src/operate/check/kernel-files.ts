/** The text of a file below `/proc` or `/sys`; `undefined` where it cannot be read. */
export type ReadFile = (path: string) => string | undefined;

/** `undefined` also for what is no whole number, as the `max` of cgroups. */
export function numberIn(read: ReadFile, path: string): number | undefined {
  const text = read(path)?.trim() ?? '';
  return /^-?\d+$/.test(text) ? Number(text) : undefined;
}
