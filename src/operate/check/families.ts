import type { Address, IpFamily } from '../../model/address.ts';
import { IptablesError } from '../../model/iptables.ts';
import { messageOf } from '../../util/text.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

export interface FamilyFacts {
  /** The primary one first. */
  readonly served: readonly { readonly family: IpFamily; readonly address: Address }[];
  /** Why the other family is not served although the node has an address of it. */
  readonly leftOut: string | undefined;
  /** Reads rules of a family. Rejects with an {@link IptablesError}. */
  readonly readRules: (family: IpFamily) => Promise<unknown>;
}

/** Which families a run would serve, and whether there are tables at all for the primary one's rules. */
export async function checkFamilies({ served, leftOut, readRules }: FamilyFacts): Promise<readonly Finding[]> {
  const [primary] = served;
  if (primary === undefined) return [];
  try {
    await readRules(primary.family);
  } catch (error) {
    if (!mayPass(error)) return [withoutRules(primary.family, messageOf(error))];
  }
  const found = served.map(({ family, address }) => `${family} (node address ${address})`).join(' and ');
  if (leftOut === undefined) return [ok(`Services are served over ${found}`)];
  return [warn(`Services are served over ${found} only: ${leftOut}`, 'mend it, unless the cluster has one family')];
}

function mayPass(error: unknown): boolean {
  return error instanceof IptablesError && (error.code === 'locked' || error.code === 'timeout');
}

function withoutRules(family: IpFamily, err: string): Finding {
  return fail(`there can be no rules for ${family}: ${err}`, cureOf(family, err));
}

/** What the nft tools say of a kernel without nf_tables, in the releases of the last years. */
const NO_NF_TABLES = /Failed to initialize nft|Could not fetch rule set generation id/;

function cureOf(family: IpFamily, err: string): string {
  if (err.includes('needs root')) return 'see the check of privileges';
  if (NO_NF_TABLES.test(err)) {
    return 'load nf_tables (modprobe nf_tables), or use --iptables-mode legacy if this kernel has the older tables';
  }
  const prefix = family === 'IPv4' ? 'ip' : 'ip6';
  return `see what it says; a module may be missing (modprobe ${prefix}table_nat ${prefix}table_filter)`;
}
