import { UsageError } from '../../../config/usage-error.ts';
import { type Address, familyOf, parseAddress } from '../../../model/address.ts';
import { parseArguments, type SubcommandArguments } from '../arguments.ts';
import { askOne } from '../ask-one.ts';
import { warnOfCaveats } from '../caveats.ts';
import { controlSocketOf } from '../control-options.ts';
import { printableJson } from '../format/json.ts';
import { nodeOf } from '../node-of.ts';
import type { RunSubcommand } from '../subcommand.ts';
import { destinationOf } from './destination.ts';
import { EXPLAIN } from './subcommand.ts';
import { explanationText } from './text.ts';

/** 0 when an endpoint would get the connection. */
export const explain: RunSubcommand = async (argv, terminal, { clock, connect }) => {
  const given = parseArguments(EXPLAIN, argv);
  const client = clientOf(given);
  const control = connect(controlSocketOf(given));
  const destination = await destinationOf(given.positional ?? '', client, control);
  if (client !== undefined && familyOf(client) !== familyOf(destination.address)) {
    throw new UsageError(`--from ${client}: not of the address family of ${destination.address}`);
  }
  const question = { ...destination, ...(client !== undefined && { client }) };
  const explanation = await askOne(control, 'explain', question);
  const isJson = given.values.get('output') === 'json';
  // The clock is that of the proxy: both are on one machine.
  terminal.out(isJson ? printableJson(explanation) : explanationText(explanation, clock.wallNow()));
  warnOfCaveats(await nodeOf(control), terminal);
  return explanation.served ? 0 : 1;
};

function clientOf({ values }: SubcommandArguments): Address | undefined {
  const text = values.get('from');
  if (text === undefined) return undefined;
  const client = parseAddress(text);
  if (client === undefined) throw new UsageError(`--from ${JSON.stringify(text)}: must be an IP address`);
  return client;
}
