import { type Element, type SetName, shapeOf } from '../../capture/nft/element.ts';
import type { ElementChange } from '../../capture/nft/nft-kernel.ts';
import { TABLE } from '../../capture/nft/table.ts';
import type { Address, IpFamily } from '../../model/address.ts';
import {
  askNetfilter,
  changeNetfilter,
  dumpNetfilter,
  encodeAttribute,
  encodeMessage,
  encodeNested,
  encodeWord,
  NLA_F_NESTED,
  NLM_F_CREATE,
  NLM_F_DUMP,
  nfgenmsg,
  visitAttributes,
} from '../../sys/netlink.ts';
import { ADDRESS_FAMILY } from '../../sys/socket.ts';
import { ENOENT, SysError } from '../../sys/sys-error.ts';
import { ipBytes, ipText } from '../../util/ip-bytes.ts';
import { attributesIn, batch, cString, NFT_GOTO, NFT_MSG, NFTA, textOf } from './messages.ts';

export { nftGeneration } from '../iptables/kernel-tables.ts';

/*
 * Elements of sets, without the program `nft`: it takes 860 ms to print 30,000 of them, and releases of it crash over
 * sets that newer ones have made (kubernetes/kubernetes#136786). Messages: uapi/linux/netfilter/nf_tables.h.
 */

/** Of libnftnl (`NFTNL_UDATA_SET_ELEM_COMMENT`): what `nft` prints as the comment. */
const UDATA_COMMENT = 0;
/** Of our own, which `nft` passes over: the rest of a comment that is too long for it. */
const UDATA_REST = 100;
/** `NFTNL_UDATA_COMMENT_MAXLEN`: nft reads no longer one, so a ruleset that was printed could not be loaded again. */
const MAX_COMMENT = 127;

const PROTOCOL_NUMBERS = { TCP: 6, UDP: 17 } as const;

/** A set of a batch is at most this large, because a refusal has all of it, and a buffer has to hold that. */
const MAX_MESSAGE_BYTES = 16_384;

/** Rejects with a `SysError`. */
export async function changeElements(family: IpFamily, { deleted, added }: ElementChange): Promise<void> {
  const messages = [
    ...elementMessages(family, deleted, (element) => encodeElement(element, false), NFT_MSG.DELSETELEM, 0),
    ...elementMessages(family, added, (element) => encodeElement(element, true), NFT_MSG.NEWSETELEM, NLM_F_CREATE),
  ];
  if (messages.length > 0) await changeNetfilter(batch(messages));
}

/** `undefined` where there is no such set. Rejects with a `SysError`. */
export async function readElements(family: IpFamily, set: SetName): Promise<readonly Element[] | undefined> {
  const elements: Element[] = [];
  const request = encodeMessage(NFT_MSG.GETSETELEM, NLM_F_DUMP, [nfgenmsg(ADDRESS_FAMILY[family]), ...setName(set)]);
  return orAbsent(async () => {
    await dumpNetfilter(request, (bytes, begin, end) => collectElements(set, bytes.subarray(begin, end), elements));
    return elements;
  });
}

/** The element with the key of this one. Rejects with a `SysError`. */
export async function readElement(family: IpFamily, key: Element): Promise<Element | undefined> {
  const elements: Element[] = [];
  const [request] = elementMessages(family, [key], (element) => encodeElement(element, false), NFT_MSG.GETSETELEM, 0);
  return orAbsent(async () => {
    askNetfilter(request as Buffer, {
      visit: (bytes, begin, end) => collectElements(key.set, bytes.subarray(begin, end), elements),
    });
    return elements[0];
  });
}

/** The handles of the rules in each chain of our table. Rejects with a `SysError`. */
export async function readRules(family: IpFamily): Promise<ReadonlyMap<string, string>> {
  const chains = new Map<string, string>();
  const request = encodeMessage(NFT_MSG.GETRULE, NLM_F_DUMP, [
    nfgenmsg(ADDRESS_FAMILY[family]),
    encodeAttribute(NFTA.RULE_TABLE, cString(TABLE)),
  ]);
  await dumpNetfilter(request, (bytes, begin, end) => {
    const rule = attributesIn(bytes.subarray(begin, end));
    if (textOf(rule.get(NFTA.RULE_TABLE)) !== TABLE) return;
    const chain = textOf(rule.get(NFTA.RULE_CHAIN));
    chains.set(chain, `${chains.get(chain) ?? ''} ${rule.get(NFTA.RULE_HANDLE)?.readBigUInt64BE()}`);
  });
  return chains;
}

