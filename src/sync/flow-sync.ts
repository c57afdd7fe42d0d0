import type { IpFamily } from '../model/address.ts';
import type { Synced } from '../model/capture.ts';
import type { Conntrack, OriginalDestination, StaleFlows, UdpFlows } from '../model/conntrack.ts';
import type { FlowMetrics } from '../model/metrics.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { nextTurn } from '../util/wait.ts';

interface FlowSyncOptions {
  readonly family: IpFamily;
  readonly conntrack: Conntrack;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FlowMetrics;
}

/**
 * Deletes the conntrack entries of one address family that a sync makes wrong. What fails is done with the next sync.
 */
export class FlowSync {
  readonly #options: FlowSyncOptions;
  /** By destination. */
  readonly #stale = new Map<string, StaleFlows>();
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

  /** Call it when what makes them wrong is installed. Never rejects. */
  async clear({ flows, missed }: Pick<Synced, 'flows' | 'missed'>): Promise<void> {
    const { family, conntrack, clock, log, metrics } = this.#options;
    for (const each of flows) this.#add(each);
    const stale = [...this.#stale.values()];
    const leftPorts = new Set(this.#leftPorts);
    const allMissed = missed.length > 0 ? missed : this.#missed;
    this.#stale.clear();
    this.#leftPorts.clear();
    this.#missed = [];
    if (stale.length + leftPorts.size + allMissed.length === 0) return;
    const startedAt = clock.now();
    try {
      let deleted = stale.length === 0 ? 0 : await conntrack.deleteUdp(stale.flatMap(asFlows));
      if (leftPorts.size > 0) deleted += await conntrack.deleteTo('UDP', leftPorts);
      if (allMissed.length > 0) deleted += await conntrack.deleteMissed(allMissed);
      metrics.conntrackReconciled(clock.now() - startedAt, deleted);
      if (deleted > 0) log.v(2)?.info('Cleared entries of connection tracking', { family, deleted });
      this.#fault.succeeded({ family });
    } catch (error) {
      for (const each of stale) this.#add(each);
      for (const port of leftPorts) this.#leftPorts.add(port);
      this.#missed = allMissed;
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

  /** The latest says which are right, unless none was right before and they are still there. */
  #add(flows: StaleFlows): void {
    const key = JSON.stringify(flows.destination);
    if (this.#stale.get(key)?.keep.length !== 0) this.#stale.set(key, flows);
  }
}

function asFlows({ destination, keep }: StaleFlows): readonly UdpFlows[] {
  return keep.length === 0 ? [destination] : keep.map((keepLocalPort) => ({ ...destination, keepLocalPort }));
}

function noPorts() {
  return { TCP: new Set<number>(), UDP: new Set<number>() };
}
