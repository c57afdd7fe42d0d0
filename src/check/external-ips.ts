import type { Cidr } from '../model/address.ts';
import type { Service } from '../model/service.ts';
import { listed } from '../util/text.ts';
import { type Finding, ok, warn } from './finding.ts';

const NAMED = 3;

/**
 * Whether anything limits the external IPs of Services, which everybody chooses who may write one (CVE-2020-8554). Also
 * a warning where none has any: a limit costs nothing then.
 */
export function checkExternalIPs(
  allowed: readonly Cidr[] | undefined,
  services: readonly Service[],
): readonly Finding[] {
  if (allowed?.length === 0) return [ok('they are switched off by the feature gate AllowServiceExternalIPs')];
  if (allowed !== undefined) {
    return [
      ok(`they may be in ${allowed.map(({ network, prefixLength }) => `${network}/${prefixLength}`).join(', ')}`),
    ];
  }
  const users = services.filter(({ externalIPs }) => externalIPs.length > 0).map(({ key }) => key);
  const inUse = users.length === 0 ? 'no Service has any' : `${listed(users, NAMED)} have some`;
  const advice =
    users.length === 0
      ? 'give --external-ip-allow-list an unused network, such as 192.0.2.0/24'
      : 'name their networks in --external-ip-allow-list';
  return [warn(`any author of a Service may give it any external IP; now ${inUse}`, advice)];
}
