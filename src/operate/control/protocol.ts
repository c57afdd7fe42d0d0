import { type Address, familyOf, parseAddress } from '../../model/address.ts';
import { type Endpoint, endpointName, endpointOf } from '../../model/endpoint.ts';
import { MAX_WEIGHT } from '../../model/scheduler.ts';
import type { ConnectionView, Explanation, NodeView, Question, ServiceFilter, ServiceView } from '../../model/view.ts';
import { Field, FieldError, show } from '../../util/untrusted.ts';
import type { LogLine } from '../connection-log/line.ts';
import type { EndpointUsers } from './endpoint-users.ts';

/*
 * What the running program is asked over HTTP, and what it answers: the routes of /v1. docs/api.md promises them to
 * users.
 */

/** The parameters of each route, and its answer: one value, or the rows that come in each piece. */
export interface Commands {
  readonly node: { readonly params: Nothing; readonly piece: NodeView };
  readonly services: { readonly params: ServiceFilter; readonly piece: readonly ServiceView[] };
  readonly connections: { readonly params: ServiceFilter; readonly piece: readonly ConnectionView[] };
  /** Never ends by itself. `port`: a name or a number. */
  readonly tail: {
    readonly params: Omit<ServiceFilter, 'summary'> & { readonly port?: string };
    readonly piece: readonly LogLine[];
  };
  readonly explain: { readonly params: Question; readonly piece: Explanation };
  readonly endpoint: { readonly params: { readonly endpoint: Endpoint }; readonly piece: EndpointUsers };
  /**
   * The answer is the state before the drain. An endpoint that no Service has is an error, mostly a slip of the
   * operator, unless it is `forced`.
   */
  readonly drain: {
    readonly params: { readonly endpoint: Endpoint; readonly forced?: boolean };
    readonly piece: EndpointUsers;
  };
  readonly undrain: {
    readonly params: { readonly endpoint: Endpoint };
    readonly piece: { readonly wasDrained: boolean };
  };
  readonly weight: {
    /**
     * `default` takes back what an operator has set. An endpoint that no Service has is an error, unless it has been
     * set before.
     */
    readonly params: { readonly endpoint: Endpoint; readonly weight: number | 'default' };
    /** What was set before. */
    readonly piece: { readonly before?: number };
  };
  readonly 'log-level': { readonly params: { readonly verbosity: number }; readonly piece: Nothing };
}

export type Nothing = Readonly<Record<string, never>>;
export type CommandName = keyof Commands;

/**
 * How long the server waits for the client to read what there is. A stopped client must not keep one of its few
 * connections for ever.
 */
export const READ_TIMEOUT_MS = 30_000;

/** The client's side. Rejects with a sentence for the user. */
export interface Control {
  ask<C extends CommandName>(command: C, params: Commands[C]['params']): AsyncIterable<Commands[C]['piece']>;
}

/** What is wrong with a request: a sentence for the user. */
export class RequestError extends Error {
  override readonly name = 'RequestError';
  /** Of the HTTP answer. */
  readonly status: number;

  constructor(message: string, status = 400) {
    super(message);
    this.status = status;
  }
}

/** How the text of a parameter is read. */
const READERS = {
  text: (text: string) => text,
  number: (text: string) => (/^\d{1,9}$/.test(text) ? Number(text) : text),
  flag: (text: string) => (text === 'true' || text === 'false' ? text === 'true' : text),
} as const;

interface Route<C extends CommandName> {
  readonly method: 'GET' | 'POST';
  /** The answer is lines of JSON, one for each row, in place of one JSON value. */
  readonly isRows: boolean;
  readonly parameters: Readonly<Record<string, keyof typeof READERS>>;
  readonly decode: (params: Field) => Commands[C]['params'];
}

const NAMES = { namespace: 'text', service: 'text' } as const;
const MAX_VERBOSITY = 10;
/** Longer than any name in Kubernetes. */
const MAX_NAME = 253;

