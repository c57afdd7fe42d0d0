import { type Cidr, parseCidr } from '../model/address.ts';
import { UsageError } from './usage-error.ts';

const PRIMARY = 'primary';

/** One of `--nodeport-addresses`: a block of addresses, or the addresses that the Node object names. */
export type NodePortAddresses = Cidr | typeof PRIMARY;

export function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  if (parsed === undefined) {
    throw new UsageError('not a CIDR; write an address and a prefix length, such as 192.0.2.0/24');
  }
  return parsed;
}

export function nodePortAddresses(text: string): NodePortAddresses {
  return text === PRIMARY ? PRIMARY : cidr(text);
}

export function showCidr(shown: NodePortAddresses): string {
  return shown === PRIMARY ? PRIMARY : `${shown.network}/${shown.prefixLength}`;
}
