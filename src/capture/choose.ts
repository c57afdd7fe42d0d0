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
 * The method of this name, or with `auto` the first that works for one of these families. Where none does, the first
 * that has programs, which may work later. Rejects with a {@link CaptureError} where there are no programs.
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
  const method = chosen ?? methods[0];
  if (method === undefined) throw new CaptureError(failures.join('; '), { mayPass: false });
  const others = methods.filter((each) => each !== method);
  if (mode !== 'auto') return { method, others, why: '--capture says so' };
  const failed = failures.length === 0 ? '' : ` (${failures.join('; ')})`;
  const why = chosen === undefined ? `nothing works on this node yet${failed}` : `it works on this node${failed}`;
  return { method, others, why };
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
