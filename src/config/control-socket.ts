import { UsageError } from './usage-error.ts';

export const DEFAULT_CONTROL_SOCKET = '/run/kube-userspace-proxy/control.sock';

/** The kernel takes 107 bytes; eight are for the directory in which the socket is made before it has its name. */
const MAX_BYTES = 99;

/** Where the control socket is; `undefined` for none. */
export function parseControlSocket(text: string): string | undefined {
  if (text === '') return undefined;
  if (!text.startsWith('/') || text.endsWith('/') || text.includes('\0')) {
    throw new UsageError('not the absolute path of a file; write "" for no control socket');
  }
  if (Buffer.byteLength(text) > MAX_BYTES) throw new UsageError(`must be at most ${MAX_BYTES} bytes long`);
  return text;
}
