import { ListenError, type ListenErrorCode, type ListenSpec } from '../model/data-plane.ts';

/** The errno of a Node error, or `''`. */
export function errnoOf(err: unknown): string {
  return err instanceof Error && 'code' in err && typeof err.code === 'string' ? err.code : '';
}

const REASONS: ReadonlyMap<string, readonly [code: ListenErrorCode, what: string]> = new Map([
  ['EADDRINUSE', ['address-in-use', 'another program has the port']],
  ['EADDRNOTAVAIL', ['address-unavailable', 'that is not an address of this node']],
  ['EMFILE', ['descriptors', 'this process has no file descriptor left; raise its limit']],
  ['ENFILE', ['descriptors', 'this machine has no file descriptor left']],
]);

export function toListenError(spec: ListenSpec, err: unknown): ListenError {
  if (err instanceof ListenError) return err;
  const [code, what] = REASONS.get(errnoOf(err)) ?? ['failed', String(err)];
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
