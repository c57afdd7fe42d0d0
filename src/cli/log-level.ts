import { integer } from '../config/values.ts';
import { command } from './command.ts';
import { askOne, CONTROL_SOCKET, typed } from './shared.ts';

export const LOG_LEVEL = command({
  name: 'log-level',
  summary: 'change the log verbosity, from 0 to 10, until the proxy is restarted',
  argument: 'LEVEL',
  options: CONTROL_SOCKET,
  examples: [['log-level 4', 'as if it had been started with -v 4']],
  run: async (given, terminal, { connect }) => {
    const verbosity = typed(given.argument, integer(0, 10));
    const control = connect(given['control-socket']);
    const { verbosity: before } = await askOne(control, 'node', {});
    await askOne(control, 'log-level', { verbosity });
    terminal.out(`The log level is ${verbosity} now; it was ${before}.\n`);
    return 0;
  },
});
