import { constants } from 'node:os';
import { type DialFailure, ListenError, type ListenErrorCode, type ListenSpec } from '../model/data-plane.ts';
import { describeErrno } from '../sys/sys-error.ts';

/** The errno of a Node error, such as `EADDRINUSE`, or `''`. */
export function errnoOf(err: unknown): string {
  return err instanceof Error && 'code' in err && typeof err.code === 'string' ? err.code : '';
}

const LISTEN_ERRORS: ReadonlyMap<string, readonly [code: ListenErrorCode, what: string]> = new Map([
  ['EADDRINUSE', ['address-in-use', 'another program has the port']],
  ['EADDRNOTAVAIL', ['address-unavailable', 'that is not an address of this node']],
  ['EMFILE', ['descriptors', 'this process has no file descriptor left; raise its limit']],
  ['ENFILE', ['descriptors', 'this machine has no file descriptor left']],
]);

export function toListenError(spec: ListenSpec, err: unknown): ListenError {
  if (err instanceof ListenError) return err;
  const [code, what] = LISTEN_ERRORS.get(errnoOf(err)) ?? ['failed', String(err)];
  return listenError(spec, code, what, { cause: err });
}

export function listenError(
  { name, protocol, address, port }: ListenSpec,
  code: ListenErrorCode,
  what: string,
  options?: ErrorOptions,
): ListenError {
  return new ListenError(code, `cannot listen on ${protocol} ${address} port ${port} for ${name}: ${what}`, options);
}

const DIAL_FAILURES: ReadonlyMap<string, DialFailure> = new Map([
  ['ECONNREFUSED', 'refused'],
  ['ETIMEDOUT', 'timeout'],
  ['EHOSTUNREACH', 'unreachable'],
  ['EHOSTDOWN', 'unreachable'],
  ['ENETUNREACH', 'unreachable'],
  ['ENETDOWN', 'unreachable'],
]);

/** Why an endpoint did not answer, by the errno's name. */
export function dialFailureOf(errno: string): DialFailure {
  return DIAL_FAILURES.get(errno) ?? 'other';
}

/** What is said of an error of Node: the same as the other engine says. */
export function errorText(err: Error): string {
  const errno = (constants.errno as Readonly<Record<string, number>>)[errnoOf(err)];
  return errno === undefined ? err.message : describeErrno(errno);
}

/** Of a connection that has lost its entry. */
export const LOST_CLIENT = "the client's address was lost: the endpoint answered an earlier attempt, which was reset";

/** Of a UDP client. */
export const UNKNOWN_DESTINATION =
  "the client's address cannot be kept: connection tracking does not know where its datagram was sent to";

/** Of a dial of which no more is known. */
export const FAILURE_TEXT: Readonly<Record<DialFailure, string>> = {
  refused: 'connection refused',
  timeout: 'no answer within the time of a dial',
  unreachable: 'no route, or the host is down',
  other: 'see the failed dials',
};
