import { DEFAULT_CONTROL_SOCKET } from '../../config/values.ts';

/*
 * Options that several commands have.
 */

export const CONTROL_SOCKET = {
  'control-socket': {
    type: 'string',
    nargs: 1,
    default: DEFAULT_CONTROL_SOCKET,
    describe: 'control socket of the running proxy',
  },
} as const;

export const JSON_OUTPUT = {
  output: { alias: 'o', nargs: 1, choices: ['json'], describe: 'print JSON instead of text' },
} as const;
