import type { CaptureMethod } from '../../capture/method.ts';
import type { NftKernel } from '../../capture/nft/nft-kernel.ts';
import { createNft } from '../../capture/nft/nft-method.ts';
import type { Address } from '../../model/address.ts';
import { CaptureError } from '../../model/capture.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { createFirewall, type FirewallOptions } from './firewall.ts';
import { createNftKernel } from './nft.ts';

export interface NftOptions extends FirewallOptions {
  readonly isLocal: (address: Address) => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/** Captures by nftables tables of our own. Rejects with a {@link CaptureError} where something for it is missing. */
export async function openNft(options: NftOptions): Promise<CaptureMethod> {
  const kernel = await nftKernel(options);
  const obstacle = await kernel.obstacle();
  if (obstacle !== undefined) throw new CaptureError(obstacle, { mayPass: false });
  return methodOn(kernel, options);
}

/** The same to remove what is there, which needs no program. `undefined` where the kernel cannot have our tables. */
export async function nftMethod(options: NftOptions): Promise<CaptureMethod | undefined> {
  const kernel = await nftKernel(options);
  return kernel.generation() === undefined ? undefined : methodOn(kernel, options);
}

async function nftKernel({ exec }: NftOptions): Promise<NftKernel> {
  return createNftKernel(exec, await import('./nf-tables.ts').catch(() => undefined));
}

function methodOn(kernel: NftKernel, { isLocal, clock, log, ...options }: NftOptions): CaptureMethod {
  return createNft({ kernel, firewall: createFirewall(options), isLocal, clock, log });
}
