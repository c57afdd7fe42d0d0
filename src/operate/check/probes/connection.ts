import { lookup } from 'node:dns/promises';
import { connect as connectTcp, isIP } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import type { Clock } from '../../../util/clock.ts';
import type { ServerCertificate } from '../api-connection.ts';

/** How long each step to the API server may take. */
export const STEP_MS = 5_000;

/** What went wrong, with the code of Node, of the resolver or of OpenSSL; `ETIMEDOUT` after {@link STEP_MS}. */
export class StepError extends Error {
  override readonly name = 'StepError';
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** The addresses of a host. Rejects with {@link StepError}. */
export async function resolveName(host: string, clock: Clock): Promise<readonly string[]> {
  if (isIP(host) !== 0) return [host];
  const found = await within(clock, (resolve, reject) => {
    lookup(host, { all: true }).then(resolve, reject);
  });
  return (found as { readonly address: string }[]).map(({ address }) => address);
}

/** Connects and leaves. Rejects with {@link StepError}. */
export async function tryTcp(
  { host, port }: { readonly host: string; readonly port: number },
  clock: Clock,
): Promise<void> {
  await within(clock, (resolve, reject, cleanUp) => {
    const socket = connectTcp({ host, port });
    cleanUp(() => socket.destroy());
    socket.on('connect', resolve).on('error', reject);
  });
}

/** Shakes hands and leaves, whatever the certificate of the server. Rejects with {@link StepError}. */
export async function tryTls(
  options: ConnectionOptions & { readonly host: string; readonly port: number },
  clock: Clock,
): Promise<ServerCertificate> {
  return (await within(clock, (resolve, reject, cleanUp) => {
    const isName = isIP(options.host) === 0;
    const socket = connectTls({
      ...(isName && { servername: options.host }),
      ...options,
      rejectUnauthorized: false,
    });
    cleanUp(() => socket.destroy());
    socket.on('error', reject).on('secureConnect', () => {
      const { subjectaltname, valid_to } = socket.getPeerCertificate();
      const problem = socket.authorized ? undefined : String(socket.authorizationError);
      resolve({ problem, names: subjectaltname ?? '', validTo: valid_to ?? '' });
    });
  })) as ServerCertificate;
}

function within(
  clock: Clock,
  start: (
    resolve: (value?: unknown) => void,
    reject: (error: NodeJS.ErrnoException) => void,
    cleanUp: (work: () => void) => void,
  ) => void,
): Promise<unknown> {
  let undo = (): void => {};
  return new Promise((resolve, reject) => {
    const timer = clock.after(STEP_MS, () =>
      reject(new StepError('ETIMEDOUT', `no answer within ${STEP_MS / 1_000} s`)),
    );
    const settled =
      <T>(settle: (value: T) => void) =>
      (value: T) => {
        timer.cancel();
        settle(value);
      };
    start(
      settled(resolve),
      settled((error: NodeJS.ErrnoException) => reject(new StepError(codeOf(error), error.message))),
      (work) => {
        undo = work;
      },
    );
  }).finally(() => undo());
}

/** Attempts at several addresses come as one error, whose first part tells as much as any. */
function codeOf(error: NodeJS.ErrnoException): string {
  const first = error instanceof AggregateError ? (error.errors[0] as NodeJS.ErrnoException) : error;
  return first.code ?? error.code ?? 'UNKNOWN';
}
