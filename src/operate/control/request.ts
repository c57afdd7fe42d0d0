import { type Address, familyOf, parseAddress } from '../../model/address.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { Question, ServiceFilter } from '../../model/view.ts';
import { type CommandName, type Commands, PROTOCOL_VERSION, type Request } from './protocol.ts';

/** What is wrong with a request: a sentence for whoever made it. */
export class RequestError extends Error {
  override readonly name = 'RequestError';
}

type Fields = Readonly<Record<string, unknown>>;

const MAX_VERBOSITY = 10;
/** Longer than any name in Kubernetes. */
const MAX_NAME = 253;

/** Takes nothing on trust; of what it does not know, nothing is in the result. Throws {@link RequestError}. */
export function decodeRequest(line: string): Request {
  const { v, command, params } = fields(parsed(line), 'the request');
  if (v !== PROTOCOL_VERSION) {
    throw new RequestError(
      `the request is of version ${shown(v)} of the control protocol and the running program speaks version ${PROTOCOL_VERSION}; use the program of the same release`,
    );
  }
  if (typeof command !== 'string' || !isCommand(command)) {
    throw new RequestError(
      `the running program knows no command ${shown(command)}; use the program of the same release`,
    );
  }
  return { v, command, params: DECODERS[command](fields(params, 'params')) } as Request;
}

const DECODERS: { readonly [C in CommandName]: (params: Fields) => Commands[C]['params'] } = {
  node: () => ({}),
  services: serviceFilter,
  connections: serviceFilter,
  explain: question,
  drain: ({ endpoint }) => ({ endpoint: endpointOf(endpoint) }),
  undrain: ({ endpoint }) => ({ endpoint: endpointOf(endpoint) }),
  'log-level': ({ verbosity }) => ({ verbosity: integer(verbosity, 'verbosity', 0, MAX_VERBOSITY) }),
};

function isCommand(name: string): name is CommandName {
  return Object.hasOwn(DECODERS, name);
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    throw new RequestError('the request is not a line of JSON');
  }
}

function fields(value: unknown, what: string): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new RequestError(`${what} must be an object`);
  return value as Fields;
}

function serviceFilter({ namespace, service, summary }: Fields): ServiceFilter {
  if (summary !== undefined && typeof summary !== 'boolean') throw new RequestError('summary must be true or false');
  return {
    ...(summary !== undefined && { summary }),
    ...(namespace !== undefined && { namespace: nameOf(namespace, 'namespace') }),
    ...(service !== undefined && { service: nameOf(service, 'service') }),
  };
}

function question({ address, port, protocol, client }: Fields): Question {
  const asked = addressOf(address, 'address');
  if (protocol !== 'TCP' && protocol !== 'UDP') throw new RequestError('protocol must be TCP or UDP');
  const from = client === undefined ? undefined : addressOf(client, 'client');
  if (from !== undefined && familyOf(from) !== familyOf(asked)) {
    throw new RequestError('client and address must be of one address family');
  }
  return { address: asked, port: portOf(port), protocol, ...(from !== undefined && { client: from }) };
}

function endpointOf(value: unknown): Endpoint {
  const { address, port } = fields(value, 'endpoint');
  return { address: addressOf(address, 'address'), port: portOf(port) };
}

function addressOf(value: unknown, what: string): Address {
  const address = typeof value === 'string' ? parseAddress(value) : undefined;
  if (address === undefined) throw new RequestError(`${what} must be an IP address`);
  return address;
}

function portOf(value: unknown): number {
  return integer(value, 'port', 1, 65_535);
}

function nameOf(value: unknown, what: string): string {
  if (typeof value !== 'string' || value.length > MAX_NAME) throw new RequestError(`${what} must be a name`);
  return value;
}

function integer(value: unknown, what: string, min: number, max: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    throw new RequestError(`${what} must be a whole number from ${min} to ${max}`);
  }
  return value;
}

/** Short, whatever it is: an object may be too deep to be printed at all. */
function shown(value: unknown): string {
  if (typeof value === 'object' && value !== null) return '{…}';
  const text = JSON.stringify(value) ?? 'none';
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
