import { CONTROL_SOCKET } from '../control-options.ts';
import type { Subcommand } from '../subcommand.ts';

export const TOP: Subcommand = {
  name: 'top',
  summary: 'watch the Services that carry the most, with their rates, states and endpoints',
  options: [
    {
      name: 'delay',
      alias: 'd',
      describe: 'how long between two looks, such as 500ms or 10s (default 2s)',
      value: { placeholder: 'DURATION' },
    },
    CONTROL_SOCKET,
  ],
  examples: [
    ['top', 'keys: arrows, Enter for endpoints, / to filter, ? for help, q to quit'],
    ['top -d 5s', 'looks every five seconds'],
  ],
};
