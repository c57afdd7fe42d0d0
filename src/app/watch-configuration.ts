import { configure } from '../config/command-line.ts';
import type { FlagTexts } from '../config/evaluate.ts';
import { watchFile } from '../kernel/files.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';
import { parseDocuments } from '../util/yaml.ts';

export interface WatchedConfiguration {
  readonly path: string;
  /** What the file says by now. */
  readonly configuration: string;
  readonly flags: FlagTexts;
  readonly log: Log;
  /** When the file says something new that can be used. */
  readonly onUpdate: () => void;
}

export function watchConfiguration({ path, flags, configuration, log, onUpdate }: WatchedConfiguration): void {
  const onChange = (text: string) => {
    try {
      configure(flags, () => parseDocuments(text));
    } catch (error) {
      // Upstream ends, and is started again and again in vain.
      log.error('The configuration file is wrong; what it said before stays in force', { err: messageOf(error) });
      return;
    }
    if (text === configuration) return;
    log.warn("The content of the proxy server's configuration file was updated; a new process is to serve with it", {
      file: path,
    });
    onUpdate();
  };
  watchFile({ path, text: configuration, clock, onChange });
}
