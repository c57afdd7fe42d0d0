import type { IpFamily } from '../model/address.ts';
import type { Conntrack } from '../model/conntrack.ts';
import type { FlowMetrics } from '../model/metrics.ts';
import type { PortalDelta } from '../rules/portal.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { StaleFlows } from './stale-flows.ts';

export interface FlowSyncOptions {
  readonly family: IpFamily;
  readonly conntrack: Conntrack;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FlowMetrics;
}

/** Makes the kernel forget the UDP flows that changed rules have made wrong. For one address family. */
export class FlowSync {
  readonly #options: FlowSyncOptions;
  readonly #stale: StaleFlows;
  #hasFailed = false;

  constructor(options: FlowSyncOptions) {
    this.#options = options;
    this.#stale = new StaleFlows(options.family);
  }

  /** Takes note of changed portals; the next {@link clear} acts on it. */
  note(delta: PortalDelta): void {
    this.#stale.note(delta);
  }

  /** The same for all portals, when rules lead to another address of the node than before. */
  noteAll(): void {
    this.#stale.noteAll();
  }

  /** To be called when the rules for all that was noted are installed. What fails is tried again by the next call. */
  async clear(): Promise<void> {
    const { family, conntrack, clock, log, metrics } = this.#options;
    const flows = this.#stale.take();
    if (flows.length === 0) return;
    const startedAt = clock.now();
    try {
      const deleted = await conntrack.deleteUdp(flows);
      metrics.conntrackReconciled(clock.now() - startedAt, deleted);
      if (deleted > 0) log.v(2)?.info('Cleared UDP entries of connection tracking', { family, deleted });
      this.#hasFailed = false;
    } catch (error) {
      this.#stale.putBack(flows);
      if (this.#hasFailed) return;
      this.#hasFailed = true;
      log.error('Cannot clear UDP entries of connection tracking; trying again with the next sync', {
        family,
        err: messageOf(error),
      });
    }
  }
}
