import { collectGarbage } from '../../util/garbage.ts';
import { runProgram } from '../../util/run-program.ts';
import { systemClock as clock } from '../../util/system-clock.ts';
import type { ExecRequest } from './exec.ts';

/*
 * The helper process: runs the programs that the proxy requests (exec-helper.ts), and sends back how they ended. When
 * the proxy ends, however that happens, the channel closes; the helper then finishes the program that it runs, and
 * exits.
 */

/** After this much text, collect garbage: V8 itself would wait for ten times as much. */
const GARBAGE_CHARACTERS = 1 << 20;

// A service manager may signal all processes of a service. The proxy decides when it needs no more rules; until then, a
// signal would only interrupt a transaction.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'] as const) process.on(signal, () => {});

process.on('message', async ({ timeoutMs, ...request }: ExecRequest & { readonly timeoutMs: number }) => {
  const result = await runProgram(request, { clock, timeoutMs });
  const characters = (request.input?.length ?? 0) + (result.outcome === 'exited' ? result.stdout.length : 0);
  // Fails when the proxy has ended; then nobody needs the result.
  process.send?.(result, undefined, undefined, () => {
    // Until now the result waits to be written, and until the next turn, frames hold on to both texts.
    if (characters > GARBAGE_CHARACTERS) setImmediate(collectGarbage);
  });
});
