import { parseCommandLine } from './cli/command-line.ts';
import { readRegularFile } from './host/regular-file.ts';
import { cleanup, initialize, refuse, writeConfiguration } from './main/commands.ts';
import { run } from './main/run.ts';
import { messageOf } from './model/message-of.ts';
import { strictDocuments } from './sources/strict-documents.ts';

const code = await main(process.argv.slice(2));
// Not by letting the event loop run dry: worker threads and sockets of a start that failed would keep it going. On Linux,
// writes to standard streams are synchronous, so nothing of what was said is lost.
if (code !== undefined) process.exit(code);

/** Resolves with the exit code, if it is known. */
async function main(argv: readonly string[]): Promise<number | undefined> {
  let configuration = '';
  const commandLine = parseCommandLine(argv, (path) => {
    configuration = readRegularFile(path);
    return strictDocuments(configuration);
  });
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
      return await initialize(commandLine.conntrack, commandLine.log);
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
