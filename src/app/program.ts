import { parseCommandLine } from '../config/command-line.ts';
import { readRegularFile } from '../kernel/files.ts';
import { SUBCOMMANDS } from '../operate/command/subcommands.ts';
import { messageOf } from '../util/text.ts';
import { parseDocuments } from '../util/yaml.ts';
import { cleanup, initialize, refuse, writeConfiguration } from './commands.ts';
import { run } from './run.ts';

/** Everything but subcommands: does what the flags ask for. Resolves with the exit code, if it is known. */
export async function program(argv: readonly string[]): Promise<number | undefined> {
  let configuration = '';
  const readDocuments = (path: string) => {
    configuration = readRegularFile(path);
    return parseDocuments(configuration);
  };
  const commandLine = parseCommandLine(argv, readDocuments, SUBCOMMANDS);
  switch (commandLine.kind) {
    case 'help':
    case 'version':
      process.stdout.write(`${commandLine.text}\n`);
      return 0;
    case 'error':
      return refuse(commandLine.text);
    case 'cleanup':
      return await cleanup(commandLine.iptablesMode, commandLine.log);
    case 'init':
      return await initialize(commandLine.machine, commandLine.log);
    case 'write-config':
      return writeConfiguration(commandLine.path, commandLine.text);
    case 'run':
      try {
        await run({ ...commandLine, argv, configuration });
        return undefined;
      } catch (error) {
        return refuse(messageOf(error));
      }
  }
}
