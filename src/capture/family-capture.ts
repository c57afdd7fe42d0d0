import { isDeepStrictEqual } from 'node:util';
import { type Cidr, cidrContains, familyOf } from '../model/address.ts';
import {
  type Capture,
  CaptureError,
  type Conflict,
  type FollowedPacket,
  type InstalledPort,
  type NodeFacts,
  type Path,
  type Portal,
  type PortalDelta,
  type Problem,
  type Synced,
} from '../model/capture.ts';
import type { OriginalDestination, StaleFlows } from '../model/conntrack.ts';
import type { ServicePortName } from '../model/service.ts';
import type { Destination, ProxiedProtocol } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { eachInSlices } from '../util/wait.ts';
import { ClaimBook } from './claim-book.ts';
import { type AddressClaim, type Claim, claimName, type NodePortClaim } from './claims.ts';
import type { BackEnd, BackEndOptions, CaptureMethod, Installed } from './method.ts';
import type { PortBook } from './port-book.ts';
import { destinationOf, flowsTo, isDestination, staleFlows } from './stale-flows.ts';

interface FamilyCaptureOptions extends Omit<BackEndOptions, 'ports'> {
  readonly method: CaptureMethod;
  /** Other methods, by which a previous run may have captured. */
  readonly others: readonly CaptureMethod[];
  readonly ports: PortBook;
  /** Called before every sync, because the node's address may change. `undefined`: the last facts stay. */
  readonly node: () => NodeFacts | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** What portals claim on this node, granted and handed to the back end of one method. Work is in slices. */
export class FamilyCapture implements Capture {
  readonly #options: FamilyCaptureOptions;
  readonly #backEnd: BackEnd;
  /** What the next sync takes up; `undefined`: without a portal. */
  readonly #changed = new Map<ServicePortName, Portal | undefined>();
  #claims: ClaimBook | undefined;
  /** Of {@link #claims}, if they are complete. */
  #node: NodeFacts | undefined;
  /** The holders in the kernel from a previous run, until the first sync. */
  #found: ReadonlyMap<string, ServicePortName> = new Map();
  /** What had each UDP destination when the last sync succeeded, of those that changed since. */
  readonly #replaced = new Map<string, Claim | undefined>();
  /** Since then the node has changed, so no flow is on the right way. */
  #isMoved = false;
  /** Where cluster IPs come from. */
  #blocks: readonly Cidr[] = [];
  /** Methods that may have something left in the kernel, and whether the log has that it cannot be removed. */
  readonly #left: Map<CaptureMethod, 'logged' | undefined>;

  constructor(options: FamilyCaptureOptions) {
    const { method, others } = options;
    this.#options = options;
    this.#backEnd = method.open(options);
    this.#left = new Map(others.map((each) => [each, undefined]));
  }

  apply({ upserted, removed }: PortalDelta): void {
    for (const name of removed) this.#changed.set(name, undefined);
    for (const portal of upserted) this.#changed.set(portal.servicePort.name, portal);
  }

  dropUnassigned(blocks: readonly Cidr[]): void {
    this.#blocks = blocks;
  }

  async sync({ verify }: { readonly verify: boolean }): Promise<Synced> {
    const node = this.#options.node() ?? this.#node;
    if (node === undefined) throw new Error(`this node has no ${this.#options.family} address to lead clients to`);
    const claims = await this.#claimsOn(node);
    this.#backEnd.dropUnassigned(this.#blocks.filter((block) => isApart(block, node)));
    const { wereMissing } = await this.#backEnd.write({ verify });
    claims.settle();
    this.#found = new Map();
    const synced = this.#synced(claims, wereMissing);
    await this.#removeOthers(verify);
    return synced;
  }

  isIntact(): Promise<boolean> {
    return this.#backEnd.isIntact();
  }

  async installedPorts(): Promise<readonly InstalledPort[]> {
    const { family, method, others } = this.#options;
    // What cannot be read is not in use: another method may not work on this node at all.
    const orNothing = (error: unknown): Installed => {
      if (error instanceof CaptureError && !error.mayPass) return { ports: [], holders: new Map() };
      throw error;
    };
    const ofOthers = others.map((each) => each.installed(family).catch(orNothing));
    const all = await Promise.all([method.installed(family), ...ofOthers]);
    // Of two, that of this method counts.
    this.#found = new Map(all.toReversed().flatMap(({ holders }) => [...holders]));
    const isRetired = ({ retiredForMs }: InstalledPort) => Number(retiredForMs !== undefined);
    const ports = all.flatMap((each) => each.ports).sort((a, b) => isRetired(a) - isRetired(b));
    const byPort = new Map<string, InstalledPort>();
    for (const port of ports) {
      const key = `${port.localPort}/${port.protocol}`;
      if (!byPort.has(key)) byPort.set(key, port);
    }
    return [...byPort.values()];
  }

