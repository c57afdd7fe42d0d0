import { type Address, parseAddress } from '../../model/address.ts';
import { type Endpoint, endpointName, endpointOf } from '../../model/endpoint.ts';
import { MAX_WEIGHT } from '../../model/scheduler.ts';
import type { ConnectionView, Explanation, NodeView, Question, ServiceFilter, ServiceView } from '../../model/view.ts';
import { show } from '../../util/untrusted.ts';
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
  readonly connections: { readonly params: Omit<ServiceFilter, 'summary'>; readonly piece: readonly ConnectionView[] };
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

/** How the text of a parameter is read. `undefined`: it is not what is expected. */
interface Kind<T> {
  readonly expected: string;
  readonly read: (text: string) => T | undefined;
}

type Given<C extends CommandName> = Commands[C]['params'];

interface Route<C extends CommandName> {
  readonly method: 'GET' | 'POST';
  /** The answer is lines of JSON, one for each row, in place of one JSON value. */
  readonly isRows: boolean;
  readonly parameters: { readonly [P in keyof Given<C>]-?: Kind<Exclude<Given<C>[P], undefined>> };
  readonly optional: readonly (keyof Given<C>)[];
}

function integer(min: number, max: number): Kind<number> {
  const isIn = (value: number) => value >= min && value <= max;
  const read = (text: string) => (/^\d{1,9}$/.test(text) && isIn(Number(text)) ? Number(text) : undefined);
  return { expected: `an integer from ${min} to ${max}`, read };
}

function oneOf<T extends string>(allowed: readonly T[]): Kind<T> {
  return { expected: allowed.join(' or '), read: (text) => allowed.find((each) => each === text) };
}

const NAME: Kind<string> = {
  expected: 'a name',
  // What any name in Kubernetes may have. A "%" is left where a client's escape sequence was wrong.
  read: (text) => (/^[\w.-]{1,253}$/.test(text) ? text : undefined),
};
const FLAG: Kind<boolean> = {
  expected: 'true or false',
  read: (text) => (text === 'true' || text === 'false' ? text === 'true' : undefined),
};
const ADDRESS: Kind<Address> = { expected: 'an IP address', read: parseAddress };
const ENDPOINT: Kind<Endpoint> = {
  expected: 'an address with a port, such as 10.244.1.7:80 or [fd00::7]:80',
  read: endpointOf,
};
const WEIGHT: Kind<number | 'default'> = {
  expected: `an integer from 0 to ${MAX_WEIGHT}, or default`,
  read: (text) => (text === 'default' ? text : integer(0, MAX_WEIGHT).read(text)),
};

const VALUE = { method: 'GET', isRows: false, optional: [] } as const;
const ROWS = { method: 'GET', isRows: true } as const;
const CHANGE = { method: 'POST', isRows: false, optional: [] } as const;
const QUESTION = { address: ADDRESS, port: integer(1, 65_535), protocol: oneOf(['TCP', 'UDP']), client: ADDRESS };
const FILTER = { namespace: NAME, service: NAME };

/** The route of a command is `/v1/` and its name. */
export const ROUTES: { readonly [C in CommandName]: Route<C> } = {
  node: { ...VALUE, parameters: {} },
  services: { ...ROWS, parameters: { ...FILTER, summary: FLAG }, optional: ['namespace', 'service', 'summary'] },
  connections: { ...ROWS, parameters: FILTER, optional: ['namespace', 'service'] },
  tail: { ...ROWS, parameters: { ...FILTER, port: NAME }, optional: ['namespace', 'service', 'port'] },
  explain: { ...VALUE, parameters: QUESTION, optional: ['client'] },
  endpoint: { ...VALUE, parameters: { endpoint: ENDPOINT } },
  drain: { ...CHANGE, parameters: { endpoint: ENDPOINT, forced: FLAG }, optional: ['forced'] },
  undrain: { ...CHANGE, parameters: { endpoint: ENDPOINT } },
  weight: { ...CHANGE, parameters: { endpoint: ENDPOINT, weight: WEIGHT } },
  'log-level': { ...CHANGE, parameters: { verbosity: integer(0, 10) } },
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
export function decodeQuery<C extends CommandName>(command: C, query: URLSearchParams): Given<C> {
  const { parameters, optional } = ROUTES[command];
  const kinds = new Map<string, Kind<unknown>>(Object.entries(parameters));
  const given = new Map<string, unknown>();
  for (const [name, text] of query) {
    const kind = kinds.get(name);
    if (kind === undefined) {
      const known = [...kinds.keys()].join(', ') || 'none';
      throw new RequestError(`${pathOf(command)} has no parameter ${show(name)}; it takes ${known}`);
    }
    if (given.has(name)) throw new RequestError(`the parameter ${name} is given twice`);
    const value = kind.read(text);
    if (value === undefined) throw new RequestError(`${name} is ${show(text)}; expected ${kind.expected}`);
    given.set(name, value);
  }
  for (const [name, { expected }] of kinds) {
    const isMissing = !given.has(name) && !optional.some((each) => each === name);
    if (isMissing) throw new RequestError(`${name} is missing; expected ${expected}`);
  }
  return Object.fromEntries(given) as Given<C>;
}
