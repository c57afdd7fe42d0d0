import { hash } from 'node:crypto';
import type { Table } from '../../capture/iptables/iptables.ts';
import type { IpFamily } from '../../model/address.ts';
import { close } from '../../sys/descriptor.ts';
import { Memory } from '../../sys/memory.ts';
import {
  askNetfilter,
  changeNetfilter,
  dumpNetfilter,
  encodeAttribute,
  encodeMessage,
  NLM_F_DUMP,
  nfgenmsg,
} from '../../sys/netlink.ts';
import { ADDRESS_FAMILY, getOption, IPPROTO_IP, IPPROTO_IPV6, SOCK_RAW, socket } from '../../sys/socket.ts';
import { must } from '../../sys/sys-error.ts';
import { attributesIn, batch, cString, NFT_GOTO, NFT_MSG, NFTA, textOf } from '../nft/messages.ts';

/* The kernel's tables without the iptables programs. Messages: uapi/linux/netfilter/nf_tables.h. */

const NF_DROP = 0;

/** A rule of nf_tables, whether iptables can print it or not. */
interface NftRule {
  /** Identifies the rule within its table; never used again for another rule. */
  readonly handle: bigint;
  /** `-j CHAIN` or `-g CHAIN`; `-j NFT` if it may decide otherwise; empty if the packet always continues behind it. */
  readonly target: string;
  /** The rule's bytes. They contain its comment, wherever a release of iptables puts it. */
  readonly content: string;
}

/** Another number after each change of any nf_tables table in this network namespace. Throws a `SysError`. */
export function nftGeneration(): number {
  let id: number | undefined;
  askNetfilter(encodeMessage(NFT_MSG.GETGEN, 0, [nfgenmsg(0)]), {
    visit: (bytes, begin, end) => {
      id ??= attributesIn(bytes.subarray(begin, end)).get(NFTA.GEN_ID)?.readUInt32BE();
    },
  });
  if (id === undefined) throw new Error('the kernel does not report the generation of nf_tables');
  return id;
}

interface NftChain {
  readonly name: string;
  /** Only base chains, which packets enter by themselves, have one. */
  readonly policy?: 'ACCEPT' | 'DROP';
}

/** The chains of a table; none where it does not exist. Rejects with a `SysError`. */
export async function nftChains(family: IpFamily, table: Table): Promise<readonly NftChain[]> {
  const chains: NftChain[] = [];
  const request = encodeMessage(NFT_MSG.GETCHAIN, NLM_F_DUMP, [nfgenmsg(ADDRESS_FAMILY[family])]);
  await dumpNetfilter(request, (bytes, begin, end) => {
    const chain = attributesIn(bytes.subarray(begin, end));
    if (textOf(chain.get(NFTA.CHAIN_TABLE)) !== table) return;
    const policy = chain.get(NFTA.CHAIN_POLICY)?.readUInt32BE();
    const name = textOf(chain.get(NFTA.CHAIN_NAME));
    chains.push(policy === undefined ? { name } : { name, policy: policy === NF_DROP ? 'DROP' : 'ACCEPT' });
  });
  return chains;
}

/** The rules of a chain, in order. Rejects with a `SysError`. */
export async function nftRules(family: IpFamily, table: Table, chain: string): Promise<readonly NftRule[]> {
  const rules: NftRule[] = [];
  const request = encodeMessage(NFT_MSG.GETRULE, NLM_F_DUMP, [
    nfgenmsg(ADDRESS_FAMILY[family]),
    encodeAttribute(NFTA.RULE_TABLE, cString(table)),
    encodeAttribute(NFTA.RULE_CHAIN, cString(chain)),
  ]);
  await dumpNetfilter(request, (bytes, begin, end) => {
    const rule = attributesIn(bytes.subarray(begin, end));
    rules.push({
      handle: rule.get(NFTA.RULE_HANDLE)?.readBigUInt64BE() ?? 0n,
      target: targetOf(rule.get(NFTA.RULE_EXPRESSIONS)),
      content: bytes.toString('latin1', begin, end),
    });
  });
  return rules;
}

interface RulePlace {
  readonly chain: string;
  readonly handle: bigint;
}

/** Deletes all of these rules or, throwing a `SysError`, none. */
export function deleteNftRules(family: IpFamily, table: string, rules: readonly RulePlace[]): void {
  askNetfilter(batch(rules.map((rule) => ruleDeletion(family, table, rule))));
}

function ruleDeletion(family: IpFamily, table: string, { chain, handle }: RulePlace): Buffer {
  const id = Buffer.alloc(8);
  id.writeBigUInt64BE(handle);
  return encodeMessage(NFT_MSG.DELRULE, 0, [
    nfgenmsg(ADDRESS_FAMILY[family]),
    encodeAttribute(NFTA.RULE_TABLE, cString(table)),
    encodeAttribute(NFTA.RULE_CHAIN, cString(chain)),
    encodeAttribute(NFTA.RULE_HANDLE, id),
  ]);
}

/**
 * Deletes these rules, empties these chains, and deletes some of them: all or nothing. No rule may jump to a deleted
 * chain any more. Rejects with a `SysError`.
 */
