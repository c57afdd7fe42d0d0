import { UsageError } from '../../../config/usage-error.ts';
import { type Address, familyOf, parseAddress } from '../../../model/address.ts';
import type { Question, ServiceView } from '../../../model/view.ts';
import type { Control } from '../../control/protocol.ts';
import { parseEndpoint } from '../endpoint-argument.ts';
import { isSelected, selectionOf } from '../list/selection.ts';

export type Destination = Pick<Question, 'address' | 'port' | 'protocol'>;

const NAME = /^[^/:[\]]+\/[^/:]+(?::[^/:]+)?$/;
const WITH_PROTOCOL = /^(?<endpoint>[^/]*)(?:\/(?<protocol>tcp|udp))?$/i;

/** What stands on the command line; a Service is looked up by its name. Rejects with a sentence. */
export async function destinationOf(text: string, from: Address | undefined, control: Control): Promise<Destination> {
  const { endpoint, protocol = 'tcp' } = WITH_PROTOCOL.exec(text)?.groups ?? {};
  if (endpoint?.includes(':')) {
    const { address, port } = parseEndpoint(endpoint);
    return { address: onThisNode(address, from), port, protocol: protocol.toLowerCase() === 'udp' ? 'UDP' : 'TCP' };
  }
  if (NAME.test(text)) return await clusterIPOf(text, from, control);
  throw new UsageError(
    `${JSON.stringify(text)}: write an address such as 10.96.0.1:80, 10.96.0.10:53/udp or [fd00::1]:80, or a Service such as default/web or default/web:http`,
  );
}

/** Where the node's own programs get to when they connect to what stands for all of its addresses, as lists show it. */
const OF_ANY: ReadonlyMap<string, string> = new Map([
  ['0.0.0.0', '127.0.0.1'],
  ['::', '::1'],
]);

function onThisNode(address: Address, from: Address | undefined): Address {
  const loopback = parseAddress(OF_ANY.get(address) ?? '');
  if (loopback === undefined) return address;
  if (from !== undefined) {
    throw new UsageError(`${address} is every address of this node: name the one that ${from} connects to`);
  }
  return loopback;
}

async function clusterIPOf(name: string, from: Address | undefined, control: Control): Promise<Destination> {
  const selection = selectionOf({ argument: name });
  const found: ServiceView[] = [];
  for await (const services of control.ask('services', { ...selection.filter, summary: true })) {
    found.push(...services.filter((service) => isSelected(selection, service)));
  }
  const family = from === undefined ? found[0]?.family : familyOf(from);
  const candidates = found.filter((service) => service.family === family);
  const [service, another] = candidates;
  const address = service?.clusterIPs[0];
  if (service === undefined || address === undefined) {
    const within = found.length > 0 ? ` over ${family}` : '';
    throw new UsageError(`this node serves no Service ${JSON.stringify(name)}${within}; see kube-userspace-proxy list`);
  }
  if (another !== undefined) {
    const names = candidates.map((each) => each.name).join(', ');
    throw new UsageError(`${JSON.stringify(name)} has several ports; name one of them: ${names}`);
  }
  return { address, port: service.port, protocol: service.protocol };
}
