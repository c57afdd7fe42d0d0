import { encodeMessage, nfgenmsg, visitAttributes } from '../../sys/netlink.ts';

/* What all messages of nf_tables have in common: uapi/linux/netfilter/nf_tables.h and nfnetlink.h. */

const NFNL_SUBSYS_NFTABLES = 10;
const NFNL_MSG_BATCH_BEGIN = 0x10;
const NFNL_MSG_BATCH_END = 0x11;

export const NFT_MSG = {
  DELTABLE: messageType(2),
  GETCHAIN: messageType(4),
  DELCHAIN: messageType(5),
  GETRULE: messageType(7),
  DELRULE: messageType(8),
  NEWSETELEM: messageType(12),
  GETSETELEM: messageType(13),
  DELSETELEM: messageType(14),
  GETGEN: messageType(16),
} as const;

/** The types of attributes, each within the attribute that its name begins with. */
export const NFTA = {
  TABLE_NAME: 1,
  CHAIN_TABLE: 1,
  CHAIN_NAME: 3,
  CHAIN_POLICY: 5,
  RULE_TABLE: 1,
  RULE_CHAIN: 2,
  RULE_HANDLE: 3,
  RULE_EXPRESSIONS: 4,
  EXPR_NAME: 1,
  EXPR_DATA: 2,
  IMMEDIATE_DATA: 2,
  LIST_ELEM: 1,
  SET_ELEM_LIST_TABLE: 1,
  SET_ELEM_LIST_SET: 2,
  SET_ELEM_LIST_ELEMENTS: 3,
  SET_ELEM_KEY: 1,
  SET_ELEM_DATA: 2,
  SET_ELEM_TIMEOUT: 4,
  SET_ELEM_EXPIRATION: 5,
  SET_ELEM_USERDATA: 6,
  DATA_VALUE: 1,
  DATA_VERDICT: 2,
  VERDICT_CODE: 1,
  VERDICT_CHAIN: 2,
  GEN_ID: 1,
} as const;
export const NFT_GOTO = -4;

function messageType(number: number): number {
  return (NFNL_SUBSYS_NFTABLES << 8) | number;
}

/** Changes that take effect all at once, or not at all. */
export function batch(messages: readonly Buffer[]): Buffer {
  const bound = (type: number) => encodeMessage(type, 0, [nfgenmsg(0, NFNL_SUBSYS_NFTABLES)]);
  return Buffer.concat([bound(NFNL_MSG_BATCH_BEGIN), ...messages, bound(NFNL_MSG_BATCH_END)]);
}

/** The contents of attributes by type; of several with the same type, the last. */
export function attributesIn(bytes: Buffer | undefined): ReadonlyMap<number, Buffer> {
  const contents = new Map<number, Buffer>();
  if (bytes !== undefined) {
    visitAttributes(bytes, 0, bytes.length, (type, begin, end) => contents.set(type, bytes.subarray(begin, end)));
  }
  return contents;
}

export function cString(text: string): Buffer {
  return Buffer.from(`${text}\0`, 'latin1');
}

/** The text before the first zero byte. */
export function textOf(bytes: Buffer | undefined): string {
  const end = bytes?.indexOf(0) ?? -1;
  return bytes?.toString('latin1', 0, end < 0 ? undefined : end) ?? '';
}
