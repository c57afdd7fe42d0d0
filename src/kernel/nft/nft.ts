import { release } from 'node:os';
import type { NftKernel } from '../../capture/nft/nft-kernel.ts';
import { CaptureError } from '../../model/capture.ts';
import { EAGAIN, EBUSY, EINTR, ENOBUFS, ENOMEM, SysError } from '../../sys/sys-error.ts';
import { messageOf } from '../../util/text.ts';
import type { Exec, ExecResult } from '../iptables/exec.ts';

type NfTables = typeof import('./nf-tables.ts');

/**
 * As for kube-proxy's mode nftables (KEP-3866): older programs read all tables of the node to write one, and may crash
 * over those of others.
 */
const MIN_NFT = [1, 0, 1] as const;
const MIN_KERNEL = [5, 13] as const;

/** These may be over at the next try. */
const PASSING: ReadonlySet<number> = new Set([EAGAIN, EBUSY, EINTR, ENOBUFS, ENOMEM]);

/** `tables`: `undefined` where system calls do not work. */
export function createNftKernel(exec: Exec, tables: NfTables | undefined): NftKernel {
  const ask = async <T>(what: (tables: NfTables) => T | Promise<T>): Promise<T> => {
    if (tables === undefined) throw new CaptureError(NO_CALLS, { mayPass: false });
    try {
      return await what(tables);
    } catch (error) {
      const mayPass = error instanceof SysError && PASSING.has(error.errno);
      throw new CaptureError(`the kernel refused a request about nft tables: ${messageOf(error)}`, { mayPass });
    }
  };
  return {
    generation: () => {
      try {
        return tables?.nftGeneration();
      } catch {
        return undefined;
      }
    },
    obstacle: async () => (tables === undefined ? NO_CALLS : await obstacleOf(exec, release())),
    run: async (text, { isTrial } = { isTrial: false }) => {
      const args = isTrial ? ['-c', '-f', '-'] : ['-f', '-'];
      const failure = failureOf(await exec({ program: 'nft', args, input: text }));
      if (failure !== undefined) throw failure;
    },
    elements: (family, set) => ask((there) => there.readElements(family, set)),
    element: (family, key) => ask((there) => there.readElement(family, key)),
    change: (family, change) => ask((there) => there.changeElements(family, change)),
    rules: (family) => ask((there) => there.readRules(family)),
    deleteTable: (family, table) => ask((there) => there.deleteNftTable(family, table)),
  };
}

const NO_CALLS = 'nft tables need system calls, and koffi could not be loaded';

/** What is too old or missing, with the kernel of this version; `undefined` when all is there. */
export async function obstacleOf(exec: Exec, kernel: string): Promise<string | undefined> {
  if (isBefore(kernel, MIN_KERNEL))
    return `this is kernel ${kernel}, and nft tables need ${MIN_KERNEL.join('.')} or later`;
  const result = await exec({ program: 'nft', args: ['--version'] });
  const failure = failureOf(result);
  if (failure !== undefined) return failure.message;
  const version = result.outcome === 'exited' ? (/\bv(\d+(?:\.\d+)+)/.exec(result.stdout)?.[1] ?? '') : '';
  if (!isBefore(version, MIN_NFT)) return undefined;
  return `nft is version ${version === '' ? 'unknown' : version}; install ${MIN_NFT.join('.')} or later`;
}

/** Whether a text like "5.10.0-28-amd64" is an earlier version, or none. */
function isBefore(version: string, needed: readonly number[]): boolean {
  const parts = (/^\d+(?:\.\d+)*/.exec(version)?.[0] ?? '').split('.').map(Number);
  for (const [index, least] of needed.entries()) {
    const part = parts[index] ?? 0;
    if (part !== least) return part < least;
  }
  return false;
}

/** What the end of `nft` means; `undefined` when it succeeded. */
export function failureOf(result: ExecResult): CaptureError | undefined {
  switch (result.outcome) {
    case 'missing':
      return new CaptureError('nft is not on PATH: install the package "nftables"', { mayPass: false });
    case 'timeout':
      return new CaptureError(`nft did not end within ${result.timeoutMs} ms and was killed`, { mayPass: true });
    case 'failed':
      return new CaptureError(`nft could not be run: ${result.err}`, { mayPass: true });
    case 'exited': {
      if (result.code === 0) return undefined;
      const said = result.stderr.replace(/\s+/g, ' ').trim() || 'no message';
      if (/Operation not permitted/.test(said)) {
        return new CaptureError(`nft needs root or CAP_NET_ADMIN: ${said}`, { mayPass: false });
      }
      const isBusy = /Device or resource busy|Resource temporarily unavailable|Interrupted system call/.test(said);
      return new CaptureError(`nft refused the table: ${said}`, { mayPass: isBusy });
    }
  }
}
