import { type Iptables, IptablesError, type Table } from '../contracts/iptables.ts';
import type { Log } from '../contracts/log.ts';
import type { IpFamily } from '../model/address.ts';
import { planCleanup } from '../rules/cleanup.ts';

/** The tables in which this program, or a kube-proxy in userspace mode, leaves something. */
const TABLES: readonly Table[] = ['nat', 'filter'];
const FAMILIES: readonly IpFamily[] = ['IPv4', 'IPv6'];

/**
 * Takes every trace of the proxy out of every table of both families, in each flavour of iptables that is given. Goes
 * on past failures; resolves with how many there were, each of them logged. A program that is not installed is none.
 */
export async function cleanUp(flavours: readonly Iptables[], log: Log): Promise<number> {
  let failures = 0;
  for (const iptables of flavours) {
    for (const family of FAMILIES) {
      for (const table of TABLES) {
        try {
          const text = planCleanup({ table, dump: await iptables.save(family, table) });
          if (text === undefined) continue;
          await iptables.restore(family, text);
          log.info('Removed the rules of the proxy', { family, table });
        } catch (error) {
          if (error instanceof IptablesError && error.code === 'missing') continue;
          failures++;
          log.error('Cannot remove the rules of the proxy', { family, table, err: String(error) });
        }
      }
    }
  }
  return failures;
}
