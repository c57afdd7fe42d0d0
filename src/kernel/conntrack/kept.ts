import { FAMILIES, type IpFamily } from '../../model/address.ts';
import { close } from '../../sys/descriptor.ts';
import { encodeMessage, encodeWord, NetlinkSocket, NLM_F_DUMP, nfgenmsg, visitAttributes } from '../../sys/netlink.ts';
import { ADDRESS_FAMILY } from '../../sys/socket.ts';
import { encodeSocketAddress } from '../../sys/socket-address.ts';
import { EADDRINUSE, ENOMEM, EOPNOTSUPP, SysError } from '../../sys/sys-error.ts';
import { CT, CTA } from './attributes.ts';
import { deleteEntries, explained } from './ctnetlink.ts';
import { KeptEntries } from './kept-entries.ts';

/** Addresses that nobody has (RFC 5737, RFC 3849). */
const NOWHERE = {
  IPv4: ['192.0.2.1', '198.51.100.1', '203.0.113.1'],
  IPv6: ['2001:db8:1::1', '2001:db8:2::1', '2001:db8:3::1'],
} as const;

/** Of probes; nothing is sent there. */
const DISCARD_PORT = 9;

/**
 * Why this kernel cannot keep clients' addresses (docs/adr/0023), as a sentence that says what to do; `undefined` if it
 * can. It makes an entry that fits no packet, and deletes it.
 */
export function probeKeptEntries(family: IpFamily): string | undefined {
  let descriptor = -1;
  const netfilter = new NetlinkSocket((fd) => {
    descriptor = fd;
  });
  const opened = netfilter.open();
  if (opened < 0) return explained(-opened).message;
  const [source, endpoint, client] = NOWHERE[family].map((each) => encodeSocketAddress(each, DISCARD_PORT).words());
  const entries = new KeptEntries(netfilter, family, 'TCP', 0, { has: () => false });
  const status = entries.insert(source as Int32Array, endpoint as Int32Array, client as Int32Array);
  if (status === 0) entries.remove(source as Int32Array, endpoint as Int32Array);
  close(descriptor);
  // Another process probes at this moment, or the table is full: then every dial fails, for that is no missing part.
  if (status === 0 || status === -EADDRINUSE || status === -ENOMEM) return undefined;
  if (status !== -EOPNOTSUPP) return explained(-status).message;
  const { message } = new SysError('connection tracking cannot translate addresses', -status);
  return `${message}; load the kernel module nf_nat`;
}

/**
 * Deletes all entries of both families that carry this mark. Returns how many. Rejects with an Error that says what to
 * do.
 */
export async function deleteKeptEntries(mark: number): Promise<number> {
  let deleted = 0;
  for (const family of FAMILIES) {
    deleted += await deleteEntries(family, markedRequest(family, mark), (bytes, begin, end) => {
      const identity: Uint8Array[] = [];
      let isMarked = false;
      visitAttributes(bytes, begin, end, (type, from, to) => {
        if (type === CTA.MARK) isMarked = bytes.readUInt32BE(from) === mark;
        else if (type === CTA.TUPLE_ORIG || type === CTA.ID) identity.push(bytes.subarray(from - 4, to));
      });
      return isMarked ? identity : undefined;
    });
  }
  return deleted;
}

function markedRequest(family: IpFamily, mark: number): Buffer {
  return encodeMessage(CT.GET, NLM_F_DUMP, [
    nfgenmsg(ADDRESS_FAMILY[family]),
    encodeWord(CTA.MARK, mark),
    encodeWord(CTA.MARK_MASK, 0xffff_ffff),
  ]);
}
