import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, describe, test } from 'node:test';
import type { BackEndOptions } from '../../../src/capture/method.ts';
import { createNft } from '../../../src/capture/nft/nft-method.ts';
import { createExec } from '../../../src/kernel/iptables/exec.ts';
import * as tables from '../../../src/kernel/nft/nf-tables.ts';
import { createNftKernel } from '../../../src/kernel/nft/nft.ts';
import type { Fate, FollowedPacket } from '../../../src/model/capture.ts';
import { systemClock as clock } from '../../../src/util/system-clock.ts';
import { nodeFacts } from '../../capture/fixtures.ts';
import { claims } from '../../capture/nft/fixtures.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { address, cidr, ENDPOINT } from '../../support/model.ts';

const NODE = '192.168.50.10';
const METRICS: BackEndOptions['metrics'] = {
  changesQueued() {},
  syncDone() {},
  restoreFailed() {},
  rulesInstalled() {},
};
const PORTS: BackEndOptions['ports'] = { retiredAfter: () => [], found() {} };

const nft = createNft({
  kernel: createNftKernel(createExec({ clock }), tables),
  firewall: { letIn: async () => {}, isIntact: async () => true, remove: async () => {} },
  clock,
  log: new RecordingLog(),
  isLocal: (to) => to === NODE || to.startsWith('127.'),
});

function packet(from: string, to: string, fields: Partial<FollowedPacket> = {}): FollowedPacket {
  const [, host = '', port = '', protocol] = /^(.*):(\d+)\/(TCP|UDP)$/.exec(to) ?? [];
  return {
    protocol: protocol as FollowedPacket['protocol'],
    source: address(from === 'host' ? NODE : from),
    address: address(host),
    port: Number(port),
    isOwn: from === 'host',
    inInterface: from === 'host' ? '' : 'eth0',
    ...fields,
  };
}

const web = { kind: 'listener', name: 'shop/web' } as const;

describe('what nft tables do with a packet', () => {
  before(async () => {
    const pods = [{ source: cidr('10.244.0.0/16') }, { inInterface: { name: 'cali', isPrefix: true } }];
    const node = nodeFacts({ pods, nodePortCidrs: ['192.168.50.0/24'] });
    const backEnd = nft.open({ family: 'IPv4', connectionMark: 0x2000, metrics: METRICS, ports: PORTS });
    backEnd.begin(node);
    backEnd.dropUnassigned([cidr('10.97.0.0/16'), cidr('10.97.1.0/24')]);
    const some = [
      claims(
        {
          nodePort: 30_080,
          loadBalancerIPs: [address('203.0.113.1')],
          loadBalancerSourceRanges: [cidr('192.0.2.0/24')],
          local: { endpoints: [ENDPOINT], internal: false, external: true },
          namedEndpoints: [address('192.168.50.11')],
        },
        node,
      ),
      claims({ name: 'shop/empty', clusterIPs: [address('10.96.0.2')], endpoints: [] }, node, 41_000),
    ];
    for (const claim of some.flat()) backEnd.replace(undefined, claim);
    await backEnd.write({ verify: false });
  });

  const rows: readonly (readonly [packet: FollowedPacket, fate: Fate, rules: readonly string[]])[] = [
    [packet('192.0.2.9', '10.96.0.1:80/TCP'), { ...web, localPort: 40_001 }, ['portals-in @portals']],
    [packet('host', '10.96.0.1:80/TCP'), { ...web, localPort: 40_001 }, ['portals-out @portals']],
    [packet('192.0.2.9', '10.96.0.1:80/UDP'), { kind: 'passes' }, []],
    [packet('192.0.2.9', '10.97.0.1:80/UDP'), { kind: 'unassigned' }, ['nodeports-in daddr 10.97.0.0/16']],
    [packet('host', '10.97.0.1:80/TCP'), { kind: 'unassigned' }, ['nodeports-out daddr 10.97.0.0/16']],
    [packet('192.0.2.9', '10.96.0.2:80/TCP'), { kind: 'reject', name: 'shop/empty' }, ['portals-in @portals']],
    [
      packet('192.0.2.9', '203.0.113.1:80/TCP'),
      { ...web, localPort: 40_002 },
      ['portals-in @conditions', 'from ip saddr 192.0.2.0/24', 'to-local @portals-local'],
    ],
    [
      packet('198.51.100.1', '203.0.113.1:80/TCP'),
      { kind: 'drop', name: 'shop/web' },
      ['portals-in @conditions', 'from goto to-drop'],
    ],
    [
      packet('host', '203.0.113.1:80/TCP'),
      { kind: 'drop', name: 'shop/web' },
      ['portals-out @conditions-out', 'from goto to-drop'],
    ],
    [
      packet('192.0.2.9', `${NODE}:30080/TCP`),
      { ...web, localPort: 40_002 },
      ['nodeports-in @nodeport-conditions', 'from goto to-local', 'to-local @nodeports-local'],
    ],
    [
      packet('192.0.2.9', `${NODE}:30080/TCP`, { inInterface: 'cali7' }),
      { ...web, localPort: 40_001 },
      ['nodeports-in @nodeport-conditions', 'from iifname "cali*"', 'to-portal @nodeports'],
    ],
    [packet('host', `${NODE}:30080/TCP`), { ...web, localPort: 40_001 }, ['nodeports-out @nodeports']],
    [packet('host', '127.0.0.1:30080/TCP'), { kind: 'passes' }, []],
    [packet('192.0.2.9', `${NODE}:40001/TCP`), { kind: 'closed', name: 'shop/web' }, ['nodeports-in @local-ports']],
    [packet('host', `${NODE}:40001/TCP`), { kind: 'passes' }, []],
  ];
  for (const [from, fate, rules] of rows) {
    test(`from ${from.isOwn ? 'the node' : from.source} to ${from.address}:${from.port}/${from.protocol}`, async () => {
      const path = await nft.follow('IPv4', from);
      assert.deepEqual(path.nat, fate);
      assert.match(path.caveat ?? '', /^Rules of other programs are not looked at/);
      const shown = path.rules.map(({ chain, rule }) => `${chain.replace(/^from-.*/, 'from')} ${rule}`);
      assert.equal(shown.length, rules.length, shown.join('\n'));
      for (const [index, text] of rules.entries()) assert.ok(shown[index]?.startsWith(text), `${shown[index]}`);
    });
  }

  test('where a condition asks for an interface that is not known, that is said', async () => {
    const { nat } = await nft.follow('IPv4', packet('192.0.2.9', `${NODE}:30080/TCP`, { inInterface: undefined }));
    assert.equal(nat.kind, 'foreign');
  });

  test('without the table, that is said', async () => {
    execFileSync('nft', ['flush', 'ruleset']);
    const { nat } = await nft.follow('IPv4', packet('192.0.2.9', '10.96.0.1:80/TCP'));
    assert.deepEqual(nat, {
      kind: 'passes',
      missing: 'the nft table "ip kube-userspace-proxy" has no chain portals-in',
    });
  });
});
