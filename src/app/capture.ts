import { type Candidate, type Choice, chooseMethod } from '../capture/choose.ts';
import type { Iptables } from '../capture/iptables/iptables.ts';
import { IptablesMethod } from '../capture/iptables/method.ts';
import type { CaptureMethod } from '../capture/method.ts';
import type { Config } from '../config/config.ts';
import { machine } from '../kernel/addresses.ts';
import type { Exec } from '../kernel/iptables/exec.ts';
import type { Flavour, InstalledPrograms } from '../kernel/iptables/flavour.ts';
import { createIptables, everyIptables, neededTools } from '../kernel/iptables/iptables.ts';
import { type NftOptions, nftMethod, openNft } from '../kernel/nft/open-nft.ts';
import type { IpFamily } from '../model/address.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';

export interface Means {
  readonly exec: Exec;
  readonly programs: InstalledPrograms;
  readonly log: Log;
}

export interface OpenCapture extends Choice {
  /** All others that can be removed here: a previous run may have captured by any of them. */
  readonly others: readonly CaptureMethod[];
}

/** Chooses how this process captures. Rejects with a `CaptureError` when it cannot. */
export async function openCapture(
  config: Pick<Config, 'capture' | 'iptablesMode' | 'dataPlane'>,
  families: readonly IpFamily[],
  means: Means,
): Promise<OpenCapture> {
  const { method, why } = await chooseMethod(config.capture, candidates(config, means), families);
  // The flavour that is configured now says nothing about the previous run.
  const all = await everyMethod('auto', config.dataPlane.connectionMark, means);
  return { method, why, others: all.filter(({ description }) => description !== method.description) };
}

/** In the order in which they are tried. */
export function candidates(
  { iptablesMode, dataPlane }: Pick<Config, 'iptablesMode' | 'dataPlane'>,
  means: Means,
): readonly Candidate[] {
  return [
    { name: 'iptables', open: async () => iptablesMethod(await openTools(iptablesMode, means), means) },
    { name: 'nft', open: () => openNft(nftOptions(dataPlane.connectionMark, means)) },
  ];
}

/** All that a proxy may have used on this node over time. */
export async function everyMethod(
  mode: Flavour | 'auto',
  connectionMark: number | undefined,
  means: Means,
): Promise<readonly CaptureMethod[]> {
  const byIptables = mode === 'auto' ? await everyIptables(means.programs, means) : [await openTools(mode, means)];
  const byNft = await nftMethod(nftOptions(connectionMark, means));
  return [...byIptables.map((iptables) => iptablesMethod(iptables, means)), ...(byNft === undefined ? [] : [byNft])];
}

function nftOptions(mark: number | undefined, means: Means): NftOptions {
  return { ...means, mark, isLocal: machine.isLocal, clock };
}

async function openTools(mode: Flavour | 'auto', means: Means): Promise<Iptables> {
  return await createIptables(await neededTools(mode, means.programs), means);
}

function iptablesMethod(iptables: Iptables, { log }: Means): CaptureMethod {
  return new IptablesMethod({ iptables, isLocal: machine.isLocal, clock, log });
}
