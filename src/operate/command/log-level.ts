import { UsageError } from '../../config/usage-error.ts';
import { integer } from '../../config/values.ts';
import { parseArguments } from './arguments.ts';
import { askOne } from './ask-one.ts';
import { controlSocketOf } from './control-options.ts';
import { nodeOf } from './node-of.ts';
import type { RunSubcommand } from './subcommand.ts';
import { LOG_LEVEL } from './subcommands.ts';

export const logLevel: RunSubcommand = async (argv, terminal, { connect }) => {
  const given = parseArguments(LOG_LEVEL, argv);
  const verbosity = levelOf(given.positional ?? '');
  const control = connect(controlSocketOf(given));
  const { verbosity: before } = await nodeOf(control);
  await askOne(control, 'log-level', { verbosity });
  terminal.out(`The log level is ${verbosity} now; it was ${before}.\n`);
  return 0;
};

function levelOf(text: string): number {
  try {
    return integer(0, 10)(text);
  } catch (error) {
    throw error instanceof UsageError ? new UsageError(`${JSON.stringify(text)}: ${error.message}`) : error;
  }
}
