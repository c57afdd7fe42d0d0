import { localAddresses } from '../kernel/addresses.ts';
import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import { type Iptables, IptablesError } from '../model/iptables.ts';
import { natProbeText } from '../rules/plan.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';

export const WILDCARDS: Readonly<Record<IpFamily, Address>> = { IPv4: '0.0.0.0' as Address, IPv6: '::' as Address };

/** Where the listeners of a family are. */
export interface ServedFamily {
  readonly family: IpFamily;
  readonly bindAddress: Address;
}

/**
 * The address families that a bind address stands for, the primary one first, which is its own as in kube-proxy. A
 * wildcard stands for both; one address of the node for its family alone. Throws a sentence for the user.
 */
export function familiesOf(bindAddress: Address): readonly [ServedFamily, ...ServedFamily[]] {
  const primary = familyOf(bindAddress);
  const wildcard = WILDCARDS[primary];
  if (bindAddress === wildcard) {
    const secondary = primary === 'IPv4' ? 'IPv6' : 'IPv4';
    return [
      { family: primary, bindAddress },
      { family: secondary, bindAddress: WILDCARDS[secondary] },
    ];
  }
  if (!localAddresses(primary).includes(bindAddress)) {
    throw new Error(
      `--bind-address ${bindAddress} is not an address of this node; give it one that is, or ${wildcard}`,
    );
  }
  return [{ family: primary, bindAddress }];
}

export interface AbilityOptions {
  readonly families: readonly ServedFamily[];
  /** The node's address of a family. */
  readonly address: (family: IpFamily) => Address | undefined;
  /** Rejects with an {@link IptablesError} when there can be no rules of the family. */
  readonly probe: (family: IpFamily) => Promise<unknown>;
  readonly clock: Clock;
  readonly log: Log;
}

/** A probe starts a program; what a family lacks is rarely there a moment later. */
const PROBE_AGAIN_MS = 60_000;

/** Which families the node can serve, as that changes: with an address of the node, and NAT for the rules. */
export class Ability {
  readonly #options: AbilityOptions;
  /** Why rules could not be had, and when to look again. */
  readonly #withoutRules = new Map<IpFamily, { readonly reason: string; readonly untilMs: number }>();
  #told = '';

  constructor(options: AbilityOptions) {
    this.#options = options;
  }

  /**
   * The families to begin with. One of them at least: where all fail, the errors of the first are to be seen. Rejects
   * with a sentence for the user when the node has no address.
   */
  async atStart(): Promise<readonly IpFamily[]> {
    const families = this.#options.families.map(({ family }) => family);
    const [first, ...others] = families.filter((family) => this.#options.address(family) !== undefined);
    if (first === undefined) {
      throw new Error(
        `this node has no ${families.join(' or ')} address but loopback ones; give an interface an address`,
      );
    }
    if (others.length === 0) return [first];
    const problems = await Promise.all(families.map((family) => this.#problem(family)));
    // A failure that may pass is no reason to do without a family that a predecessor may have served.
    const able = families.filter((_, index) => problems[index]?.mayPass ?? true);
    return able.length === 0 ? [first] : able;
  }

  /** Those of `families` that can be served now. */
  async of(families: readonly IpFamily[]): Promise<readonly IpFamily[]> {
    const reasons = await Promise.all(families.map((family) => this.whyNot(family)));
    return families.filter((_, index) => reasons[index] === undefined);
  }

  /** A clause for people; `undefined` when it can be served. */
  async whyNot(family: IpFamily): Promise<string | undefined> {
    return (await this.#problem(family))?.reason;
  }

  async #problem(family: IpFamily): Promise<{ readonly reason: string; readonly mayPass: boolean } | undefined> {
    const { address, probe, clock } = this.#options;
    if (address(family) === undefined) {
      // Once there is one, much else may be different, too.
      this.#withoutRules.delete(family);
      return { reason: 'this node has no other address', mayPass: false };
    }
    const known = this.#withoutRules.get(family);
    if (known !== undefined && clock.now() < known.untilMs) return { reason: known.reason, mayPass: false };
    try {
      await probe(family);
      return undefined;
    } catch (error) {
      const reason = messageOf(error);
      // This says nothing of the kernel, so what was known before stands, and the next look probes again.
      if (error instanceof IptablesError && (error.code === 'locked' || error.code === 'timeout')) {
        return { reason: known?.reason ?? reason, mayPass: true };
      }
      this.#withoutRules.set(family, { reason, untilMs: clock.now() + PROBE_AGAIN_MS });
      return { reason, mayPass: false };
    }
  }

  /** Says in the log that only `active` are served, and why, unless it has said just that. */
  async tell(active: readonly IpFamily[]): Promise<void> {
    const { families, log } = this.#options;
    const left = families.map(({ family }) => family).filter((family) => !active.includes(family));
    const reasons = await Promise.all(left.map((family) => this.whyNot(family)));
    const reason = reasons.filter((each) => each !== undefined).join('; ');
    const told = `${active.join(' and ')} ${reason}`;
    if (told === this.#told) return;
    const isFirst = this.#told === '';
    this.#told = told;
    if (left.length > 0) log.info(`Only ${active.join(' and ')} is served`, { reason });
    else if (!isFirst) log.info(`${active.join(' and ')} are served now`);
  }
}

/** Makes and removes a rule of NAT, for only that tells whether the kernel would take ours. */
export function probeNat(iptables: Iptables): (family: IpFamily) => Promise<void> {
  return (family) => iptables.restore(family, natProbeText(family));
}
