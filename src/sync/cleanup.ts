import { FAMILIES, type IpFamily } from '../model/address.ts';
import type { Conntrack } from '../model/conntrack.ts';
import { type Iptables, IptablesError, type Table } from '../model/iptables.ts';
import { parseDump } from '../rules/dump.ts';
import { installedPorts } from '../rules/local-ports.ts';
import { planCleanup } from '../rules/plan.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';

const TABLES: readonly Table[] = ['nat', 'filter', 'mangle'];

interface CleanupOptions {
  readonly flavours: readonly Iptables[];
  readonly conntrack: Pick<Conntrack, 'deleteTo' | 'deleteMarked'>;
  /** Of the proxy's own connections. */
  readonly connectionMark: number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Removes every trace of the proxy from all tables of both families and from connection tracking: the UDP entries to
 * its local ports, and all with its mark. Logs failures, continues, and resolves with their number. A missing iptables
 * program does not count.
 */
export async function cleanUp({ flavours, conntrack, connectionMark, clock, log }: CleanupOptions): Promise<number> {
  const udpPorts = new Set<number>();
  let failures = 0;

  async function cleanTable(iptables: Iptables, family: IpFamily, table: Table): Promise<void> {
    const dump = await iptables.save(family, table);
    const text = planCleanup({ table, dump });
    if (text === undefined) return;
    await iptables.restore(family, text);
    log.info('Removed the rules of the proxy', { family, table });
    for (const { protocol, localPort } of installedPorts(parseDump(dump).get('nat') ?? new Map(), clock.wallNow())) {
      if (protocol === 'UDP') udpPorts.add(localPort);
    }
  }

  for (const iptables of flavours) {
    for (const family of FAMILIES) {
      for (const table of TABLES) {
        try {
          await cleanTable(iptables, family, table);
        } catch (error) {
          if (error instanceof IptablesError && error.code === 'missing') continue;
          failures++;
          log.error('Cannot remove the rules of the proxy', { family, table, err: messageOf(error) });
        }
      }
    }
  }
  try {
    const ofUdp = udpPorts.size === 0 ? 0 : await conntrack.deleteTo('UDP', udpPorts);
    const deleted = ofUdp + (await conntrack.deleteMarked(connectionMark));
    if (deleted > 0) log.info('Cleared entries of connection tracking', { deleted });
  } catch (error) {
    failures++;
    log.error('Cannot clear entries of connection tracking', { err: messageOf(error) });
  }
  return failures;
}
