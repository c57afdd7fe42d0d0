import { type Iptables, IptablesError } from '../contracts/iptables.ts';
import type { Log } from '../contracts/log.ts';
import { localAddresses } from '../host/host-address.ts';
import type { NodeAddress } from '../host/node-address.ts';
import { type Address, familyOf, type IpFamily } from '../model/address.ts';

export const WILDCARDS: Readonly<Record<IpFamily, Address>> = { IPv4: '0.0.0.0' as Address, IPv6: '::' as Address };

export interface ServedFamiliesOptions {
  readonly bindAddress: Address;
  readonly hosts: Readonly<Record<IpFamily, NodeAddress>>;
  readonly iptables: Iptables;
  readonly log: Log;
}

/** Where the listeners of a served family are. */
export interface ServedFamily {
  readonly family: IpFamily;
  readonly bindAddress: Address;
}

/**
 * The address families that this node can serve, the primary one first, which is that of the bind address as in
 * kube-proxy. A wildcard stands for both; one address of the node for its own family alone. Rejects with a sentence
 * for the user when there is none.
 */
export async function servedFamilies(
  options: ServedFamiliesOptions,
): Promise<readonly [ServedFamily, ...ServedFamily[]]> {
  const { bindAddress, hosts, log } = options;
  const primary = familyOf(bindAddress);
  if (bindAddress !== WILDCARDS[primary]) {
    if (!localAddresses(primary).includes(bindAddress)) {
      const wildcard = WILDCARDS[primary];
      throw new Error(
        `--bind-address ${bindAddress} is not an address of this node; give it one that is, or ${wildcard}`,
      );
    }
    if (hosts[primary].current() === undefined) throw withoutAddress(primary);
    return [{ family: primary, bindAddress }];
  }
  const secondary = primary === 'IPv4' ? 'IPv6' : 'IPv4';
  const byPreference: readonly IpFamily[] = [primary, secondary];
  const [first, second] = byPreference.filter((family) => hosts[family].current() !== undefined);
  if (first === undefined) throw withoutAddress('IPv4 or IPv6');
  const served = { family: first, bindAddress: WILDCARDS[first] };
  const missing = second === undefined ? 'this node has no other address' : await whyNoRules(second, options);
  if (second !== undefined && missing === undefined) {
    return [served, { family: second, bindAddress: WILDCARDS[second] }];
  }
  log.info(`Only ${first} is served`, { reason: missing });
  return [served];
}

/** Whether rules of the family can be had at all; a failure that may pass is no reason to do without it. */
async function whyNoRules(family: IpFamily, { iptables }: ServedFamiliesOptions): Promise<string | undefined> {
  try {
    await iptables.save(family, 'nat');
    return undefined;
  } catch (error) {
    const mayPass = error instanceof IptablesError && (error.code === 'locked' || error.code === 'timeout');
    if (mayPass) return undefined;
    return error instanceof Error ? error.message : String(error);
  }
}

function withoutAddress(families: string): Error {
  return new Error(`this node has no ${families} address but loopback ones; give an interface an address`);
}
