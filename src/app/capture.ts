import { IptablesMethod } from '../capture/iptables/method.ts';
import type { CaptureMethod } from '../capture/method.ts';
import type { Config } from '../config/config.ts';
import { machine } from '../kernel/addresses.ts';
import type { Exec } from '../kernel/iptables/exec.ts';
import { createIptables } from '../kernel/iptables/iptables.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';

/** How this process captures, and how another may have before. */
export interface OpenedCapture {
  readonly method: CaptureMethod;
  readonly others: readonly CaptureMethod[];
}

/** Rejects with a `CaptureError` when there are no programs for it. */
export async function openCapture(
  { iptablesMode: flavour }: Pick<Config, 'iptablesMode'>,
  { exec, log }: { readonly exec: Exec; readonly log: Log },
): Promise<OpenedCapture> {
  const iptables = await createIptables({ flavour, exec, log });
  const { isLocal } = machine;
  return { method: new IptablesMethod({ iptables, isLocal, clock, log }), others: [] };
}