/** The route of a command is `/v1/` and its name. */
export const ROUTES: { readonly [C in CommandName]: Route<C> } = {
  node: { method: 'GET', isRows: false, parameters: {}, decode: () => ({}) },
  services: { method: 'GET', isRows: true, parameters: { ...NAMES, summary: 'flag' }, decode: serviceFilter },
  connections: { method: 'GET', isRows: true, parameters: NAMES, decode: serviceFilter },
  tail: {
    method: 'GET',
    isRows: true,
    parameters: { ...NAMES, port: 'text' },
    decode: (params) => {
      const filter: Commands['tail']['params'] = serviceFilter(params);
      const port = nameOf(params.get('port'));
      return port === undefined ? filter : { ...filter, port };
    },
  },
  explain: {
    method: 'GET',
    isRows: false,
    parameters: { address: 'text', port: 'number', protocol: 'text', client: 'text' },
    decode: question,
  },
  endpoint: {
    method: 'GET',
    isRows: false,
    parameters: { endpoint: 'text' },
    decode: (params) => ({ endpoint: endpoint(params) }),
  },
  drain: {
    method: 'POST',
    isRows: false,
    parameters: { endpoint: 'text', forced: 'flag' },
    decode: (params) => ({ endpoint: endpoint(params), forced: params.get('forced').booleanOr(false) }),
  },
  undrain: {
    method: 'POST',
    isRows: false,
    parameters: { endpoint: 'text' },
    decode: (params) => ({ endpoint: endpoint(params) }),
  },
  weight: {
    method: 'POST',
    isRows: false,
    parameters: { endpoint: 'text', weight: 'number' },
    decode: (params) => {
      const weight = params.get('weight');
      return {
        endpoint: endpoint(params),
        weight: weight.value === 'default' ? weight.value : weight.integer(0, MAX_WEIGHT),
      };
    },
  },
  'log-level': {
    method: 'POST',
    isRows: false,
    parameters: { verbosity: 'number' },
    decode: (params) => ({ verbosity: params.get('verbosity').integer(0, MAX_VERBOSITY) }),
  },
};

export const COMMAND_NAMES = Object.keys(ROUTES) as readonly CommandName[];

export function pathOf(command: CommandName): string {
  return `/v1/${command}`;
}

export function encodeQuery(params: object): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined) query.set(name, typeof value === 'object' ? endpointName(value) : String(value));
  }
  return query.toString();
}

/** Validates a query. Throws {@link RequestError}. */
export function decodeQuery<C extends CommandName>(command: C, query: URLSearchParams): Commands[C]['params'] {
  const { parameters, decode } = ROUTES[command];
  const given: Record<string, unknown> = {};
  for (const [name, text] of query) {
    const kind = Object.hasOwn(parameters, name) ? parameters[name] : undefined;
    if (kind === undefined) {
      const known = Object.keys(parameters).join(', ') || 'none';
      throw new RequestError(`${pathOf(command)} has no parameter ${show(name)}; it takes ${known}`);
    }
    if (Object.hasOwn(given, name)) throw new RequestError(`the parameter ${name} is given twice`);
    given[name] = READERS[kind](text);
  }
  try {
    return decode(Field.root(given));
  } catch (error) {
    throw error instanceof FieldError ? new RequestError(error.message) : error;
  }
}

function serviceFilter(params: Field): ServiceFilter {
  const namespace = nameOf(params.get('namespace'));
  const service = nameOf(params.get('service'));
  const summary = params.get('summary').booleanOr(undefined);
  return {
    ...(summary !== undefined && { summary }),
    ...(namespace !== undefined && { namespace }),
    ...(service !== undefined && { service }),
  };
}

function nameOf(field: Field): string | undefined {
  if (!field.isPresent) return undefined;
  const name = field.string();
  if (name === '' || name.length > MAX_NAME) throw field.wrong('expected a name');
  return name;
}

function question(params: Field): Question {
  const address = addressOf(params.get('address'));
  const port = params.get('port').integer(1, 65_535);
  const protocol = params.get('protocol').oneOf(['TCP', 'UDP']);
  const field = params.get('client');
  if (!field.isPresent) return { address, port, protocol };
  const client = addressOf(field);
  if (familyOf(client) !== familyOf(address)) throw field.wrong('expected the address family of the other address');
  return { address, port, protocol, client };
}

function endpoint(params: Field): Endpoint {
  const field = params.get('endpoint');
  const found = endpointOf(field.string());
  if (found === undefined) throw field.wrong('expected an address with a port, such as 10.244.1.7:80 or [fd00::7]:80');
  return found;
}

function addressOf(field: Field): Address {
  const address = parseAddress(field.string());
  if (address === undefined) throw field.wrong('expected an IP address');
  return address;
}
