import { hash } from 'node:crypto';
import type { IpFamily } from '../../model/address.ts';
import type { Table } from '../../model/iptables.ts';
import { close } from '../../sys/descriptor.ts';
import { Memory } from '../../sys/memory.ts';
import {
  askNetfilter,
  dumpNetfilter,
  encodeAttribute,
  encodeMessage,
  NLM_F_DUMP,
  nfgenmsg,
  visitAttributes,
} from '../../sys/netlink.ts';
import { ADDRESS_FAMILY, getOption, IPPROTO_IP, IPPROTO_IPV6, SOCK_RAW, socket } from '../../sys/socket.ts';
import { must } from '../../sys/sys-error.ts';

/* The kernel's tables without the iptables programs. Messages: uapi/linux/netfilter/nf_tables.h. */

const NFNL_SUBSYS_NFTABLES = 10;
const GETCHAIN = (NFNL_SUBSYS_NFTABLES << 8) | 4;
const GETRULE = (NFNL_SUBSYS_NFTABLES << 8) | 7;
const DELRULE = (NFNL_SUBSYS_NFTABLES << 8) | 8;
const GETGEN = (NFNL_SUBSYS_NFTABLES << 8) | 16;
const NFNL_MSG_BATCH_BEGIN = 0x10;
const NFNL_MSG_BATCH_END = 0x11;

const NFTA_GEN_ID = 1;
const NFTA_CHAIN_TABLE = 1;
const NFTA_CHAIN_NAME = 3;
const NFTA_CHAIN_POLICY = 5;
const NF_DROP = 0;
const NFTA_RULE_TABLE = 1;
const NFTA_RULE_CHAIN = 2;
const NFTA_RULE_HANDLE = 3;
const NFTA_RULE_EXPRESSIONS = 4;
const NFTA_EXPR_NAME = 1;
const NFTA_EXPR_DATA = 2;
const NFTA_IMMEDIATE_DATA = 2;
const NFTA_DATA_VERDICT = 2;
const NFTA_VERDICT_CODE = 1;
const NFTA_VERDICT_CHAIN = 2;
const NFT_GOTO = -4;

/** A rule of nf_tables, whether iptables can print it or not. */
export interface NftRule {
  /** Names it within its table, and no other after it. */
  readonly handle: bigint;
  /** `-j CHAIN` or `-g CHAIN`, `-j NFT` if it may decide in another way, and nothing if a packet goes on behind it. */
  readonly target: string;
  /** Its bytes, which hold its comment wherever a release of iptables has put that. */
  readonly content: string;
}

/** Another number after each change of any table of nf_tables in this network namespace. Throws a `SysError`. */
export function nftGeneration(): number {
  let id: number | undefined;
  askNetfilter(encodeMessage(GETGEN, 0, [nfgenmsg(0)]), {
    visit: (bytes, begin, end) => {
      visitAttributes(bytes, begin, end, (type, from) => {
        if (type === NFTA_GEN_ID) id = bytes.readUInt32BE(from);
      });
    },
  });
  if (id === undefined) throw new Error('the kernel does not tell the generation of nf_tables');
  return id;
}

export interface NftChain {
  readonly name: string;
  /** Of one that packets come to by themselves. */
  readonly policy?: 'ACCEPT' | 'DROP';
}

/** The chains of a table; none where it does not exist. Rejects with a `SysError`. */
export async function nftChains(family: IpFamily, table: Table): Promise<readonly NftChain[]> {
  const chains: NftChain[] = [];
  await dumpNetfilter(encodeMessage(GETCHAIN, NLM_F_DUMP, [nfgenmsg(ADDRESS_FAMILY[family])]), (bytes, begin, end) => {
    let owner = '';
    let name = '';
    let policy: NftChain['policy'];
    visitAttributes(bytes, begin, end, (type, from, to) => {
      if (type === NFTA_CHAIN_TABLE) owner = text(bytes, from, to);
      else if (type === NFTA_CHAIN_NAME) name = text(bytes, from, to);
      else if (type === NFTA_CHAIN_POLICY) policy = bytes.readUInt32BE(from) === NF_DROP ? 'DROP' : 'ACCEPT';
    });
    if (owner === table) chains.push({ name, ...(policy && { policy }) });
  });
  return chains;
}

/** The rules of a chain, in order. Rejects with a `SysError`. */
export async function nftRules(family: IpFamily, table: Table, chain: string): Promise<readonly NftRule[]> {
  const rules: NftRule[] = [];
  const request = encodeMessage(GETRULE, NLM_F_DUMP, [
    nfgenmsg(ADDRESS_FAMILY[family]),
    encodeAttribute(NFTA_RULE_TABLE, cString(table)),
    encodeAttribute(NFTA_RULE_CHAIN, cString(chain)),
  ]);
  await dumpNetfilter(request, (bytes, begin, end) => {
    let handle = 0n;
    let target = '';
    visitAttributes(bytes, begin, end, (type, from, to) => {
      if (type === NFTA_RULE_HANDLE) handle = bytes.readBigUInt64BE(from);
      if (type !== NFTA_RULE_EXPRESSIONS) return;
      visitAttributes(bytes, from, to, (_element, elementFrom, elementTo) => {
        target = targetOf(bytes, elementFrom, elementTo);
      });
    });
    rules.push({ handle, target, content: bytes.toString('latin1', begin, end) });
  });
  return rules;
}

