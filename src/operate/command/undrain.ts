import { endpointName } from '../../model/endpoint.ts';
import { parseArguments } from './arguments.ts';
import { askOne } from './ask-one.ts';
import { controlSocketOf } from './control-options.ts';
import { parseEndpoint } from './endpoint-argument.ts';
import type { RunSubcommand } from './subcommand.ts';
import { UNDRAIN } from './subcommands.ts';

export const undrain: RunSubcommand = async (argv, terminal, { connect }) => {
  const given = parseArguments(UNDRAIN, argv);
  const endpoint = parseEndpoint(given.positional ?? '');
  const name = endpointName(endpoint);
  const control = connect(controlSocketOf(given));
  const { wasDrained } = await askOne(control, 'undrain', { endpoint });
  terminal.out(wasDrained ? `${name} gets new connections again.\n` : `${name} was not drained.\n`);
  return 0;
};
