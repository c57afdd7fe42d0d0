import { systemClock as clock } from '../../../util/system-clock.ts';
import { type ProgramResult, runProgram } from '../run-program.ts';
import { MessageReader } from './messages.ts';
import { decodeRequest, encodeResult } from './protocol.ts';

// The helper process: runs the programs that it is told to run. When its input ends, because the proxy has ended in
// whatever way, nothing keeps it but the program that it runs: half of the rules would serve nobody.

/** After so many bytes of rules it pays to look for garbage: V8 itself would wait for ten times as many. */
const GARBAGE_BYTES = 1 << 20;

// Whoever stops a service may signal all of its processes. The proxy decides when it needs no more rules; until then
// a signal would only cut short the transaction that it waits for.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => {});

const reader = new MessageReader((message) => {
  const { timeoutMs, ...request } = decodeRequest(message);
  void runProgram(request, { clock, timeoutMs })
    .catch((error): ProgramResult => ({ outcome: 'failed', err: String(error) }))
    .then(encodeResult)
    .then((answer) => {
      for (const piece of answer) process.stdout.write(piece);
      const bytes = answer.reduce((sum, { length }) => sum + length, request.input.length);
      if (bytes > GARBAGE_BYTES) globalThis.gc?.();
    });
});

process.stdin.on('data', (chunk: Buffer) => reader.push(chunk));
// The proxy may have ended meanwhile, and nobody waits for the answer.
process.stdout.on('error', () => {});
