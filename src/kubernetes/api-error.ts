/**
 * `credentials`: there are none to present, or they cannot be read. `unreachable`: no connection, no answer, or it
 * broke. `incomplete`: an answer that began and did not come to its end. `status`: an HTTP status other than success.
 * `event`: an ERROR event inside a watch. `garbage`: an answer that is not the API's.
 */
export type ApiErrorCode = 'credentials' | 'unreachable' | 'incomplete' | 'status' | 'event' | 'garbage';

export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly code: ApiErrorCode;
  /** The HTTP status, or the code inside an ERROR event. */
  readonly status: number | undefined;
  /** How long the server asked us to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The API server itself says so, by a `Status` object. */
  readonly isStatusObject: boolean;
  /** The server has not got the whole request, so it has not acted on it. */
  readonly isUnsent: boolean;

  constructor(
    code: ApiErrorCode,
    message: string,
    {
      status,
      retryAfterMs,
      isStatusObject = false,
      isUnsent = false,
      cause,
    }: {
      status?: number;
      retryAfterMs?: number | undefined;
      isStatusObject?: boolean;
      isUnsent?: boolean;
      cause?: unknown;
    } = {},
  ) {
    super(message, { cause });
    this.code = code;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
    this.isStatusObject = isStatusObject;
    this.isUnsent = isUnsent;
  }
}

/**
 * Whether any web server might have answered so. The API server itself answers in plain words only with 429, with 500
 * and above, and, where it is old, with 404 for a path that it does not have (today's `notfoundhandler` of
 * `k8s.io/apiserver` sends a `Status`).
 */
export function isForeign(error: unknown): error is ApiError {
  if (!(error instanceof ApiError) || error.code !== 'status' || error.isStatusObject) return false;
  const { status = 0 } = error;
  return status < 500 && status !== 429;
}

const SHOWN_CHARACTERS = 300;

/**
 * The sentence of a `Status` object (what the API server says when it refuses), with the seconds it asks us to wait.
 * Anything else gives nothing.
 */
export function readStatus(body: unknown): {
  readonly isStatusObject: boolean;
  readonly code?: number;
  readonly message?: string;
  readonly retryAfterMs?: number;
} {
  if (typeof body !== 'object' || body === null) return { isStatusObject: false };
  const { kind, code, message, details } = body as Readonly<Record<string, unknown>>;
  const seconds =
    typeof details === 'object' && details !== null
      ? (details as { retryAfterSeconds?: unknown }).retryAfterSeconds
      : undefined;
  return {
    isStatusObject: kind === 'Status',
    ...(typeof code === 'number' && { code }),
    ...(typeof message === 'string' && message !== '' && { message: cut(message) }),
    ...(typeof seconds === 'number' && seconds > 0 && { retryAfterMs: seconds * 1_000 }),
  };
}

/** Text from the network, short enough for a log line. */
export function cut(text: string): string {
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
}

/**
 * What a socket, a TLS handshake or a file said. Attempts at several addresses come as one error without a message of
 * its own (`AggregateError`).
 */
export function causeMessage(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.map(causeMessage).join('; ');
  if (error instanceof Error) return cut(error.message || (error as NodeJS.ErrnoException).code || error.name);
  return cut(String(error));
}