/** Deletes all of these rules or, throwing a `SysError`, none. */
export function deleteNftRules(
  family: IpFamily,
  table: string,
  rules: readonly { readonly chain: string; readonly handle: bigint }[],
): void {
  const deletions = rules.map(({ chain, handle }) => {
    const id = Buffer.alloc(8);
    id.writeBigUInt64BE(handle);
    return encodeMessage(DELRULE, 0, [
      nfgenmsg(ADDRESS_FAMILY[family]),
      encodeAttribute(NFTA_RULE_TABLE, cString(table)),
      encodeAttribute(NFTA_RULE_CHAIN, cString(chain)),
      encodeAttribute(NFTA_RULE_HANDLE, id),
    ]);
  });
  const bound = (type: number) => encodeMessage(type, 0, [nfgenmsg(0, NFNL_SUBSYS_NFTABLES)]);
  askNetfilter(Buffer.concat([bound(NFNL_MSG_BATCH_BEGIN), ...deletions, bound(NFNL_MSG_BATCH_END)]));
}

/** A rule that ends with one of these decides nothing. */
const PASSING = new Set(['meta', 'ct', 'counter', 'log', 'dynset', 'notrack', 'payload', 'exthdr', 'objref']);

/** Of a rule whose last expression this is. */
function targetOf(bytes: Buffer, begin: number, end: number): string {
  let name = '';
  let target: string | undefined;
  visitAttributes(bytes, begin, end, (type, from, to) => {
    if (type === NFTA_EXPR_NAME) name = text(bytes, from, to);
    // The kernel names an expression before it tells of it.
    if (type === NFTA_EXPR_DATA && name === 'immediate') target = verdictJump(bytes, from, to);
  });
  return target ?? (PASSING.has(name) ? '' : '-j NFT');
}

function verdictJump(bytes: Buffer, begin: number, end: number): string | undefined {
  let code = 0;
  let chain: string | undefined;
  visitAttributes(bytes, begin, end, (type, from, to) => {
    if (type !== NFTA_IMMEDIATE_DATA) return;
    visitAttributes(bytes, from, to, (kind, verdictFrom, verdictTo) => {
      if (kind !== NFTA_DATA_VERDICT) return;
      visitAttributes(bytes, verdictFrom, verdictTo, (part, partFrom, partTo) => {
        if (part === NFTA_VERDICT_CODE) code = bytes.readInt32BE(partFrom);
        else if (part === NFTA_VERDICT_CHAIN) chain = text(bytes, partFrom, partTo);
      });
    });
  });
  return chain && `${code === NFT_GOTO ? '-g' : '-j'} ${chain}`;
}

function cString(name: string): Buffer {
  return Buffer.from(`${name}\0`, 'latin1');
}

function text(bytes: Buffer, begin: number, end: number): string {
  return bytes.toString('latin1', begin, end).replace(/\0.*$/s, '');
}

/*
 * The legacy tables have no generation, but can be read as they are (uapi/linux/netfilter_ipv4/ip_tables.h and
 * netfilter_ipv6/ip6_tables.h).
 *
 * struct ipt_getinfo      name 0–31 · valid hooks 32 · hook entries 36 · underflows 56 · number of entries 76 · size 80
 * struct ipt_get_entries  name 0–31 · size 32 · entries from 40
 */

const IPT_SO_GET_INFO = 64;
const IPT_SO_GET_ENTRIES = 65;
const IPPROTO_RAW = 255;
const INFO_BYTES = 84;
const INFO_SIZE = 80;
const ENTRIES_SIZE = 32;
const ENTRIES = 40;

/** In `struct ipt_entry` and `struct ip6t_entry`. */
const ENTRY = { IPv4: { next: 90, counters: 96, size: 112 }, IPv6: { next: 142, counters: 152, size: 168 } } as const;
const COUNTERS_BYTES = 16;

/** Reading so much takes about a millisecond; of a larger table only its shape is looked at. */
const MAX_READ_BYTES = 1 << 20;

/** Another text after each change of these tables, which must exist: asking would create them. Throws a `SysError`. */
export function legacyGeneration(family: IpFamily, tables: readonly Table[]): string {
  const isIPv4 = family === 'IPv4';
  const fd = must('socket', socket(ADDRESS_FAMILY[family], SOCK_RAW, IPPROTO_RAW));
  const read = (option: number, memory: Memory) =>
    must('getsockopt', getOption(fd, isIPv4 ? IPPROTO_IP : IPPROTO_IPV6, option, memory));
  try {
    return tables
      .map((table) => {
        const info = new Memory(INFO_BYTES);
        info.bytes.write(table, 'latin1');
        read(IPT_SO_GET_INFO, info);
        const shape = info.bytes.toString('base64');
        const size = info.bytes.readUInt32LE(INFO_SIZE);
        if (size > MAX_READ_BYTES) return shape;
        const entries = new Memory(ENTRIES + size);
        entries.bytes.write(table, 'latin1');
        entries.bytes.writeUInt32LE(size, ENTRIES_SIZE);
        read(IPT_SO_GET_ENTRIES, entries);
        return `${shape} ${hashOfEntries(entries.bytes.subarray(ENTRIES), family)}`;
      })
      .join(' ');
  } finally {
    close(fd);
  }
}

function hashOfEntries(entries: Buffer, family: IpFamily): string {
  const { next, counters, size } = ENTRY[family];
  for (let at = 0; at + size <= entries.length; ) {
    entries.fill(0, at + counters, at + counters + COUNTERS_BYTES);
    at += Math.max(entries.readUInt16LE(at + next), size);
  }
  return hash('sha1', entries, 'base64');
}
