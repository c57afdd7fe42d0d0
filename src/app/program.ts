import { configure } from '../config/command-line.ts';
import type { FlagTexts } from '../config/evaluate.ts';
import { readRegularFile } from '../kernel/files.ts';
import { parseDocuments } from '../util/yaml.ts';
import { cleanup, initialize, writeConfiguration } from './commands.ts';
import { run } from './run.ts';

/** Everything but commands: does what the flags ask for. Resolves with the exit code, if it is known. */
export async function program(flags: FlagTexts): Promise<number | undefined> {
  let configuration = '';
  const asked = configure(flags, (path) => {
    configuration = readRegularFile(path);
    return parseDocuments(configuration);
  });
  switch (asked.kind) {
    case 'cleanup':
      return await cleanup(asked.iptablesMode, asked.log);
    case 'init':
      return await initialize(asked.machine, asked.log);
    case 'write-config':
      return writeConfiguration(asked.path, asked.text);
    case 'run':
      await run({ ...asked, flags, configuration });
      return undefined;
  }
}
