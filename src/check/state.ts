import type { StateConfig } from '../config/config.ts';
import { DISK_TO_LOOK_AT } from '../state/disk.ts';
import type { Provenance } from '../state/format.ts';
import { type SavedState, StateFile } from '../state/state-file.ts';
import type { Clock } from '../util/clock.ts';
import { rfc3339 } from '../util/timestamp.ts';
import { type Finding, ok } from './finding.ts';

/** What a start would find in `--state-dir`. It goes on without, so nothing here is a failure by itself. */
export async function checkState(
  { directory, maxAgeMs }: Pick<StateConfig, 'directory' | 'maxAgeMs'>,
  own: Pick<Provenance, 'node' | 'source'>,
  clock: Clock,
): Promise<{ readonly findings: readonly Finding[]; readonly saved?: SavedState }> {
  const file = new StateFile({ directory, files: DISK_TO_LOOK_AT, clock });
  try {
    const saved = await file.read(own, maxAgeMs);
    if (saved === undefined) return { findings: [ok(`there is no state in ${directory} yet`)] };
    return { findings: [ok(`${file.path} has the state of ${rfc3339(saved.knownAt)}`)], saved };
  } catch {
    return { findings: file.finding === undefined ? [] : [file.finding] };
  }
}
