import { CONTROL_SOCKET } from '../control-options.ts';
import type { Subcommand } from '../subcommand.ts';

export const LIST: Subcommand = {
  name: 'list',
  summary: 'list the Services that are served, with their endpoints and connections, in the layout of ipvsadm',
  positional: '[NAMESPACE[/SERVICE[:PORT]]]',
  options: [
    { name: 'stats', describe: 'show connections and bytes since each Service, or endpoint, came' },
    { name: 'rate', describe: 'show connections and bytes per second, over the last 5 seconds, of Services only' },
    { name: 'connection', alias: 'c', describe: 'list open connections and flows' },
    {
      name: 'watch',
      alias: 'w',
      describe: 'show open connections and rates of Services every 2 seconds, on a terminal in place, until Ctrl-C',
    },
    {
      name: 'sort',
      describe: 'what comes first with --watch; rate without it',
      value: { placeholder: 'ORDER', choices: ['rate', 'connections', 'name'] },
    },
    { name: 'exact', describe: 'show large numbers in full, not rounded down to K, M, G or T' },
    {
      name: 'numeric',
      alias: 'n',
      describe: 'has no effect: addresses and ports are always numbers; for those used to ipvsadm',
    },
    {
      name: 'output',
      alias: 'o',
      describe: 'wide adds states, local ports, workers, and what is wrong; json has everything',
      value: { placeholder: 'FORMAT', choices: ['table', 'wide', 'json'] },
    },
    {
      name: 'namespace',
      alias: 'N',
      describe: 'only Services of this namespace',
      value: { placeholder: 'NAMESPACE' },
    },
    { name: 'service', describe: 'only Services of this name', value: { placeholder: 'NAME' } },
    CONTROL_SOCKET,
  ],
  examples: [
    ['list', 'all Services and their endpoints'],
    ['list kube-system/kube-dns:dns-tcp -o wide', 'one port, with states'],
    ['list --stats -N default', 'what the Services of a namespace have carried'],
    ['list --watch', 'the Services with the most new connections first, live'],
    ['list -c default/web', 'the open connections of a Service'],
    ['list -o json | jq \'.services[] | select(.state != "ok")\'', 'what is not well'],
  ],
};
