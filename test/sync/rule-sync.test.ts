import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { IptablesError, type Table } from '../../src/contracts/iptables.ts';
import type { Address, IpFamily } from '../../src/model/address.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import type { Portal } from '../../src/rules/claims.ts';
import { parseDump } from '../../src/rules/dump.ts';
import { RuleSync } from '../../src/sync/rule-sync.ts';
import { FakeIptables } from '../fakes/fake-iptables.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address as ip } from '../rules/fixtures.ts';

function portal(
  name: ServicePortName,
  clusterIP: string,
  localPort: number,
  overrides: Partial<ServicePort> = {},
): Portal {
  const servicePort: ServicePort = {
    name,
    protocol: 'TCP',
    port: 80,
    nodePort: 0,
    clusterIPs: [ip(clusterIP)],
    externalIPs: [],
    loadBalancerIPs: [],
    affinity: { type: 'None' },
    endpoints: [],
    ...overrides,
  };
  return { servicePort, localPort };
}

/** Counts the looks at the "kernel", and may be out of order. */
class FaultyIptables extends FakeIptables {
  fault: IptablesError | undefined;
  saves = 0;

  override async save(family: IpFamily, table: Table): Promise<string> {
    this.saves++;
    if (this.fault !== undefined) throw this.fault;
    return super.save(family, table);
  }
}

function harness() {
  const iptables = new FaultyIptables();
  const log = new RecordingLog();
  const counts = { restoreFailures: 0 };
  const host = { address: ip('192.168.50.10') as Address | undefined };
  const rules = new RuleSync({
    iptables,
    log,
    metrics: {
      changesQueued: () => {},
      syncDone: () => {},
      changed: () => {},
      restoreFailed: () => {
        counts.restoreFailures++;
      },
    },
    family: 'IPv4',
    bindAddress: ip('0.0.0.0'),
    nodePortCidrs: [],
    hostAddress: () => host.address,
  });
  const chain = async (name: string) =>
    parseDump(await iptables.save('IPv4', 'nat'))
      .get('nat')
      ?.get(name);
  const owners = async () =>
    (await chain('KUBE-PORTALS-CONTAINER'))?.map((spec) => /--comment "([^"]*)"/.exec(spec)?.[1]);
  return { iptables, log, counts, host, rules, chain, owners };
}

const WEB = portal('shop/web', '10.96.0.1', 4001, { nodePort: 30_080 });
const DNS = portal('kube-system/dns', '10.96.0.10', 4002, { externalIPs: [ip('192.0.2.7')] });

describe('a rule sync', () => {
  test('installs the rules, and looks at the kernel no more while nothing changes', async () => {
    const h = harness();
    await h.rules.sync([WEB, DNS], { verify: false });
    assert.deepEqual(await h.owners(), ['kube-system/dns', 'shop/web', 'kube-system/dns', 'kube-system/dns']);
    const { saves } = h.iptables;
    const restores = h.iptables.restored.length;
    await h.rules.sync([DNS, WEB], { verify: false });
    assert.deepEqual([h.iptables.saves, h.iptables.restored.length], [saves, restores]);
  });

  test('that verifies reads the kernel, writes nothing when it agrees, and repairs what was removed', async () => {
    const h = harness();
    await h.rules.sync([WEB], { verify: false });
    const restores = h.iptables.restored.length;
    await h.rules.sync([WEB], { verify: true });
    assert.equal(h.iptables.restored.length, restores);
    await h.iptables.restore('IPv4', '*nat\n:KUBE-PORTALS-CONTAINER - [0:0]\nCOMMIT\n');
    await h.rules.sync([WEB], { verify: true });
    assert.deepEqual(await h.owners(), ['shop/web']);
  });

  test('leaves out only the rules that the kernel refuses, names them once, and offers them again', async () => {
    const h = harness();
    h.iptables.refuses = (spec) => spec.includes('physdev');
    await h.rules.sync([WEB, DNS], { verify: false });
    assert.deepEqual(await h.owners(), ['kube-system/dns', 'shop/web', 'kube-system/dns']);
    assert.deepEqual(
      h.log.of('warn').map((line) => line.fields['svc']),
      ['kube-system/dns'],
    );
    assert.equal(await h.chain('KUBE-USERSPACE-PROBE'), undefined);
    await h.rules.sync([WEB, DNS], { verify: true });
    assert.equal(h.log.of('warn').length, 1);
    h.iptables.refuses = () => false;
    await h.rules.sync([WEB, DNS], { verify: true });
    assert.equal((await h.owners())?.length, 4);
  });

  test('that fails is counted and done in full the next time', async () => {
    const h = harness();
    await h.rules.sync([WEB], { verify: false });
    h.iptables.fault = new IptablesError('timeout', 'iptables-restore did not end');
    await assert.rejects(h.rules.sync([WEB, DNS], { verify: false }), /did not end/);
    h.iptables.fault = undefined;
    await h.rules.sync([WEB], { verify: false });
    assert.deepEqual(await h.owners(), ['shop/web']);
  });

  test('follows the address of the node, and keeps the last one when there is none', async () => {
    const h = harness();
    await h.rules.sync([WEB], { verify: false });
    h.host.address = ip('192.168.50.11');
    await h.rules.sync([WEB], { verify: true });
    assert.match((await h.chain('KUBE-PORTALS-HOST'))?.[0] ?? '', /192\.168\.50\.11:4001$/);
    h.host.address = undefined;
    await h.rules.sync([WEB], { verify: true });
    assert.match((await h.chain('KUBE-PORTALS-HOST'))?.[0] ?? '', /192\.168\.50\.11:4001$/);
  });

  test('without any address of the node fails with a sentence', async () => {
    const h = harness();
    h.host.address = undefined;
    await assert.rejects(h.rules.sync([WEB], { verify: false }), /no IPv4 address/);
  });

  test('warns once of two Services that claim one address', async () => {
    const h = harness();
    const rival = portal('shop/rival', '10.96.0.1', 4003);
    for (let i = 0; i < 3; i++) await h.rules.sync([WEB, rival], { verify: true });
    assert.equal(h.log.of('warn').length, 1);
  });
});
