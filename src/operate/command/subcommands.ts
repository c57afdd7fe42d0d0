import { CONTROL_SOCKET, JSON_OUTPUT } from './control-options.ts';
import { EXPLAIN } from './explain/subcommand.ts';
import { LIST } from './list/subcommand.ts';
import type { Subcommand } from './subcommand.ts';

const ENDPOINT = 'IP:PORT';

export const CHECK: Subcommand = {
  name: 'check',
  summary: 'look whether the proxy would run here with these flags, and say what is in its way; changes nothing',
  positional: '[FLAGS OF A RUN]',
  options: [
    {
      name: 'output',
      alias: 'o',
      describe: 'text, or json for machines',
      value: { placeholder: 'FORMAT', choices: ['text', 'json'] },
    },
  ],
  examples: [['check --kubeconfig FILE', 'before the proxy is started for the first time']],
};

export const DRAIN: Subcommand = {
  name: 'drain',
  summary: 'give an endpoint no new connections on this node, in no Service; those that it has go on',
  positional: ENDPOINT,
  options: [
    {
      name: 'timeout',
      describe: 'wait until its connections have ended, but no longer than this, such as 30s or 5m; 0 is no bound',
      value: { placeholder: 'DURATION' },
    },
    CONTROL_SOCKET,
  ],
  examples: [
    ['drain 10.244.1.7:8080', 'takes the endpoint out, until undrain or until the proxy is started anew'],
    ['drain [fd00::7]:8080 --timeout 5m', 'and waits; exits with 1 if connections are left after five minutes'],
  ],
};

export const UNDRAIN: Subcommand = {
  name: 'undrain',
  summary: 'give a drained endpoint new connections again',
  positional: ENDPOINT,
  options: [CONTROL_SOCKET],
};

export const LOG_LEVEL: Subcommand = {
  name: 'log-level',
  summary: 'change how much the log says, from 0 to 10, until the proxy is started anew',
  positional: 'LEVEL',
  options: [CONTROL_SOCKET],
  examples: [['log-level 4', 'as if it had been started with -v 4']],
};

export const SHOW_VERSION: Subcommand = {
  name: 'version',
  summary: 'show the version of this program and of the proxy that is running',
  options: [JSON_OUTPUT, CONTROL_SOCKET],
};

/** In the order in which `--help` shows them. */
export const SUBCOMMANDS: readonly Subcommand[] = [LIST, EXPLAIN, CHECK, DRAIN, UNDRAIN, LOG_LEVEL, SHOW_VERSION];
