import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { claimName } from '../../../src/capture/claims.ts';
import { parseDump } from '../../../src/capture/iptables/dump.ts';
import {
  installedHolders,
  installedPorts,
  livePorts,
  retiredPorts,
  retiredSpec,
} from '../../../src/capture/iptables/installed.ts';
import { unsafeReason } from '../../../src/capture/iptables/rule.ts';
import type { InstalledPort } from '../../../src/model/capture.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { destinations } from '../../../src/model/service-port.ts';
import { address, cidr, ENDPOINT } from '../../support/model.ts';
import { IPV6_NODE, nodeFacts, owned, portal, renderPortals } from '../fixtures.ts';
import { readGolden } from './golden.ts';

const WEB: InstalledPort = { name: 'shop/web:http', set: 'own', protocol: 'TCP', localPort: 40_001 };
const DNS: InstalledPort = { name: 'kube-system/dns', set: 'own', protocol: 'UDP', localPort: 40_002 };
const NOW = 1_700_000_000_000;

describe('local ports in rules', () => {
  test('are read from every form of our rules', () => {
    const portals = [
      portal({
        name: WEB.name,
        localPort: WEB.localPort,
        clusterIPs: ['10.96.0.1', 'fd00:96::1'],
        externalIPs: ['203.0.113.7', '2001:db8::7'],
        nodePort: 30_080,
      }),
    ];
    for (const node of [
      nodeFacts(),
      nodeFacts({ bindAddress: '10.0.0.1', nodePortCidrs: ['10.0.0.0/8'] }),
      IPV6_NODE,
      { ...IPV6_NODE, bindAddress: address('fd00::1'), hostAddress: address('fd00::1') },
    ]) {
      const nat = owned(renderPortals(portals, node).rules).filter((rule) => rule.table === 'nat');
      assert.ok(nat.length > 5);
      for (const rule of nat) assert.deepEqual(livePorts([rule.spec]), [WEB]);
      assert.deepEqual(livePorts(nat.map((rule) => rule.spec)), [WEB]);
    }
  });

  test('have the name of their endpoint set, refused or not', () => {
    const local = { endpoints: [ENDPOINT], internal: true, external: true };
    const both: readonly InstalledPort[] = [WEB, { ...WEB, set: 'local', localPort: 40_003 }];
    for (const fields of [
      { local },
      { endpoints: [], local: { ...local, endpoints: [], onlyElsewhere: true } },
    ] as const) {
      const each = portal({
        ...fields,
        name: WEB.name,
        localPort: WEB.localPort,
        localSetPort: 40_003,
        clusterIPs: ['10.96.0.1'],
        loadBalancerIPs: ['203.0.113.7'],
        loadBalancerSourceRanges: ['192.0.2.0/24'],
        nodePort: 30_080,
      });
      const pods = [{ source: cidr('10.244.0.0/16') }, { inInterface: { name: 'cali', isPrefix: true } }];
      const { rules } = renderPortals([each], nodeFacts({ pods }));
      const nat = owned(rules).filter((rule) => rule.table === 'nat');
      const read = livePorts(nat.map((rule) => rule.spec)).toSorted((a, b) => a.localPort - b.localPort);
      assert.deepEqual(read, both);
      // Only rules that lead to a listener or close one count, not rules that reject or drop.
      for (const { spec } of nat)
        assert.ok(livePorts([spec]).every((port) => both.some(({ localPort }) => localPort === port.localPort)));
    }
  });

  test('are read from rules of kube-proxy and of versions with REDIRECT', () => {
    const match = `-p tcp -m comment --comment "${WEB.name}" -m tcp --dport 80`;
    for (const spec of [
      `-d 10.96.0.1/32 ${match} -j REDIRECT --to-ports 40001`,
      `-d 203.0.113.7/32 ${match} -m physdev ! --physdev-is-in -j REDIRECT --to-ports 40001`,
      `-d 203.0.113.7/32 ${match} -m addrtype --dst-type LOCAL -j DNAT --to-destination 192.168.50.10:40001`,
      `-p tcp -m comment --comment "${WEB.name} proxy port" -m tcp --dport 40001 -j REDIRECT --to-ports 1`,
    ]) {
      assert.deepEqual(livePorts([spec]), [WEB], spec);
    }
  });

  test('are not read from rules of other programs', () => {
    const match = '-d 10.96.0.1/32 -p tcp -m comment --comment "shop/web" -m tcp --dport 80';
    const spec = `${match} -j REDIRECT --to-ports 40001`;
    assert.equal(livePorts([spec]).length, 1);
    for (const foreign of [
      spec.replace('shop/web', 'shop'),
      spec.replace('shop/web', 'Shop/web'),
      spec.replace('shop/web', 'shop/web/more'),
      spec.replace('shop/web', 'shop/web is it'),
      spec.replace('shop/web', '__proto__/web'),
      spec.replace('shop/web', 'shop/web\\" -j ACCEPT'),
      spec.replace('"shop/web"', 'shop/web'),
      spec.replace('shop/web', 'shop/web locals'),
      spec.replace('shop/web', 'shop/web proxy port'),
      spec.replace('40001', '0'),
      spec.replace('40001', '1'),
      spec.replace('40001', '9'),
      spec.replace('40001', '65536'),
      spec.replace('40001', '99999999999999999999'),
      spec.replace('40001', '40001-40010'),
      spec.replace('40001', '40001 --random'),
      spec.replace('-p tcp', '-p udp'),
      spec.replace('-p tcp', '-s 10.0.0.1/32 -p tcp'),
      spec.replace('--dport 80', '--dport 80 -m statistic --mode random --probability 0.5'),
      spec.replace('-j REDIRECT --to-ports 40001', '-j RETURN'),
      `${spec}\n`,
    ]) {
      assert.deepEqual(livePorts([foreign]), [], foreign);
    }
  });

  test('are listed once each, from our chains only, retired ones only if no Service uses them', () => {
    const live = ({ protocol, name, localPort }: InstalledPort) => {
      const proto = protocol.toLowerCase();
      return `-p ${proto} -m comment --comment "${name}" -m ${proto} --dport 80 -j REDIRECT --to-ports ${localPort}`;
    };
    const nat = parseDump(
      [
        '*nat',
        `-A KUBE-PORTALS-CONTAINER ${live(WEB)}`,
        `-A KUBE-USP-PC-0a60 ${live(WEB)}`,
        `-A KUBE-USP-PC-0a60 ${live({ ...WEB, name: 'shop/late' })}`,
        `-A SOMEONES ${live({ ...WEB, localPort: 1 })}`,
        `-A KUBE-USERSPACE-RETIRED ${retiredSpec(WEB, NOW)}`,
        `-A KUBE-USERSPACE-RETIRED ${retiredSpec({ ...DNS, name: 'old/name' }, NOW - 200_000)}`,
        `-A KUBE-USERSPACE-RETIRED ${retiredSpec(DNS, NOW - 100_000)}`,
        'COMMIT\n',
      ].join('\n'),
    ).get('nat');
    assert.deepEqual(installedPorts(nat ?? new Map(), NOW), [WEB, { ...DNS, retiredForMs: 100_000 }]);
  });
});

