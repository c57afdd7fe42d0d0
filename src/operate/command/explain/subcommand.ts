import { CONTROL_SOCKET, JSON_OUTPUT } from '../control-options.ts';
import type { Subcommand } from '../subcommand.ts';

export const EXPLAIN: Subcommand = {
  name: 'explain',
  summary: 'say what becomes of a connection: which rules match, whose listener gets it, and which endpoint is next',
  positional: 'IP:PORT[/udp]|NAMESPACE/SERVICE[:PORT]',
  options: [
    {
      name: 'from',
      describe: 'address of the client; when not given, this node itself',
      value: { placeholder: 'IP' },
    },
    JSON_OUTPUT,
    CONTROL_SOCKET,
  ],
  examples: [
    ['explain 10.96.0.1:443', 'a cluster IP; exits with 1 if no endpoint would get the connection'],
    ['explain 10.96.0.10:53/udp --from 10.244.1.7', 'as it is for a client that is a pod'],
    ['explain default/web:http', 'the same by name'],
    ['explain 192.168.50.10:30080 --from 198.51.100.1', 'a NodePort, from outside'],
  ],
};
