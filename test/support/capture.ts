import { FamilyCapture } from '../../src/capture/family-capture.ts';
import type { Iptables } from '../../src/capture/iptables/iptables.ts';
import { IptablesMethod } from '../../src/capture/iptables/method.ts';
import type { CaptureMethod } from '../../src/capture/method.ts';
import type { Firewall } from '../../src/capture/nft/firewall.ts';
import type { NftKernel } from '../../src/capture/nft/nft-kernel.ts';
import { createNft } from '../../src/capture/nft/nft-method.ts';
import { PortBook, type PortBookOptions } from '../../src/capture/port-book.ts';
import type { IpFamily } from '../../src/model/address.ts';
import type { NodeFacts } from '../../src/model/capture.ts';
import type { SyncMetrics } from '../../src/model/metrics.ts';
import type { Clock } from '../../src/util/clock.ts';
import type { Log } from '../../src/util/log.ts';

export const NO_METRICS: SyncMetrics = {
  changesQueued: () => {},
  syncDone: () => {},
  restoreFailed: () => {},
  rulesInstalled: () => {},
};

/** A book of the ports 40,000 to 50,000, unless the options say otherwise. */
export function portBook(clock: Clock, options: Partial<PortBookOptions> = {}): PortBook {
  return new PortBook({
    range: { first: 40_000, last: 50_000 },
    reserved: new Set(),
    random: () => 0,
    ...options,
    clock,
  });
}

interface Options {
  readonly clock: Clock;
  readonly log: Log;
  readonly node: () => NodeFacts | undefined;
  readonly family?: IpFamily;
  readonly metrics?: SyncMetrics;
  readonly ports?: PortBook;
  readonly connectionMark?: number;
  readonly others?: readonly CaptureMethod[];
}

/** Captures by these iptables. */
export function iptablesCapture({ iptables, ...options }: Options & { readonly iptables: Iptables }): FamilyCapture {
  const { clock, log } = options;
  return captureBy(new IptablesMethod({ iptables, isLocal: () => false, clock, log }), options);
}

/** Captures by nft tables in this kernel. */
export function nftCapture({ kernel, ...options }: Options & { readonly kernel: NftKernel }): FamilyCapture {
  const { clock, log } = options;
  return captureBy(createNft({ kernel, firewall: NO_FIREWALL, isLocal: () => false, clock, log }), options);
}

const NO_FIREWALL: Firewall = { letIn: async () => {}, isIntact: async () => true, remove: async () => {} };

function captureBy(method: CaptureMethod, { clock, log, ...options }: Options): FamilyCapture {
  const { family = 'IPv4', metrics = NO_METRICS, ports = portBook(clock), others = [], connectionMark, node } = options;
  return new FamilyCapture({ method, others, family, metrics, ports, connectionMark, node, clock, log });
}
