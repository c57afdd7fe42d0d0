import { endpointName } from '../../model/endpoint.ts';
import { askOne } from './ask-one.ts';
import { command } from './command.ts';
import { CONTROL_SOCKET } from './control-options.ts';
import { parseEndpoint } from './endpoint-argument.ts';

export const UNDRAIN = command({
  name: 'undrain',
  summary: 'give a drained endpoint new connections again',
  argument: 'IP:PORT',
  options: CONTROL_SOCKET,
  run: async (given, terminal, { connect }) => {
    const endpoint = parseEndpoint(given.argument);
    const name = endpointName(endpoint);
    const { wasDrained } = await askOne(connect(given['control-socket']), 'undrain', { endpoint });
    terminal.out(wasDrained ? `${name} gets new connections again.\n` : `${name} was not drained.\n`);
    return 0;
  },
});
