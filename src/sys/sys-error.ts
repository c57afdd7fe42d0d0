import { constants } from 'node:os';
import { getSystemErrorMap } from 'node:util';

export const {
  EADDRINUSE,
  EADDRNOTAVAIL,
  EAGAIN,
  EBUSY,
  ECONNABORTED,
  ECONNREFUSED,
  ECONNRESET,
  EEXIST,
  EHOSTUNREACH,
  EINPROGRESS,
  EINTR,
  EINVAL,
  EIO,
  EMFILE,
  EMSGSIZE,
  ENETDOWN,
  ENETUNREACH,
  ENFILE,
  ENOBUFS,
  ENOENT,
  ENOMEM,
  ENOSYS,
  EOPNOTSUPP,
  EPERM,
  EPIPE,
  EPROTO,
  ETIMEDOUT,
} = constants.errno;
/** These two are missing in `node:os`. */
export const EHOSTDOWN = 112;
export const ETOOMANYREFS = 109;

/** An unexpected failure of a system call. */
export class SysError extends Error {
  override readonly name = 'SysError';
  readonly errno: number;
  /** `ECONNREFUSED` and the like. */
  readonly code: string;

  constructor(call: string, errno: number) {
    super(`${call}: ${describeErrno(errno)}`);
    this.errno = errno;
    this.code = errnoName(errno);
  }
}

/** Returns a result of this folder's functions, or throws a {@link SysError} for a negative errno. */
export function must(call: string, result: number): number {
  if (result < 0) throw new SysError(call, -result);
  return result;
}

/** Out of descriptors, or the kernel is out of memory for them: may be over in a moment. */
export function isExhaustion(errno: number): boolean {
  return errno === EMFILE || errno === ENFILE || errno === ENOBUFS || errno === ENOMEM;
}

export function errnoName(errno: number): string {
  return getSystemErrorMap().get(-errno)?.[0] ?? `errno ${errno}`;
}

/** `ECONNREFUSED (connection refused)`. */
export function describeErrno(errno: number): string {
  const entry = getSystemErrorMap().get(-errno);
  return entry === undefined ? `errno ${errno}` : `${entry[0]} (${entry[1]})`;
}
