import assert from 'node:assert/strict';
import { isIP } from 'node:net';
import { proxyHeader } from '../../../src/engine/proxy-header.ts';
import { readEntry } from '../../../src/kernel/conntrack/ctnetlink.ts';
import { KeptEntries } from '../../../src/kernel/conntrack/kept-entries.ts';
import type { Endpoint } from '../../../src/model/endpoint.ts';
import { Memory } from '../../../src/sys/memory.ts';
import { CONTENT_BEGIN, type NetlinkSocket, visitMessages } from '../../../src/sys/netlink.ts';
import { encodeSocketAddress } from '../../../src/sys/socket-address.ts';
import { address } from '../../support/model.ts';
import { mutateOne } from '../mutate.ts';
import type { OpenTarget } from '../target.ts';

/* Answers of connection tracking → entries, and the destination that the header of the PROXY protocol gives. */

const MARK = 0x2000;
const CLIENT = {
  IPv4: { address: address('10.244.1.20'), port: 40_000 },
  IPv6: { address: address('fd00::20'), port: 9 },
};
const NODE = {
  IPv4: { address: address('192.168.50.10'), port: 4_000 },
  IPv6: { address: address('fd00::1'), port: 4 },
};
const FAMILIES = ['IPv4', 'IPv6'] as const;
const PROTOCOLS = ['TCP', 'UDP'] as const;

const wordsOf = ({ address: ip, port }: Endpoint) => encodeSocketAddress(ip, port).words();

/** A kernel that always gives the same answer, and refuses what is there already. */
class Answering {
  readonly answer = new Memory(4_096);
  readonly asked: Buffer[] = [];
  #length = 0;

  set(bytes: Buffer): void {
    this.answer.bytes.fill(0);
    this.#length = bytes.copy(this.answer.bytes);
  }

  open(): number {
    return 0;
  }

  change(_type: number, request: Memory): number {
    this.asked.push(Buffer.from(request.bytes));
    return -17;
  }

  get(): number {
    return this.#length;
  }
}

export const open: OpenTarget = () => {
  const kernel = new Answering();
  const all = FAMILIES.flatMap((family) =>
    PROTOCOLS.map((protocol) => ({
      family,
      entries: new KeptEntries(kernel as unknown as NetlinkSocket, family, protocol, MARK, { has: () => false }),
    })),
  );
  // A request to make an entry has the attributes of an answer about one.
  for (const { family, entries } of all)
    entries.insertAnyPort(wordsOf(NODE[family]), wordsOf(NODE[family]), wordsOf(CLIENT[family]));
  return {
    seeds: kernel.asked.splice(0),
    make: mutateOne,

    run(input) {
      unlessRefused(() =>
        visitMessages(input, input.length, (_, begin, end) => {
          for (const protocol of ['TCP', 'UDP'] as const) {
            const entry = readEntry(input, begin + CONTENT_BEGIN - 16, end, protocol);
            if (entry === undefined) continue;
            for (const each of [entry.destination(), entry.replySource()]) assert.ok(isIP(each), each);
            for (const part of entry.identity) assert.ok(part.length > 0 && part.length <= input.length);
          }
        }),
      );
      kernel.set(input);
      for (const { family, entries } of all) {
        const [client, local] = [CLIENT[family], NODE[family]];
        unlessRefused(() => {
          const destination = entries.destination(wordsOf(local), wordsOf(client));
          if (destination !== undefined) checkHeader(client, { address: destination, port: 80 });
          entries.has(wordsOf(local), wordsOf(local), wordsOf(client));
          assert.ok(entries.insert(wordsOf(local), wordsOf(local), wordsOf(client)) <= 0);
        });
      }
      kernel.asked.length = 0;
    },
  };
};

/** What is no sequence of attributes is a RangeError. */
function unlessRefused(read: () => void): void {
  try {
    read();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
}

function checkHeader(client: Endpoint, destination: Endpoint): void {
  const [, family, from = '', to = ''] =
    /^PROXY TCP([46]) (\S+) (\S+) \d{1,5} 80\r\n$/.exec(proxyHeader('v1', client, destination).toString()) ?? [];
  assert.deepEqual([isIP(from), isIP(to)], [Number(family), Number(family)], `${from} ${to}`);
  const v2 = proxyHeader('v2', client, destination);
  assert.equal(v2.length, 16 + v2.readUInt16BE(14));
  assert.ok([12, 36].includes(v2.readUInt16BE(14)), 'addresses of one family');
}
