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
  /** All others that have programs here: a previous run may have captured by one of them. */
  readonly others: readonly CaptureMethod[];
  /** As the end of a sentence: "it works on this node". */
  readonly why: string;
}

/** Rejects where the kernel cannot capture packets of the family so. */
export type Probe = (method: CaptureMethod, family: IpFamily) => Promise<void>;

/**
 * The method of this name, or with `auto` the first that works for one of these families. Rejects with a
 * {@link CaptureError}.
 */
export async function chooseMethod(
  mode: 'auto' | CaptureMethodName,
  candidates: readonly Candidate[],
  families: readonly IpFamily[],
  probe: Probe = (method, family) => method.probe(family),
): Promise<Choice> {
  const methods: CaptureMethod[] = [];
  const failures: string[] = [];
  let chosen: CaptureMethod | undefined;
  for (const { name, open } of candidates) {
    try {
      const method = await open();
      methods.push(method);
      if (mode === name) chosen = method;
      if (mode !== 'auto' || chosen !== undefined) continue;
      await worksForOne(method, families, probe);
      chosen = method;
    } catch (error) {
      if (mode === name) throw error;
      failures.push(`${name}: ${messageOf(error)}`);
    }
  }
  if (chosen === undefined)
    throw new CaptureError(`nothing here can capture packets (${failures.join('; ')})`, { mayPass: false });
  const why = mode !== 'auto' ? '--capture says so' : whyChosen(failures);
  return { method: chosen, others: methods.filter((method) => method !== chosen), why };
}

function whyChosen(failures: readonly string[]): string {
  return failures.length === 0 ? 'it works on this node' : `nothing else works on this node (${failures.join('; ')})`;
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
