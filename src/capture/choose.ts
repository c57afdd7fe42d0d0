import type { IpFamily } from '../model/address.ts';
import { CaptureError, type CaptureMethodName } from '../model/capture.ts';
import { messageOf } from '../util/text.ts';
import type { CaptureMethod } from './method.ts';

export interface Candidate {
  readonly name: CaptureMethodName;
  /** Rejects with a `CaptureError` where its programs are missing. */
  readonly open: () => Promise<CaptureMethod>;
}

export interface Choice {
  readonly method: CaptureMethod;
  /** As the end of a sentence: "it works on this node". */
  readonly why: string;
}

/** Rejects where the kernel cannot capture packets of the family so. */
type Probe = (method: CaptureMethod, family: IpFamily) => Promise<void>;

/**
 * The method of this name, or with `auto` the first that works for one of these families. Where none does, the first
 * that has programs, which may work later. Rejects with a {@link CaptureError} where there are no programs.
 */
export async function chooseMethod(
  mode: 'auto' | CaptureMethodName,
  candidates: readonly Candidate[],
  families: readonly IpFamily[],
  probe: Probe = (method, family) => method.probe(family),
): Promise<Choice> {
  const failures: string[] = [];
  let first: CaptureMethod | undefined;
  for (const { name, open } of candidates) {
    if (mode !== 'auto' && mode !== name) continue;
    try {
      const method = await open();
      if (mode === name) return { method, why: '--capture says so' };
      first ??= method;
      await worksForOne(method, families, probe);
      return { method, why: `it works on this node${inBrackets(failures)}` };
    } catch (error) {
      if (mode === name) throw error;
      failures.push(`${name}: ${messageOf(error)}`);
    }
  }
  if (first === undefined) throw new CaptureError(failures.join('; '), { mayPass: false });
  return { method: first, why: `nothing works on this node yet${inBrackets(failures)}` };
}

function inBrackets(failures: readonly string[]): string {
  return failures.length === 0 ? '' : ` (${failures.join('; ')})`;
}

/** Rejects when the method works for none of the families. What cannot be told yet counts as working. */
async function worksForOne(method: CaptureMethod, families: readonly IpFamily[], probe: Probe): Promise<void> {
  let failure: unknown;
  for (const family of families) {
    try {
      await probe(method, family);
      return;
    } catch (error) {
      if (error instanceof CaptureError && error.mayPass) return;
      failure ??= error;
    }
  }
  throw failure;
}