/** Resolves with whether it was there. Rejects with a `SysError`. */
export async function deleteNftTable(family: IpFamily, table: string): Promise<boolean> {
  const deletion = encodeMessage(NFT_MSG.DELTABLE, 0, [
    nfgenmsg(ADDRESS_FAMILY[family]),
    encodeAttribute(NFTA.TABLE_NAME, cString(table)),
  ]);
  return (await orAbsent(() => changeNetfilter(batch([deletion])).then(() => true))) ?? false;
}

async function orAbsent<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof SysError && error.errno === ENOENT) return undefined;
    throw error;
  }
}

/** Elements of one set that follow each other share a message. */
function elementMessages(
  family: IpFamily,
  elements: readonly Element[],
  encode: (element: Element) => Buffer,
  type: number,
  flags: number,
): readonly Buffer[] {
  const messages: Buffer[] = [];
  let [set, list, bytes]: [SetName | undefined, Buffer[], number] = [undefined, [], 0];
  const finish = () => {
    if (set === undefined || list.length === 0) return;
    const content = [
      nfgenmsg(ADDRESS_FAMILY[family]),
      ...setName(set),
      encodeNested(NFTA.SET_ELEM_LIST_ELEMENTS, list),
    ];
    messages.push(encodeMessage(type, flags, content));
    [list, bytes] = [[], 0];
  };
  for (const element of elements) {
    if (element.set !== set || bytes > MAX_MESSAGE_BYTES) finish();
    set = element.set;
    const encoded = encode(element);
    list.push(encoded);
    bytes += encoded.length;
  }
  finish();
  return messages;
}

function setName(set: SetName): readonly Buffer[] {
  return [
    encodeAttribute(NFTA.SET_ELEM_LIST_TABLE, cString(TABLE)),
    encodeAttribute(NFTA.SET_ELEM_LIST_SET, cString(set)),
  ];
}

/** To delete or find one, its key is enough. */
function encodeElement(element: Element, isWhole: boolean): Buffer {
  const key = encodeKey(element);
  if (!isWhole) return encodeNested(NFTA.LIST_ELEM, [key]);
  const { data, leftMs, comment } = element;
  const parts = [key, encodeAttribute(NFTA.SET_ELEM_USERDATA, encodeComment(comment))];
  if (data !== undefined) parts.push(typeof data === 'number' ? encodePort(data) : encodeVerdict(data));
  if (leftMs !== undefined) parts.push(encodeAttribute(NFTA.SET_ELEM_TIMEOUT, milliseconds(leftMs)));
  return encodeNested(NFTA.LIST_ELEM, parts);
}

/** Two headers of attributes, and the parts, each padded to four bytes. */
function encodeKey({ set, address, protocol, port }: Element): Buffer {
  const host = address === undefined || !shapeOf(set).hasAddress ? [] : ipBytes(address);
  const bytes = Buffer.alloc(16 + host.length);
  writeHeads(bytes, NFTA.SET_ELEM_KEY, NFTA.DATA_VALUE);
  bytes.set(host, 8);
  bytes[8 + host.length] = PROTOCOL_NUMBERS[protocol];
  bytes.writeUInt16BE(port, 12 + host.length);
  return bytes;
}

function encodePort(port: number): Buffer {
  const bytes = Buffer.alloc(12);
  writeHeads(bytes, NFTA.SET_ELEM_DATA, NFTA.DATA_VALUE);
  // Without the padding.
  bytes.writeUInt16LE(6, 4);
  bytes.writeUInt16BE(port, 8);
  return bytes;
}

/** An attribute that fills the buffer, and another one that fills it. */
function writeHeads(bytes: Buffer, outer: number, inner: number): void {
  bytes.writeUInt16LE(bytes.length, 0);
  bytes.writeUInt16LE(NLA_F_NESTED | outer, 2);
  bytes.writeUInt16LE(bytes.length - 4, 4);
  bytes.writeUInt16LE(inner, 6);
}