  holds(name: ServicePortName, to: Pick<Destination, 'address' | 'port'>, protocol: ProxiedProtocol): boolean {
    const what = claimName(to, protocol);
    return (this.#claims === undefined ? this.#found.get(what) : this.#claims.holderOf(what)) === name;
  }

  conflictsOf(name: ServicePortName): readonly Conflict[] {
    return this.#claims?.conflictsOf(name) ?? [];
  }

  problems(): readonly Problem[] {
    const conflicts = (this.#claims?.conflicts() ?? []).map(({ owner, holder, what }) => ({
      key: `${owner} ${holder} ${what}`,
      svc: owner,
      message: 'Two Service ports claim the same address; one of them goes without it',
      fields: { holder, what },
    }));
    return [...conflicts, ...this.#backEnd.problems()];
  }

  follow(packet: FollowedPacket): Promise<Path> {
    const { method, family } = this.#options;
    return method.follow(family, packet);
  }

  /** The claims of all portals on this node. When the node has changed, all are made anew. */
  async #claimsOn(node: NodeFacts): Promise<ClaimBook> {
    const { clock, ports } = this.#options;
    const [before, found] = [this.#claims, this.#found];
    if (before !== undefined && isDeepStrictEqual(node, this.#node)) {
      await this.#takeChanges(before);
      return before;
    }
    await this.#takeChanges();
    // Should this fail, it begins again.
    this.#node = undefined;
    this.#backEnd.begin(node);
    const holderOf = (what: string) => (before === undefined ? found.get(what) : before.holderOf(what));
    const claims = new ClaimBook(node, (old, granted) => this.#granted(old, granted), holderOf);
    for (const claim of before?.allGranted() ?? []) this.#note(claim, claim);
    this.#isMoved ||= before !== undefined;
    await eachInSlices(clock, [...ports.portals], (portal) => claims.set(portal));
    this.#claims = claims;
    this.#node = node;
    return claims;
  }

  #granted(before: Claim | undefined, after: Claim | undefined): void {
    this.#backEnd.replace(before, after);
    this.#note(before, after);
  }

  #note(before: Claim | undefined, after: Claim | undefined): void {
    const claim = after ?? before;
    if (claim !== undefined && isUdp(claim) && !this.#replaced.has(claim.what)) this.#replaced.set(claim.what, before);
  }

  /** What a successful write makes of the flows that there are. */
  #synced(claims: ClaimBook, wereMissing: boolean): Synced {
    const { family } = this.#options;
    const flows = new Map<string, StaleFlows>();
    const missed: OriginalDestination[] = [];
    // What clients have begun meanwhile passed the rules by, and would go on so.
    for (const claim of wereMissing ? claims.allGranted() : []) {
      if (isUdp(claim)) flows.set(claim.what, flowsTo(claim, family));
      else if (isDestination(claim)) missed.push(destinationOf(claim, family));
    }
    for (const [what, before] of this.#replaced) {
      const isWrong = this.#isMoved && before !== undefined;
      const stale = staleFlows(before, isWrong ? undefined : claims.granted(what), family);
      if (stale !== undefined) flows.set(what, stale);
    }
    this.#replaced.clear();
    this.#isMoved = false;
    return { flows: [...flows.values()], missed };
  }

  async #takeChanges(claims?: ClaimBook): Promise<void> {
    const { clock, ports } = this.#options;
    await eachInSlices(clock, [...this.#changed], ([name, portal]) => {
      // First, so that a defect costs the others one sync.
      this.#changed.delete(name);
      if (portal === undefined) {
        ports.remove(name);
        claims?.remove(name);
      } else {
        ports.serve(portal);
        claims?.set(portal);
      }
    });
  }

  /** Not before this method captures. What seems to fail for good is tried again only when all is looked at. */
  async #removeOthers(verify: boolean): Promise<void> {
    const { family, log } = this.#options;
    for (const [other, state] of this.#left) {
      if (state === 'logged' && !verify) continue;
      const { description: method } = other;
      try {
        const removed = await other.remove(family, { kubeProxys: false });
        if (removed !== undefined) log.info('Removed what another method of capture had installed', { family, method });
        this.#left.delete(other);
      } catch (error) {
        if (state === 'logged' || (error instanceof CaptureError && error.mayPass)) continue;
        this.#left.set(other, 'logged');
        const fields = { family, method, err: messageOf(error) };
        log.warn('Cannot remove what another method of capture may have installed', fields);
      }
    }
  }
}

/** A block that a mistake has made too wide must not cut nodes and pods off. */
function isApart(block: Cidr, { family, hostAddress, pods }: NodeFacts): boolean {
  if (familyOf(block.network) !== family || cidrContains(block, hostAddress)) return false;
  return pods.every(
    ({ source }) =>
      source === undefined || !(cidrContains(block, source.network) || cidrContains(source, block.network)),
  );
}

function isUdp(claim: Claim): claim is AddressClaim | NodePortClaim {
  return isDestination(claim) && claim.protocol === 'UDP';
}
