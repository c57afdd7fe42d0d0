import type { DataPlaneOptions } from '../model/data-plane.ts';
import { type Finding, fail, ok } from './finding.ts';
import type { Machine } from './machine.ts';

const DEFAULT = '/proc/sys/net/ipv4/tcp_congestion_control';

/** Figures of the rows bulk-1 and bulk-1-bbr, and of the candidate cubic, in docs/performance.md. */
const COST_OF_BBR =
  'between pods of one node, BBR carries about a third of what cubic does; --tcp-congestion-control cubic, which is ' +
  "for the proxy's connections alone, carries half as much again as BBR";

/** What the proxy's TCP connections use, and what that costs. `problem`: why this kernel refuses a name. */
export async function checkCongestionControl(
  { read }: Pick<Machine, 'read'>,
  { congestionControl: asked }: Pick<DataPlaneOptions, 'congestionControl'>,
  problem: (name: string) => Promise<string | undefined>,
): Promise<readonly Finding[]> {
  const nodes = read(DEFAULT)?.trim() ?? 'what the kernel chooses';
  if (asked === undefined) {
    const cost = nodes.startsWith('bbr') ? `: ${COST_OF_BBR}` : '';
    return [ok(`TCP uses ${nodes}, as the node does${cost}`)];
  }
  const why = await problem(asked);
  if (why !== undefined) return [fail(`--tcp-congestion-control ${asked}: ${why}`, 'choose another, or remove it')];
  return [ok(`the proxy's TCP connections use ${asked}; the node's default is ${nodes}`)];
}
