import { type Address, familyOf, parseAddress } from '../../model/address.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { MAX_WEIGHT } from '../../model/scheduler.ts';
import type { ConnectionView, Explanation, NodeView, Question, ServiceFilter, ServiceView } from '../../model/view.ts';
import { Field, FieldError, parseJson, show } from '../../util/untrusted.ts';
import type { TailPiece } from '../connection-log/tail.ts';
import type { EndpointUsers } from './endpoint-users.ts';

/*
 * The protocol between subcommands and the running program. A connection has one request, which is a line of JSON. The
 * answer is a line for each piece, then `end` or `error`.
 */

/** Increases when a client of the previous version would misread an answer. */
export const PROTOCOL_VERSION = 1;

/**
 * How long the server waits for the client to read. It has few connections, and a stopped client must not keep one for
 * ever.
 */
export const READ_TIMEOUT_MS = 30_000;

/** The parameters of each command, and the pieces of its answer. */
export interface Commands {
  readonly node: { readonly params: Nothing; readonly piece: NodeView };
  readonly services: { readonly params: ServiceFilter; readonly piece: readonly ServiceView[] };
  readonly connections: { readonly params: ServiceFilter; readonly piece: readonly ConnectionView[] };
  /** Never ends by itself. `port`: a name or a number. */
  readonly tail: { readonly params: ServiceFilter & { readonly port?: string }; readonly piece: TailPiece };
  readonly explain: { readonly params: Question; readonly piece: Explanation };
  /**
   * The answer is the state before the drain. `isAgain` only asks, and drains nothing. An endpoint that no Service has
   * is an error, mostly a slip of the operator, unless it is `forced`.
   */
  readonly drain: {
    readonly params: { readonly endpoint: Endpoint; readonly isAgain?: boolean; readonly forced?: boolean };
    readonly piece: EndpointUsers;
  };
  readonly undrain: {
    readonly params: { readonly endpoint: Endpoint };
    readonly piece: { readonly wasDrained: boolean };
  };
  readonly weight: {
    /**
     * Without a weight, what an operator has set is taken back. An endpoint that no Service has is an error, unless it
     * has been set before.
     */
    readonly params: { readonly endpoint: Endpoint; readonly weight?: number };
    /** What was set before. */
    readonly piece: { readonly before?: number };
  };
  readonly 'log-level': { readonly params: { readonly verbosity: number }; readonly piece: Nothing };
}

export type Nothing = Readonly<Record<string, never>>;
export type CommandName = keyof Commands;

export type Request = {
  readonly [C in CommandName]: { readonly v: number; readonly command: C; readonly params: Commands[C]['params'] };
}[CommandName];

export type Answer<C extends CommandName> =
  | { readonly piece: Commands[C]['piece'] }
  | { readonly end: true }
  /** A sentence for people. */
  | { readonly error: string };

/** The client's side. Rejects with a sentence for the user. */
export interface Control {
  ask<C extends CommandName>(command: C, params: Commands[C]['params']): AsyncIterable<Commands[C]['piece']>;
}

/** What is wrong with a request: a sentence for the user. */
export class RequestError extends Error {
  override readonly name = 'RequestError';
}

const MAX_VERBOSITY = 10;
/** Longer than any name in Kubernetes. */
const MAX_NAME = 253;

/** Validates a request and drops unknown fields. Throws {@link RequestError}. */
export function decodeRequest(line: string): Request {
  try {
    const parsed = parseJson(line);
    if (parsed === undefined) throw new RequestError('the request is not a line of JSON');
    const request = Field.root(parsed);
    const v = request.get('v').value;
    if (v !== PROTOCOL_VERSION) {
      throw new RequestError(
        `the request is of version ${show(v)} of the control protocol and the running program speaks version ${PROTOCOL_VERSION}; use the program of the same release`,
      );
    }
    const command = request.get('command').value;
    if (typeof command !== 'string' || !isCommand(command)) {
      throw new RequestError(
        `the running program knows no command ${show(command)}; use the program of the same release`,
      );
    }
    return { v, command, params: DECODERS[command](request.get('params')) } as Request;
  } catch (error) {
    throw error instanceof FieldError ? new RequestError(error.message) : error;
  }
}

const DECODERS: { readonly [C in CommandName]: (params: Field) => Commands[C]['params'] } = {
  node: () => ({}),
  services: serviceFilter,
  connections: serviceFilter,
  tail: (params) => {
    const port = nameOf(params.get('port'));
    return { ...serviceFilter(params), ...(port !== undefined && { port }) };
  },
  explain: question,
  drain: (params) => ({
    endpoint: endpointOf(params.get('endpoint')),
    isAgain: params.get('isAgain').booleanOr(false),
    forced: params.get('forced').booleanOr(false),
  }),
  undrain: (params) => ({ endpoint: endpointOf(params.get('endpoint')) }),
  weight: (params) => {
    const field = params.get('weight');
    const endpoint = endpointOf(params.get('endpoint'));
    return { endpoint, ...(field.isPresent && { weight: field.integer(0, MAX_WEIGHT) }) };
  },
  'log-level': (params) => ({ verbosity: params.get('verbosity').integer(0, MAX_VERBOSITY) }),
};

function isCommand(name: string): name is CommandName {
  return Object.hasOwn(DECODERS, name);
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
  if (name.length > MAX_NAME) throw field.wrong('expected a name');
  return name;
}

function question(params: Field): Question {
  const { address, port } = endpointOf(params);
  const protocol = params.get('protocol').oneOf(['TCP', 'UDP']);
  const field = params.get('client');
  if (!field.isPresent) return { address, port, protocol };
  const client = addressOf(field);
  if (familyOf(client) !== familyOf(address)) throw field.wrong('expected the address family of the other address');
  return { address, port, protocol, client };
}

function endpointOf(field: Field): Endpoint {
  return { address: addressOf(field.get('address')), port: field.get('port').integer(1, 65_535) };
}

function addressOf(field: Field): Address {
  const address = parseAddress(field.string());
  if (address === undefined) throw field.wrong('expected an IP address');
  return address;
}
