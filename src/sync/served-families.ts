import { type Address, familyOf, type IpFamily, WILDCARDS } from '../model/address.ts';
import { CaptureError } from '../model/capture.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';

export interface FamilyBinding {
  readonly family: IpFamily;
  readonly bindAddress: Address;
}

/**
 * The families of a bind address, its own first, as in kube-proxy. A wildcard stands for both families, one address of
 * the node for its family alone. Throws a sentence for the user.
 */
export function familiesOf(
  bindAddress: Address,
  localAddresses: (family: IpFamily) => readonly Address[],
): readonly [FamilyBinding, ...FamilyBinding[]] {
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

interface ServedFamiliesOptions {
  /** The primary one first. */
  readonly families: readonly IpFamily[];
  readonly address: (family: IpFamily) => Address | undefined;
  /** Rejects with a {@link CaptureError} when the kernel cannot capture packets of the family. */
  readonly probe: (family: IpFamily) => Promise<unknown>;
  readonly clock: Clock;
  readonly log: Log;
}

/** A probe starts a program, and its answer rarely changes. */
const PROBE_AGAIN_MS = 60_000;

interface Obstacle {
  readonly reason: string;
  /** The probe could not tell (a lock, a deadline). */
  readonly mayPass: boolean;
}

/** The families that are served, and those that can be: with an address of the node, and NAT. */
export class ServedFamilies {
  readonly #options: ServedFamiliesOptions;
  /** Why there can be no rules, until the next probe. */
  readonly #withoutRules = new Map<IpFamily, { readonly reason: string; readonly untilMs: number }>();
  readonly #served = new Set<IpFamily>();
  #reported = '';

  constructor(options: ServedFamiliesOptions) {
    this.#options = options;
  }

  /** The primary one first. */
  get active(): readonly IpFamily[] {
    return this.#options.families.filter((family) => this.#served.has(family));
  }

  has(family: IpFamily): boolean {
    return this.#served.has(family);
  }

  add(family: IpFamily): void {
    this.#served.add(family);
  }

  /**
   * Begins with the families that can be served, or with the first where all fail, so that its errors are visible.
   * Rejects with a sentence for the user when the node has no address.
   */
  async begin(): Promise<void> {
    const { families, address } = this.#options;
    const [first, ...others] = families.filter((family) => address(family) !== undefined);
    if (first === undefined) {
      throw new Error(
        `this node has no ${families.join(' or ')} address but loopback ones; give an interface an address`,
      );
    }
    const obstacles = others.length === 0 ? [] : await Promise.all(families.map((family) => this.#obstacle(family)));
    // A predecessor may have served a family with an obstacle that may pass.
    const able = others.length === 0 ? [first] : families.filter((_, index) => obstacles[index]?.mayPass ?? true);
    for (const family of able.length === 0 ? [first] : able) this.add(family);
  }

  async servable(): Promise<readonly IpFamily[]> {
    const dormant = this.#dormant;
    const obstacles = await Promise.all(dormant.map((family) => this.#obstacle(family)));
    return dormant.filter((_, index) => obstacles[index] === undefined);
  }

  /** `undefined` when the family can be served. */
  async whyNot(family: IpFamily): Promise<string | undefined> {
    return (await this.#obstacle(family))?.reason;
  }

  /** Logs which families are served and why others are not, when that has changed. */
  async report(): Promise<void> {
    const { log } = this.#options;
    const dormant = this.#dormant;
    const active = this.active.join(' and ');
    const reasons = await Promise.all(dormant.map((family) => this.whyNot(family)));
    const reason = reasons.filter((each) => each !== undefined).join('; ');
    const report = `${active} ${reason}`;
    if (report === this.#reported) return;
    const isFirst = this.#reported === '';
    this.#reported = report;
    if (dormant.length > 0) log.info(`Only ${active} is served`, { reason });
    else if (!isFirst) log.info(`${active} are served now`);
  }

  get #dormant(): readonly IpFamily[] {
    return this.#options.families.filter((family) => !this.#served.has(family));
  }

  async #obstacle(family: IpFamily): Promise<Obstacle | undefined> {
    const { address, probe, clock } = this.#options;
    if (address(family) === undefined) {
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
      // The last answer stands, and the next call probes again.
      if (error instanceof CaptureError && error.mayPass) {
        return { reason: known?.reason ?? reason, mayPass: true };
      }
      this.#withoutRules.set(family, { reason, untilMs: clock.now() + PROBE_AGAIN_MS });
      return { reason, mayPass: false };
    }
  }
}
