import { isSea } from 'node:sea';
import { fileURLToPath } from 'node:url';

/** By this argument 0 the executable knows that it is to be the helper: a name that no file of it will ever have. */
export const HELPER_PROCESS = 'kube-userspace-proxy: iptables helper';

/** What keeps it small: it runs no more than now and then, and knows best when there is garbage. */
const SMALL = ['--max-semi-space-size=1', '--expose-gc'];

export interface HelperCommand {
  readonly file: string;
  readonly args: readonly string[];
  readonly argv0?: string;
}

/** From the sources: the same Node with that module. */
export function moduleCommand(entry: URL): HelperCommand {
  return { file: process.execPath, args: [...SMALL, fileURLToPath(entry)] };
}

/** In the one executable, itself: also when another version has taken its place on disk. */
export function helperCommand(): HelperCommand {
  if (isSea()) return { file: '/proc/self/exe', args: [], argv0: HELPER_PROCESS };
  return moduleCommand(new URL('./helper/main.ts', import.meta.url));
}
