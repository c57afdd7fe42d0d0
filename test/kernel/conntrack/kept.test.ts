import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { CT } from '../../../src/kernel/conntrack/attributes.ts';
import { deleteKeptEntries, probeKeptEntries } from '../../../src/kernel/conntrack/kept.ts';
import { KeptEntries } from '../../../src/kernel/conntrack/kept-entries.ts';
import { Memory } from '../../../src/sys/memory.ts';
import { encodeMessage, NetlinkSocket, nfgenmsg } from '../../../src/sys/netlink.ts';
import { ADDRESS_FAMILY, send } from '../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../src/sys/socket-address.ts';
import { owned } from '../../sys/descriptors.ts';

const MARK = 0x2000;
const NO_CONNECTIONS = { has: () => false };
const ADDRESSES = {
  IPv4: { node: '192.0.2.1', endpoint: '198.51.100.7', client: '203.0.113.9' },
  IPv6: { node: '2001:db8:1::1', endpoint: '2001:db8:2::7', client: '2001:db8:3::9' },
} as const;

const table = () => readFileSync('/proc/net/nf_conntrack', 'latin1').split('\n').filter(Boolean);

for (const family of ['IPv4', 'IPv6'] as const) {
  describe(family, () => {
    const { node, endpoint, client } = ADDRESSES[family];
    const name = (address: string, port: number) => encodeSocketAddress(address, port).words();

    test("UDP: an entry that an earlier process has left is replaced, also while another has the client's port", (t) => {
      const netfilter = new NetlinkSocket((fd) => owned(t, fd));
      assert.equal(netfilter.open(), 0);
      const entries = new KeptEntries(netfilter, family, 'UDP', MARK, NO_CONNECTIONS);
      const [to, from] = [name(endpoint, 53), name(client, 50_000)];
      for (const port of [40_000, 40_001, 40_001, 40_000]) assert.equal(entries.insert(name(node, port), to, from), 0);
      assert.equal(table().length, 2);
      for (const port of [40_000, 40_001]) entries.remove(name(node, port), to);
      assert.deepEqual(table(), []);
    });

    test('a refusal that was left unread is not taken for the answer to a later request', (t) => {
      let fd = -1;
      const netfilter = new NetlinkSocket((opened) => {
        fd = owned(t, opened);
      });
      assert.equal(netfilter.open(), 0);
      const entries = new KeptEntries(netfilter, family, 'TCP', MARK, NO_CONNECTIONS);
      const wrong = Memory.of(encodeMessage(CT.NEW, 0, [nfgenmsg(ADDRESS_FAMILY[family])]));
      const leaveRefusal = () => assert.equal(send(fd, wrong, 0, wrong.length), wrong.length);
      const [source, to, from] = [name(node, 40_000), name(endpoint, 80), name(client, 50_000)];
      leaveRefusal();
      assert.equal(entries.insert(source, to, from), 0);
      leaveRefusal();
      assert.equal(entries.has(source, to, from), true);
      leaveRefusal();
      assert.notEqual(entries.insertAnyPort(source, to, from), 0, 'there is such an entry');
      entries.remove(source, to);
      assert.deepEqual(table(), []);
    });

    test('this kernel can keep addresses, and the probe leaves nothing', () => {
      assert.equal(probeKeptEntries(family), undefined);
      assert.deepEqual(table(), []);
    });

    for (const protocol of ['TCP', 'UDP'] as const) {
      test(`${protocol}: a full table keeps entries without an answer, as it keeps all that are assured`, (t) => {
        const netfilter = new NetlinkSocket((fd) => owned(t, fd));
        assert.equal(netfilter.open(), 0);
        const entries = new KeptEntries(netfilter, family, protocol, MARK, NO_CONNECTIONS);
        const [source, to] = [name(node, 40_000), name(endpoint, 80)];
        for (const insert of ['insert', 'insertAnyPort'] as const) {
          assert.equal(entries[insert](source, to, name(client, 50_000)), 0);
          assert.match(table().join('\n'), / \[ASSURED\] mark=8192 /, insert);
          entries.remove(source, to);
        }
        assert.deepEqual(table(), []);
      });

      test(`${protocol}: an entry that is about to go does not keep the client's port from the next`, (t) => {
        const netfilter = new NetlinkSocket((fd) => owned(t, fd));
        assert.equal(netfilter.open(), 0);
        const entries = new KeptEntries(netfilter, family, protocol, MARK, NO_CONNECTIONS);
        const [to, from] = [name(endpoint, 80), name(client, 50_000)];
        for (const port of [40_000, 40_001]) {
          assert.equal(entries.insert(name(node, port), to, from), 0);
          assert.equal(table().length, 1);
          assert.match(table()[0] as string, / dport=50000 \[ASSURED\]/);
          entries.removeLater(name(node, port), to);
        }
        entries.removeAll();
        assert.deepEqual(table(), []);
      });

      test(`${protocol}: entries are deleted by their mark`, async (t) => {
        const netfilter = new NetlinkSocket((fd) => owned(t, fd));
        assert.equal(netfilter.open(), 0);
        const ours = new KeptEntries(netfilter, family, protocol, MARK, NO_CONNECTIONS);
        const others = new KeptEntries(netfilter, family, protocol, MARK + 1, NO_CONNECTIONS);
        assert.equal(others.insert(name(node, 40_000), name(endpoint, 80), name(client, 50_000)), 0);
        for (let i = 1; i <= 100; i++) {
          assert.equal(ours.insert(name(node, 40_000 + i), name(endpoint, 80), name(client, 50_000 + i)), 0);
        }
        assert.equal(await deleteKeptEntries(MARK), 100);
        assert.equal(table().length, 1);
        assert.match(table()[0] as string, / dport=50000 \[ASSURED\] mark=8193/);
        others.remove(name(node, 40_000), name(endpoint, 80));
        assert.deepEqual(table(), []);
      });
    }
  });
}