test('who has an address or a NodePort is read from the rules of a run, and from those of kube-proxy', () => {
  const { portals } = readGolden('0.0.0.0');
  const expected = new Map(
    portals.flatMap(({ servicePort }) =>
      destinations(servicePort).map((to) => [claimName(to, servicePort.protocol), servicePort.name] as const),
    ),
  );
  const { rules } = renderPortals(portals, nodeFacts());
  const ours = Map.groupBy(rules, ({ chain }) => chain);
  const nat = new Map([...ours].map(([chain, of]) => [chain, of.map(({ spec }) => spec)]));
  assert.deepEqual(new Map([...installedHolders(nat)].sort()), new Map([...expected].sort()));
  const file = new URL('../../golden/kube-proxy-userspace-bind-0.0.0.0.rules', import.meta.url);
  const upstream = parseDump(readFileSync(file, 'utf8').replace(/<proxy port (\d+)>/g, '4$1')).get('nat');
  const found = new Map(installedHolders(upstream ?? new Map()));
  // The API server made this Service; the test does not know it.
  for (const [what, name] of found) if (name === 'default/kubernetes:https') found.delete(what);
  assert.deepEqual(new Map([...found].sort()), new Map([...expected].sort()));
});

describe('retired ports in rules', () => {
  test('are read as they were written, in whole seconds, the oldest first', () => {
    const local: InstalledPort = { ...WEB, set: 'local', localPort: 40_003 };
    const specs = [retiredSpec(WEB, NOW - 20_400), retiredSpec(local, NOW - 2_000), retiredSpec(DNS, NOW - 1_000)];
    for (const spec of specs) assert.equal(unsafeReason(spec), undefined);
    assert.deepEqual(retiredPorts(specs, NOW), [
      { ...WEB, retiredForMs: 21_000 },
      { ...local, retiredForMs: 2_000 },
      { ...DNS, retiredForMs: 1_000 },
    ]);
  });

  test('are forgotten after five minutes, and never older than now', () => {
    assert.equal(retiredPorts([retiredSpec(WEB, NOW - 299_000)], NOW).length, 1);
    assert.deepEqual(retiredPorts([retiredSpec(WEB, NOW - 300_000)], NOW), []);
    assert.deepEqual(retiredPorts([retiredSpec(WEB, NOW + 3_600_000)], NOW), [{ ...WEB, retiredForMs: 0 }]);
  });

  test('are not read from anything else', () => {
    const spec = retiredSpec(WEB, NOW);
    for (const foreign of [
      spec.replace('retired', 'tired'),
      spec.replace('shop/web:http', 'shop'),
      spec.replace(' at 1', ' at -1'),
      spec.replace('40001', '0'),
      spec.replace('-j RETURN', '-j ACCEPT'),
      `${spec} x`,
    ]) {
      assert.deepEqual(retiredPorts([foreign], NOW), [], foreign);
    }
    const long: InstalledPort = {
      ...WEB,
      set: 'local',
      name: `${'n'.repeat(63)}/${'s'.repeat(63)}:${'p'.repeat(15)}` as ServicePortName,
    };
    assert.equal(unsafeReason(retiredSpec(long, NOW)), undefined);
    assert.deepEqual(retiredPorts([retiredSpec(long, NOW)], NOW), [{ ...long, retiredForMs: 0 }]);
  });
});
