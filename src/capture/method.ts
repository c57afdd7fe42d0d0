import type { Cidr, IpFamily } from '../model/address.ts';
import type { CaptureMethodName, FollowedPacket, InstalledPort, NodeFacts, Path, Problem } from '../model/capture.ts';
import type { SyncMetrics } from '../model/metrics.ts';
import type { ServicePortName } from '../model/service.ts';
import type { Claim } from './claims.ts';

/** What the kernel has of ours in one family. */
export interface Installed {
  /** The retired ones from the oldest to the newest. */
  readonly ports: readonly InstalledPort[];
  /** To which Service port each destination is sent, by {@link Claim.what}. */
  readonly holders: ReadonlyMap<string, ServicePortName>;
}

/** A port that served until `at` (milliseconds since 1970). */
export interface RetiredPort {
  /** Grows with each. */
  readonly serial: number;
  readonly port: InstalledPort;
  readonly at: number;
}

/** What a back end needs of the book of local ports. */
export interface RetiredPorts {
  /** Those that retired after this serial, the oldest first. From 0: all that are not forgotten. */
  retiredAfter(serial: number): readonly RetiredPort[];
  /** The kernel leads to this port, or did, and nobody wants that any more. */
  found(port: InstalledPort): void;
}

export interface BackEndOptions {
  readonly family: IpFamily;
  /** As in `DataPlaneOptions`: packets of this node that bear it are left alone (docs/adr/0019). */
  readonly connectionMark: number | undefined;
  readonly metrics: SyncMetrics;
  readonly ports: RetiredPorts;
}

/** What one method has in the kernel for one family. It is told what to have, in steps, and writes it when asked. */
export interface BackEnd {
  /** Forget all claims: those that are wanted on this node follow. Comes first. */
  begin(node: NodeFacts): void;
  /** `after` has what `before` had. One of both may be absent. Must be cheap: there may be tens of thousands. */
  replace(before: Claim | undefined, after: Claim | undefined): void;
  /** See `Capture.dropUnassigned`. Blocks of this family. */
  dropUnassigned(blocks: readonly Cidr[]): void;
  /** See `Capture.sync`. Neither `begin` nor `replace` is called meanwhile. */
  write(how: { readonly verify: boolean }): Promise<{ readonly wereMissing: boolean }>;
  /** See `Capture.isIntact`. Never called during {@link write}. */
  isIntact(): Promise<boolean>;
  /** What the last {@link write} has left out. */
  problems(): readonly Problem[];
}

/** A way to capture. `open` and all others take a family, so one serves both. */
export interface CaptureMethod {
  readonly name: CaptureMethodName;
  /** For people: "iptables nft", "nft". */
  readonly description: string;
  /** Of iptables. */
  readonly flavour?: 'nft' | 'legacy';
  /** The values of the metrics' label `table`. */
  readonly tables: readonly string[];
  /** Rejects with a `CaptureError` where the kernel cannot capture packets of the family. Changes nothing. */
  probe(family: IpFamily): Promise<void>;
  /** Rejects with a `CaptureError`. Nothing is installed where the programs are missing. */
  installed(family: IpFamily): Promise<Installed>;
  open(options: BackEndOptions): BackEnd;
  /** See `Capture.follow`. */
  follow(family: IpFamily, packet: FollowedPacket): Promise<Path>;
  /**
   * Removes everything of ours; with `kubeProxys`, what kube-proxy's modes of the same kind have left too. Resolves
   * with the local ports that were there; `undefined` when there was nothing to remove. Rejects with a `CaptureError`,
   * but not where the programs are missing.
   */
  remove(family: IpFamily, how: { readonly kubeProxys: boolean }): Promise<readonly InstalledPort[] | undefined>;
}
