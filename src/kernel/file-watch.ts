import { stat } from 'node:fs/promises';
import type { Clock } from '../util/clock.ts';
import { readRegularFile } from './regular-file.ts';

export interface FileWatchOptions {
  readonly path: string;
  /** What is known of it: the first text that differs is the first change. */
  readonly text: string;
  readonly clock: Clock;
  /** With every new text, as soon as it can be read. */
  readonly onChange: (text: string) => void;
}

/** Upstream's inotify misses what kubelet does to a ConfigMap, which is to replace a link two directories further up. */
const PERIOD_MS = 2_000;

/** Looks at one file again and again, for ever. A file that is gone or cannot be read is no change. */
export function watchFile({ path, text, clock, onChange }: FileWatchOptions): void {
  let known = text;
  let seen = '';

  const look = async () => {
    const { ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
    const found = `${ino} ${size} ${mtimeNs} ${ctimeNs}`;
    if (found === seen) return;
    const read = readRegularFile(path);
    seen = found;
    if (read === known) return;
    known = read;
    onChange(read);
  };
  const arm = () => {
    clock.after(PERIOD_MS, () => void look().then(arm, arm));
  };
  arm();
}
