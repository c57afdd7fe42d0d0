import type { FindObstacle } from '../kernel/client-addresses.ts';
import type { IpFamily } from '../model/address.ts';
import type { ClientAddressPolicy } from '../model/client-address.ts';
import { type Finding, ok, warn } from './finding.ts';

/** Whether endpoints would see the addresses of clients. */
export function checkClientAddresses(
  findObstacle: FindObstacle,
  families: readonly IpFamily[],
  { clientAddress }: ClientAddressPolicy,
): readonly Finding[] {
  if (clientAddress === 'node') return [ok("endpoints see this node's address, as --client-address says")];
  const findings: Finding[] = [];
  for (const family of families) {
    const obstacle = findObstacle(family);
    if (obstacle === undefined) continue;
    const found = `endpoints see this node's address instead of the client's, for ${family} clients: ${obstacle}`;
    findings.push(warn(found, 'do so, or start with --client-address node if endpoints may see this node'));
  }
  return findings.length === 0 ? [ok('endpoints can see the addresses of clients')] : findings;
}
