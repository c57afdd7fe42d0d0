import { targetOf } from '../capture/portal.ts';
import type { IpFamily } from '../model/address.ts';
import type { Portal, PortalDelta } from '../model/capture.ts';
import type { Conntrack, OriginalDestination, UdpFlows } from '../model/conntrack.ts';
import type { FlowMetrics } from '../model/metrics.ts';
import type { ServicePortName } from '../model/service.ts';
import { type ClientSets, destinations, type ProxiedProtocol, type ServicePort } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { sameList } from '../util/same-list.ts';
import { messageOf } from '../util/text.ts';
import { nextTurn } from '../util/wait.ts';

interface FlowSyncOptions {
  readonly family: IpFamily;
  readonly conntrack: Conntrack;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FlowMetrics;
}

/** What the rules of one Service port do with packets to one destination. */
interface Treatment {
  readonly destination: OriginalDestination;
  /** Empty while everybody is refused. */
  readonly localPorts: readonly number[];
  /** Decides between the local ports. When it changes, any entry may have the wrong one. */
  readonly policy: string;
}

/**
 * Deletes the UDP conntrack entries of one address family that a change of rules makes wrong: those to a destination
 * that is new or gone, or whose local ports or policy changed. Work is in proportion to the change. After rules were
 * missing, it deletes what passed them by.
 */
export class FlowSync {
  readonly #options: FlowSyncOptions;
  readonly #treatments = new Map<ServicePortName, ReadonlyMap<string, Treatment>>();
  /** By destination. Several Service ports may claim the same, and one of them gets the rules. */
  readonly #byDestination = new Map<string, Map<ServicePortName, Treatment>>();
  /** By destination. `keeps`: entries to a port of current rules are right. */
  readonly #changed = new Map<string, { readonly destination: OriginalDestination; readonly keeps: boolean }>();
  /** UDP local ports whose entries {@link release} could not delete. */
  readonly #leftPorts = new Set<number>();
  /** Of TCP, whose rules were missing. */
  #missed: readonly OriginalDestination[] = [];
  /** Local ports that get another owner, for {@link #releasing}. */
  #released = noPorts();
  #releasing: Promise<void> | undefined;
  readonly #fault: LastingFault;

