import type { ExecRequest, ExecResult } from '../exec.ts';
import type { ProgramRequest, ProgramResult } from '../run-program.ts';
import { encodeMessage, type Message } from './messages.ts';

// Requests go to the helper's standard input, one at a time; each is answered on its standard output. What programs read
// and print is a message's body; everything else is its head.

export interface HelperRequest extends ProgramRequest {
  readonly timeoutMs: number;
}

export function encodeRequest({ input = '', ...request }: ExecRequest, timeoutMs: number): readonly Buffer[] {
  return encodeMessage({ ...request, timeoutMs }, [Buffer.from(input, 'latin1')]);
}

export function decodeRequest({ head, body }: Message): HelperRequest {
  return { ...(head as Omit<HelperRequest, 'input'>), input: body };
}

export function encodeResult(result: ProgramResult): readonly Buffer[] {
  if (result.outcome !== 'exited') return encodeMessage(result, []);
  const { stdout, ...head } = result;
  return encodeMessage(head, stdout);
}

export function decodeResult({ head, body }: Message): ExecResult {
  const result = head as ExecResult;
  return result.outcome === 'exited' ? { ...result, stdout: body.toString('latin1') } : result;
}
