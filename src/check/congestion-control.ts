import type { DataPlaneOptions } from '../model/data-plane.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import type { Machine } from './machine.ts';

const DEFAULT = '/proc/sys/net/ipv4/tcp_congestion_control';

/** Figures of the rows bulk-1 and bulk-1-bbr, and of the candidate cubic, in docs/performance.md. */
const COST_OF_BBR =
  'TCP uses bbr, as the node does: between pods of one node it carries about a third of what cubic does';
const CUBIC = 'give --tcp-congestion-control cubic, unless most clients or endpoints are far away';

/** What the proxy's TCP connections use, and what that costs. `problem`: why this kernel refuses a name. */
export async function checkCongestionControl(
  { read }: Pick<Machine, 'read'>,
  { congestionControl: asked }: Pick<DataPlaneOptions, 'congestionControl'>,
  problem: (name: string) => Promise<string | undefined>,
): Promise<readonly Finding[]> {
  const nodes = read(DEFAULT)?.trim() ?? 'what the kernel chooses';
  if (asked === undefined) {
    return [nodes.startsWith('bbr') ? warn(COST_OF_BBR, CUBIC) : ok(`TCP uses ${nodes}, as the node does`)];
  }
  const why = await problem(asked);
  if (why !== undefined) return [fail(`--tcp-congestion-control ${asked}: ${why}`, 'choose another, or remove it')];
  return [ok(`the proxy's TCP connections use ${asked}; the node's default is ${nodes}`)];
}
