import { type Iptables, IptablesError } from '../contracts/iptables.ts';
import { localAddresses } from '../host/host-address.ts';
import type { NodeAddress } from '../host/node-address.ts';
import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import { messageOf } from '../model/message-of.ts';

export const WILDCARDS: Readonly<Record<IpFamily, Address>> = { IPv4: '0.0.0.0' as Address, IPv6: '::' as Address };

export interface ServedFamiliesOptions {
  readonly bindAddress: Address;
  readonly hosts: Readonly<Record<IpFamily, NodeAddress>>;
  readonly iptables: Iptables;
}

/** Where the listeners of a served family are. */
export interface ServedFamily {
  readonly family: IpFamily;
  readonly bindAddress: Address;
}

export interface ServedFamilies {
  readonly served: readonly [ServedFamily, ...ServedFamily[]];
  /** Why the other family is not served although the bind address stands for both; a clause for the log. */
  readonly leftOut?: string;
}

/**
 * The address families that this node can serve, the primary one first, which is that of the bind address as in
 * kube-proxy. A wildcard stands for both; one address of the node for its own family alone. Rejects with a sentence
 * for the user when there is none.
 */
export async function servedFamilies(options: ServedFamiliesOptions): Promise<ServedFamilies> {
  const { bindAddress, hosts } = options;
  const primary = familyOf(bindAddress);
  if (bindAddress !== WILDCARDS[primary]) {
    if (!localAddresses(primary).includes(bindAddress)) {
      const wildcard = WILDCARDS[primary];
      throw new Error(
        `--bind-address ${bindAddress} is not an address of this node; give it one that is, or ${wildcard}`,
      );
    }
    if (hosts[primary].current() === undefined) throw withoutAddress(primary);
    return { served: [{ family: primary, bindAddress }] };
  }
  const secondary = primary === 'IPv4' ? 'IPv6' : 'IPv4';
  const byPreference: readonly IpFamily[] = [primary, secondary];
  const [first, second] = byPreference.filter((family) => hosts[family].current() !== undefined);
  if (first === undefined) throw withoutAddress('IPv4 or IPv6');
  const primaryServed = { family: first, bindAddress: WILDCARDS[first] };
  const leftOut = second === undefined ? 'this node has no other address' : await whyNoRules(second, options);
  if (second === undefined || leftOut !== undefined) return { served: [primaryServed], ...(leftOut && { leftOut }) };
  return { served: [primaryServed, { family: second, bindAddress: WILDCARDS[second] }] };
}

/** Whether rules of the family can be had at all; a failure that may pass is no reason to do without it. */
async function whyNoRules(family: IpFamily, { iptables }: ServedFamiliesOptions): Promise<string | undefined> {
  try {
    await iptables.save(family, 'nat');
    return undefined;
  } catch (error) {
    const mayPass = error instanceof IptablesError && (error.code === 'locked' || error.code === 'timeout');
    if (mayPass) return undefined;
    return messageOf(error);
  }
}

function withoutAddress(families: string): Error {
  return new Error(`this node has no ${families} address but loopback ones; give an interface an address`);
}
