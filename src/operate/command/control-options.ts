import { DEFAULT_CONTROL_SOCKET } from '../../config/control-socket.ts';
import type { SubcommandArguments } from './arguments.ts';
import type { SubcommandOption } from './subcommand.ts';

/*
 * Options that several subcommands have.
 */

export const CONTROL_SOCKET: SubcommandOption = {
  name: 'control-socket',
  describe: `control socket of the running proxy, when not ${DEFAULT_CONTROL_SOCKET}`,
  value: { placeholder: 'PATH' },
};

export const JSON_OUTPUT: SubcommandOption = {
  name: 'output',
  alias: 'o',
  describe: 'print JSON instead of text',
  value: { placeholder: 'FORMAT', choices: ['json'] },
};

/** Where the proxy that is meant listens. */
export function controlSocketOf({ values }: SubcommandArguments): string {
  return values.get(CONTROL_SOCKET.name) ?? DEFAULT_CONTROL_SOCKET;
}