  constructor(options: FlowSyncOptions) {
    this.#options = options;
    this.#fault = new LastingFault({
      log: options.log,
      begun: 'Cannot clear entries of connection tracking; the next sync retries',
      over: 'Entries of connection tracking are cleared again',
    });
  }

  /** The next {@link clear} acts on it. */
  note({ upserted, removed }: PortalDelta): void {
    for (const name of removed) this.#replace(name, new Map());
    for (const portal of upserted) this.#replace(portal.servicePort.name, treatmentsOf(portal, this.#options.family));
  }

  /** Rules send to another address of the node: every entry is wrong. */
  noteAll(): void {
    this.#changeAll(false);
  }

  /** The rules of these were missing: what clients have begun meanwhile passed them by, and would go on so. */
  noteMissing(portals: Iterable<Portal>): void {
    this.#changeAll(true);
    this.#missed = Array.from(portals, ({ servicePort }) => servicePort)
      .filter(({ protocol }) => protocol === 'TCP')
      .flatMap((servicePort) => destinationsOf(servicePort, this.#options.family).map(([destination]) => destination));
  }

  /** Call it when all noted changes are installed. The next call retries what failed. */
  async clear(): Promise<void> {
    const { family, conntrack, clock, log, metrics } = this.#options;
    const flows = this.#takeChanged();
    const leftPorts = new Set(this.#leftPorts);
    this.#leftPorts.clear();
    const missed = this.#missed;
    this.#missed = [];
    if (flows.length + leftPorts.size + missed.length === 0) return;
    const startedAt = clock.now();
    try {
      let deleted = flows.length === 0 ? 0 : await conntrack.deleteUdp(flows);
      if (leftPorts.size > 0) deleted += await conntrack.deleteTo('UDP', leftPorts);
      if (missed.length > 0) deleted += await conntrack.deleteMissed(missed);
      metrics.conntrackReconciled(clock.now() - startedAt, deleted);
      if (deleted > 0) log.v(2)?.info('Cleared entries of connection tracking', { family, deleted });
      this.#fault.succeeded({ family });
    } catch (error) {
      for (const { keepLocalPort, ...destination } of flows) this.#change(destination, keepLocalPort !== undefined);
      for (const port of leftPorts) this.#leftPorts.add(port);
      this.#missed = missed;
      this.#fault.failed(messageOf(error), { family });
    }
  }

  /**
   * Deletes what may still send clients of another Service port to this local port, which no rule leads to. Never
   * rejects. Many calls share one walk over the kernel's table.
   */
  async release(protocol: ProxiedProtocol, localPort: number): Promise<void> {
    this.#released[protocol].add(localPort);
    this.#releasing ??= nextTurn(this.#options.clock).then(() => this.#releaseAll());
    await this.#releasing;
  }

  async #releaseAll(): Promise<void> {
    const { family, conntrack } = this.#options;
    const released = this.#released;
    this.#released = noPorts();
    this.#releasing = undefined;
    try {
      for (const protocol of ['UDP', 'TCP'] as const) {
        const ports = released[protocol];
        if (ports.size > 0) await conntrack.deleteTo(protocol, ports, [family]);
      }
    } catch (error) {
      for (const port of released.UDP) this.#leftPorts.add(port);
      this.#fault.failed(messageOf(error), { family });
    }
  }

  #takeChanged(): readonly UdpFlows[] {
    const flows = [...this.#changed].flatMap(([key, { destination, keeps }]): readonly UdpFlows[] => {
      const localPorts = [...(this.#byDestination.get(key)?.values() ?? [])].flatMap((each) => each.localPorts);
      if (!keeps || localPorts.length === 0) return [destination];
      return localPorts.map((keepLocalPort) => ({ ...destination, keepLocalPort }));
    });
    this.#changed.clear();
    return flows;
  }

  #replace(name: ServicePortName, after: ReadonlyMap<string, Treatment>): void {
    const before = this.#treatments.get(name) ?? new Map<string, Treatment>();
    for (const [key, { destination }] of before) {
      if (after.has(key)) continue;
      const sharers = this.#byDestination.get(key);
      sharers?.delete(name);
      if (sharers?.size === 0) this.#byDestination.delete(key);
      this.#change(destination, true);
    }
    for (const [key, treatment] of after) {
      const old = before.get(key);
      const sharers = this.#byDestination.get(key) ?? new Map<ServicePortName, Treatment>();
      this.#byDestination.set(key, sharers.set(name, treatment));
      const isSamePolicy = old === undefined || old.policy === treatment.policy;
      if (old === undefined || !isSamePolicy || !sameList(old.localPorts, treatment.localPorts)) {
        this.#change(treatment.destination, isSamePolicy);
      }
    }
    if (after.size === 0) this.#treatments.delete(name);
    else this.#treatments.set(name, after);
  }

  #changeAll(keeps: boolean): void {
    for (const treatments of this.#treatments.values()) {
      for (const { destination } of treatments.values()) this.#change(destination, keeps);
    }
  }

  #change(destination: OriginalDestination, keeps: boolean): void {
    const key = keyOf(destination);
    this.#changed.set(key, { destination, keeps: keeps && this.#changed.get(key)?.keeps !== false });
  }
}

function treatmentsOf(portal: Portal, family: IpFamily): ReadonlyMap<string, Treatment> {
  const treatments = new Map<string, Treatment>();
  const { servicePort } = portal;
  if (servicePort.protocol !== 'UDP') return treatments;
  for (const [destination, { kind, sets, sourceRanges }] of destinationsOf(servicePort, family)) {
    const localPorts = listenersOf(portal, sets);
    const policy = JSON.stringify([sets, kind !== 'ClusterIP' && servicePort.namedEndpoints, sourceRanges]);
    // The first is the strongest claim.
    const key = keyOf(destination);
    if (!treatments.has(key)) treatments.set(key, { destination, localPorts, policy });
  }
  return treatments;
}

function destinationsOf(servicePort: ServicePort, family: IpFamily) {
  return destinations(servicePort).map((each): readonly [OriginalDestination, typeof each] => {
    const { address, port } = each;
    return [address === undefined ? { family, port } : { destination: address, port }, each];
  });
}

function noPorts() {
  return { TCP: new Set<number>(), UDP: new Set<number>() };
}

/** The local ports that clients are sent to, of each of these sets that is not empty. */
function listenersOf(portal: Portal, { node, pods, others }: ClientSets): readonly number[] {
  const targets = [...new Set([node, pods, others])].map((set) => targetOf(portal, set));
  return targets.flatMap((target) => (target.kind === 'listener' ? [target.port] : []));
}

function keyOf({ destination, port }: OriginalDestination): string {
  return `${destination ?? ''} ${port}`;
}