export async function removeNftChains(
  family: IpFamily,
  table: Table,
  { rules, emptied, deleted }: { rules: readonly RulePlace[]; emptied: readonly string[]; deleted: readonly string[] },
): Promise<void> {
  const chain = (type: number, nameAttribute: number) => (name: string) =>
    encodeMessage(type, 0, [
      nfgenmsg(ADDRESS_FAMILY[family]),
      encodeAttribute(NFTA.RULE_TABLE, cString(table)),
      encodeAttribute(nameAttribute, cString(name)),
    ]);
  await changeNetfilter(
    batch([
      ...rules.map((rule) => ruleDeletion(family, table, rule)),
      ...emptied.map(chain(NFT_MSG.DELRULE, NFTA.RULE_CHAIN)),
      ...deleted.map(chain(NFT_MSG.DELCHAIN, NFTA.CHAIN_NAME)),
    ]),
  );
}

/** A rule whose last expression is one of these decides nothing. */
const PASSING = new Set(['meta', 'ct', 'counter', 'log', 'dynset', 'notrack', 'payload', 'exthdr', 'objref']);

/** {@link NftRule.target} of a rule's expressions: the last one decides. */
function targetOf(expressions: Buffer | undefined): string {
  const last = attributesIn(expressions).get(NFTA.LIST_ELEM);
  const expression = attributesIn(last);
  const name = textOf(expression.get(NFTA.EXPR_NAME));
  if (name === 'immediate') {
    const data = attributesIn(expression.get(NFTA.EXPR_DATA)).get(NFTA.IMMEDIATE_DATA);
    const verdict = attributesIn(attributesIn(data).get(NFTA.DATA_VERDICT));
    const chain = verdict.get(NFTA.VERDICT_CHAIN);
    const isGoto = verdict.get(NFTA.VERDICT_CODE)?.readInt32BE() === NFT_GOTO;
    if (chain !== undefined) return `${isGoto ? '-g' : '-j'} ${textOf(chain)}`;
  }
  return PASSING.has(name) ? '' : '-j NFT';
}

/*
 * The legacy tables have no generation, but their entries can be read (uapi/linux/netfilter_ipv4/ip_tables.h and
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
const ENTRY = {
  IPv4: { target: 88, next: 90, counters: 96, size: 112 },
  IPv6: { target: 140, next: 142, counters: 152, size: 168 },
} as const;
const COUNTERS_BYTES = 16;

/** In `struct xt_entry_target`; the data of an ERROR begins with the name of the chain that begins there. */
const TARGET_NAME = 2;
const TARGET_DATA = 32;

/** Reading this much takes about a millisecond. Of a larger table, only the shape is compared. */
const MAX_READ_BYTES = 1 << 20;

/** Another text after each change of these tables, which must exist: a query would create them. Throws a `SysError`. */
export function legacyGeneration(family: IpFamily, tables: readonly Table[]): string {
  return tables
    .map((table) => {
      const { info, entries } = readLegacy(family, table, MAX_READ_BYTES);
      const shape = info.toString('base64');
      return entries === undefined ? shape : `${shape} ${hashOfEntries(entries, family)}`;
    })
    .join(' ');
}

/** The names of a table's own chains. The table must exist. Throws a `SysError`. */
export function legacyChains(family: IpFamily, table: Table): readonly string[] {
  const { entries = Buffer.alloc(0) } = readLegacy(family, table, Number.POSITIVE_INFINITY);
  return [...entriesIn(entries, family)].flatMap((entry) => {
    const target = entry.subarray(entry.readUInt16LE(ENTRY[family].target));
    const name = textOf(target.subarray(TARGET_NAME, TARGET_DATA));
    const chain = textOf(target.subarray(TARGET_DATA));
    // The last entry of a table names no chain.
    return name === 'ERROR' && chain !== 'ERROR' ? [chain] : [];
  });
}

/** `entries`: `undefined` where they are larger than this many bytes. */
function readLegacy(family: IpFamily, table: Table, most: number) {
  const level = family === 'IPv4' ? IPPROTO_IP : IPPROTO_IPV6;
  const fd = must('socket', socket(ADDRESS_FAMILY[family], SOCK_RAW, IPPROTO_RAW));
  const read = (option: number, memory: Memory) => must('getsockopt', getOption(fd, level, option, memory));
  try {
    const info = new Memory(INFO_BYTES);
    info.bytes.write(table, 'latin1');
    read(IPT_SO_GET_INFO, info);
    const size = info.bytes.readUInt32LE(INFO_SIZE);
    if (size > most) return { info: info.bytes };
    const all = new Memory(ENTRIES + size);
    all.bytes.write(table, 'latin1');
    all.bytes.writeUInt32LE(size, ENTRIES_SIZE);
    read(IPT_SO_GET_ENTRIES, all);
    return { info: info.bytes, entries: all.bytes.subarray(ENTRIES) };
  } finally {
    close(fd);
  }
}

function* entriesIn(entries: Buffer, family: IpFamily): Iterable<Buffer> {
  const { next, size } = ENTRY[family];
  for (let at = 0; at + size <= entries.length; ) {
    const end = at + Math.max(entries.readUInt16LE(at + next), size);
    yield entries.subarray(at, end);
    at = end;
  }
}

function hashOfEntries(entries: Buffer, family: IpFamily): string {
  const { counters } = ENTRY[family];
  for (const entry of entriesIn(entries, family)) entry.fill(0, counters, counters + COUNTERS_BYTES);
  return hash('sha1', entries, 'base64');
}
