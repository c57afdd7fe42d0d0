import { UsageError } from '../../../config/usage-error.ts';
import { type Address, familyOf, parseAddress } from '../../../model/address.ts';
import { askOne } from '../ask-one.ts';
import { warnOfCaveats } from '../caveats.ts';
import { command } from '../command.ts';
import { CONTROL_SOCKET, JSON_OUTPUT } from '../control-options.ts';
import { printableJson } from '../format/json.ts';
import { destinationOf } from './destination.ts';
import { explanationText } from './text.ts';

export const EXPLAIN = command({
  name: 'explain',
  summary: 'say what becomes of a connection: which rules match, whose listener gets it, and which endpoint is next',
  argument: 'IP:PORT[/udp]|NAMESPACE/SERVICE[:PORT]',
  options: {
    from: { type: 'string', nargs: 1, describe: 'address of the client; when not given, this node itself' },
    ...JSON_OUTPUT,
    ...CONTROL_SOCKET,
  },
  examples: [
    ['explain 10.96.0.1:443', 'a cluster IP; exits with 1 if no endpoint would get the connection'],
    ['explain 10.96.0.10:53/udp --from 10.244.1.7', 'as it is for a client that is a pod'],
    ['explain default/web:http', 'the same by name'],
    ['explain 192.168.50.10:30080 --from 198.51.100.1', 'a NodePort, from outside'],
  ],
  /** 0 when an endpoint would get the connection. */
  run: async (given, terminal, { clock, connect }) => {
    const client = clientOf(given.from);
    const control = connect(given['control-socket']);
    const destination = await destinationOf(given.argument, client, control);
    if (client !== undefined && familyOf(client) !== familyOf(destination.address)) {
      throw new UsageError(`--from ${client}: not of the address family of ${destination.address}`);
    }
    const question = { ...destination, ...(client !== undefined && { client }) };
    const explanation = await askOne(control, 'explain', question);
    const isJson = given.output === 'json';
    // The clock is that of the proxy: both are on one machine.
    terminal.out(isJson ? printableJson(explanation) : explanationText(explanation, clock.wallNow()));
    warnOfCaveats(await askOne(control, 'node', {}), terminal);
    return explanation.served ? 0 : 1;
  },
});

function clientOf(text: string | undefined): Address | undefined {
  if (text === undefined) return undefined;
  const client = parseAddress(text);
  if (client === undefined) throw new UsageError(`--from ${JSON.stringify(text)}: must be an IP address`);
  return client;
}