function encodeVerdict(chain: string): Buffer {
  const verdict = encodeNested(NFTA.DATA_VERDICT, [
    encodeWord(NFTA.VERDICT_CODE, NFT_GOTO >>> 0),
    encodeAttribute(NFTA.VERDICT_CHAIN, cString(chain)),
  ]);
  return encodeNested(NFTA.SET_ELEM_DATA, [verdict]);
}

/** Records of a type, a length, and a text with its end. */
function encodeComment(comment: string): Buffer {
  const [shown, rest] = [comment.slice(0, MAX_COMMENT), comment.slice(MAX_COMMENT)];
  const bytes = Buffer.alloc(shown.length + 3 + (rest === '' ? 0 : rest.length + 3));
  const write = (at: number, type: number, text: string) => {
    bytes[at] = type;
    bytes[at + 1] = text.length + 1;
    bytes.write(text, at + 2, 'latin1');
  };
  write(0, UDATA_COMMENT, shown);
  if (rest !== '') write(shown.length + 3, UDATA_REST, rest);
  return bytes;
}

function milliseconds(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(Math.max(1, Math.round(value))));
  return bytes;
}

function collectElements(set: SetName, list: Buffer, into: Element[]): void {
  const elements = attributesIn(list).get(NFTA.SET_ELEM_LIST_ELEMENTS);
  if (elements === undefined) return;
  visitAttributes(elements, 0, elements.length, (type, begin, end) => {
    const element = type === NFTA.LIST_ELEM ? decodeElement(set, elements, begin, end) : undefined;
    if (element !== undefined) into.push(element);
  });
}

/** Of what another program has added, an element that is none of ours is `undefined`. */
function decodeElement(set: SetName, bytes: Buffer, begin: number, end: number): Element | undefined {
  let [address, protocol, port]: [string | undefined, 'TCP' | 'UDP', number] = [undefined, 'TCP', 0];
  let data: number | string | undefined;
  let [comment, leftMs]: [string, number | undefined] = ['', undefined];
  visitAttributes(bytes, begin, end, (type, from, to) => {
    if (type === NFTA.SET_ELEM_KEY) {
      // Behind the header of its value.
      const [first, last] = [from + 4, to - 8];
      if (last < first) return;
      if (last > first && shapeOf(set).hasAddress) address = ipText(bytes.subarray(first, last));
      protocol = bytes[last] === PROTOCOL_NUMBERS.TCP ? 'TCP' : 'UDP';
      port = bytes.readUInt16BE(last + 4);
    } else if (type === NFTA.SET_ELEM_DATA) data = decodeData(bytes, from, to);
    else if (type === NFTA.SET_ELEM_USERDATA) comment = decodeComment(bytes.subarray(from, to));
    else if (type === NFTA.SET_ELEM_EXPIRATION) leftMs = Number(bytes.readBigUInt64BE(from));
  });
  if (port === 0) return undefined;
  return { set, address: address as Address | undefined, protocol, port, data, comment, leftMs };
}

function decodeData(bytes: Buffer, begin: number, end: number): number | string | undefined {
  let data: number | string | undefined;
  visitAttributes(bytes, begin, end, (type, from, to) => {
    if (type === NFTA.DATA_VALUE && to - from >= 2) data = bytes.readUInt16BE(from);
    else if (type === NFTA.DATA_VERDICT) {
      data = textOf(attributesIn(bytes.subarray(from, to)).get(NFTA.VERDICT_CHAIN));
    }
  });
  return data;
}

function decodeComment(bytes: Buffer): string {
  let [comment, rest] = ['', ''];
  for (let at = 0; at + 2 <= bytes.length; at += 2 + (bytes[at + 1] ?? 0)) {
    const text = () => textOf(bytes.subarray(at + 2, at + 2 + (bytes[at + 1] ?? 0)));
    if (bytes[at] === UDATA_COMMENT) comment = text();
    else if (bytes[at] === UDATA_REST) rest = text();
  }
  return comment + rest;
}
