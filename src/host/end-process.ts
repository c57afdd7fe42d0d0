/**
 * Ends this process with this code, and for certain; handlers of `exit` run before.
 *
 * `process.exit` does not always return: it joins V8's threads, and one of them that compiles may be waiting for the
 * main thread to collect garbage (nodejs/node#54918, #64274). A proxy that hangs so serves nobody, holds its ports, and
 * is not started again. See ADR 15.
 */
export async function endProcess(code: number): Promise<never> {
  // Only here, as the portable engine runs without koffi, and `process.exit` is what is left then.
  const sys = await import('../sys/exit.ts').catch(() => undefined);
  if (sys !== undefined) {
    process.emit('exit', code);
    sys.exitNow(code);
  }
  process.exit(code);
}
