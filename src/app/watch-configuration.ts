import { parseCommandLine } from '../config/command-line.ts';
import { watchFile } from '../kernel/files.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { parseDocuments } from '../util/yaml.ts';

export interface WatchedConfiguration {
  readonly path: string;
  /** What the file says by now. */
  readonly configuration: string;
  readonly argv: readonly string[];
  readonly log: Log;
  /** When the file says something new that can be used. */
  readonly onUpdate: () => void;
}

export function watchConfiguration({ path, argv, configuration, log, onUpdate }: WatchedConfiguration): void {
  const onChange = (text: string) => {
    const next = parseCommandLine(argv, () => parseDocuments(text));
    if (next.kind === 'error') {
      // Upstream ends, and is started again and again in vain.
      log.error('The configuration file is wrong; what it said before stays in force', { err: next.text });
    } else if (text !== configuration) {
      log.warn("The content of the proxy server's configuration file was updated; a new process is to serve with it", {
        file: path,
      });
      onUpdate();
    }
  };
  watchFile({ path, text: configuration, clock, onChange });
}
