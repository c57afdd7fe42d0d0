import { type Cidr, parseCidr } from '../model/cidr.ts';
import { UsageError } from './usage-error.ts';

/** One of `--nodeport-addresses`. */
export function parseNodePortCidr(text: string): Cidr {
  if (text === 'primary') throw new UsageError('"primary" is not supported yet; write the CIDRs of the node addresses');
  const cidr = parseCidr(text);
  if (cidr === undefined) {
    throw new UsageError('not a CIDR; write an address and a prefix length, such as 192.0.2.0/24');
  }
  return cidr;
}
