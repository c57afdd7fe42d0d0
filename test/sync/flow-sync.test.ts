import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Portal, PortalDelta } from '../../src/model/capture.ts';
import type { OriginalDestination, UdpFlows } from '../../src/model/conntrack.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import { FlowSync } from '../../src/sync/flow-sync.ts';
import { nodeFacts } from '../capture/fixtures.ts';
import { FakeIptables } from '../fakes/fake-iptables.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { iptablesCapture } from '../support/capture.ts';
import { ENDPOINT, address as ip, servicePort } from '../support/model.ts';

const VIP = ip('10.96.0.10');
const OTHER = ip('203.0.113.9');

function portal(localPort: number, change: Partial<ServicePort> = {}): Portal {
  const dns = { name: 'kube-system/dns:dns', protocol: 'UDP', port: 53, clusterIPs: [VIP] } as const;
  return { servicePort: servicePort({ ...dns, ...change }), localPort };
}

function harness() {
  const asked: UdpFlows[] = [];
  const left: string[] = [];
  const missed: OriginalDestination[] = [];
  const clock = new ManualClock();
  let calls = 0;
  const counted: number[] = [];
  const state = { fault: undefined as Error | undefined };
  const log = new RecordingLog();
  const sync = new FlowSync({
    family: 'IPv4',
    conntrack: {
      deleteUdp: async (some) => {
        asked.push(...some);
        if (state.fault !== undefined) throw state.fault;
        return 3;
      },
      deleteTo: async (protocol, ports) => {
        calls++;
        left.push(...Array.from(ports, (port) => `${port}/${protocol}`));
        if (state.fault !== undefined) throw state.fault;
        return 1;
      },
      deleteMissed: async (destinations) => {
        missed.push(...destinations);
        if (state.fault !== undefined) throw state.fault;
        return 1;
      },
      deleteMarked: () => assert.fail('is for cleaning up'),
    },
    clock,
    log,
    metrics: { conntrackReconciled: (_durationMs, deleted) => counted.push(deleted) },
  });
  const iptables = new FakeIptables();
  const host = { address: '192.168.50.10' };
  const capture = iptablesCapture({ iptables, clock, log, node: () => nodeFacts({ hostAddress: ip(host.address) }) });
  const note = (upserted: readonly Portal[], removed: PortalDelta['removed'] = []) =>
    capture.apply({ upserted, removed });
  const cleared = async (verify = false) => {
    asked.length = 0;
    await sync.clear(await capture.sync({ verify }));
    return [...asked];
  };
  return { sync, note, cleared, left, missed, calls: () => calls, clock, counted, state, log, iptables, host };
}

/** Portals that are known and cleared. */
async function noted(...portals: readonly Portal[]) {
  const h = harness();
  h.note(portals);
  await h.cleared();
  return h;
}

test('entries of a new Service port are deleted once, except to its local port', async () => {
  const h = harness();
  h.note([portal(4000, { nodePort: 30053, externalIPs: [OTHER] })]);
  assert.deepEqual(await h.cleared(), [
    { destination: VIP, port: 53, keepLocalPort: 4000 },
    { destination: OTHER, port: 53, keepLocalPort: 4000 },
    { family: 'IPv4', port: 30053, keepLocalPort: 4000 },
  ]);
  assert.deepEqual(await h.cleared(), []);
});

test('entries of TCP Services are never deleted', async () => {
  const h = harness();
  h.note([portal(4000, { protocol: 'TCP' })]);
  h.note([], ['kube-system/dns:dns']);
  assert.deepEqual(await h.cleared(), []);
});

test('another local port makes the entries of every destination stale; without a change none are', async () => {
  const h = await noted(portal(4000, { nodePort: 30053 }));
  h.note([portal(4000, { nodePort: 30053 })]);
  assert.deepEqual(await h.cleared(), []);
  h.note([portal(4001, { nodePort: 30053 })]);
  assert.deepEqual(await h.cleared(), [
    { destination: VIP, port: 53, keepLocalPort: 4001 },
    { family: 'IPv4', port: 30053, keepLocalPort: 4001 },
  ]);
});

test('all entries of a destination that a Service port lost are deleted, and no others', async () => {
  const h = await noted(portal(4000, { nodePort: 30053, externalIPs: [OTHER] }));
  h.note([portal(4000, { nodePort: 30053 })]);
  assert.deepEqual(await h.cleared(), [{ destination: OTHER, port: 53 }]);
  h.note([portal(4000)]);
  assert.deepEqual(await h.cleared(), [{ family: 'IPv4', port: 30053 }]);
});

test('all entries of a Service port that is removed, or changes to TCP, are deleted', async () => {
  for (const delta of [
    { upserted: [], removed: ['kube-system/dns:dns' as const] },
    { upserted: [portal(4000, { protocol: 'TCP' })], removed: [] },
  ]) {
    const h = await noted(portal(4000));
    h.note(delta.upserted, delta.removed);
    assert.deepEqual(await h.cleared(), [{ destination: VIP, port: 53 }]);
  }
});

test('an address that moves to another Service keeps entries to the new one, in any order', async () => {
  const heir = portal(4001, { name: 'kube-system/dns2:dns' });
  const h = await noted(portal(4000));
  h.note([heir]);
  h.note([], ['kube-system/dns:dns']);
  assert.deepEqual(await h.cleared(), [{ destination: VIP, port: 53, keepLocalPort: 4001 }]);
});

test('of two that claim an address, only entries to the one that has it are right', async () => {
  const rival = portal(4001, { name: 'zzz/rival:dns', nodePort: 30_054 });
  const h = harness();
  h.note([portal(4000), rival]);
  assert.deepEqual(await h.cleared(), [
    { destination: VIP, port: 53, keepLocalPort: 4000 },
    { family: 'IPv4', port: 30_054, keepLocalPort: 4001 },
  ]);
  h.note([{ ...rival, localPort: 4002 }]);
  assert.deepEqual(await h.cleared(), [{ family: 'IPv4', port: 30_054, keepLocalPort: 4002 }]);
});

test('a failed deletion is repeated by the next sync, with the then current ports, and logged once until it succeeds', async () => {
  const h = harness();
  h.state.fault = new Error('give this program CAP_NET_ADMIN');
  h.note([portal(4000)]);
  for (let i = 0; i < 3; i++) assert.equal((await h.cleared())[0]?.keepLocalPort, 4000);
  assert.deepEqual(
    h.log.of('error').map(({ fields }) => fields['err']),
    ['give this program CAP_NET_ADMIN'],
  );
  h.state.fault = undefined;
  h.note([], ['kube-system/dns:dns']);
  assert.deepEqual(await h.cleared(), [{ destination: VIP, port: 53 }]);
  assert.deepEqual(h.counted, [3]);
  assert.match(h.log.of('info').at(-1)?.message ?? '', /are cleared again/);
  assert.deepEqual(await h.cleared(), []);
});

test('entries are deleted when the last endpoint is removed, and when the first is added', async () => {
  const h = await noted(portal(4000));
  h.note([portal(4000, { endpoints: [] })]);
  assert.deepEqual(await h.cleared(), [{ destination: VIP, port: 53 }]);
  h.note([portal(4000)]);
  assert.deepEqual(await h.cleared(), [{ destination: VIP, port: 53, keepLocalPort: 4000 }]);
});

test('with two endpoint sets, each destination keeps entries to the ports that it may use', async () => {
  const local = { endpoints: [ENDPOINT], internal: true, external: false };
  const h = harness();
  h.note([{ ...portal(4000, { local, nodePort: 30053 }), localSetPort: 4001 }]);
  assert.deepEqual(await h.cleared(), [
    { destination: VIP, port: 53, keepLocalPort: 4001 },
    { family: 'IPv4', port: 30053, keepLocalPort: 4000 },
  ]);
});

test('all entries are deleted when a policy or a source range changes', async () => {
  const local = { endpoints: [ENDPOINT], internal: false, external: true };
  const h = await noted(portal(4000, { nodePort: 30053, loadBalancerIPs: [OTHER] }));
  const limited = { nodePort: 30053, loadBalancerIPs: [OTHER], loadBalancerSourceRanges: [] };
  h.note([portal(4000, limited)]);
  assert.deepEqual(await h.cleared(), [{ destination: OTHER, port: 53 }]);
  h.note([{ ...portal(4000, { ...limited, local }), localSetPort: 4001 }]);
  assert.deepEqual(await h.cleared(), [{ family: 'IPv4', port: 30053 }], 'the range lets nobody in');
});

test('when the address of the node changes, the entries of every destination are deleted, once that is installed', async () => {
  const h = await noted(portal(4000, { nodePort: 30053 }));
  h.iptables.refuses = () => true;
  h.host.address = '192.168.50.99';
  await assert.rejects(h.cleared());
  h.iptables.refuses = () => false;
  assert.deepEqual(await h.cleared(), [
    { destination: VIP, port: 53 },
    { family: 'IPv4', port: 30053 },
  ]);
  assert.deepEqual(await h.cleared(), []);
});

test('local ports that get other owners are released together, and UDP again when that fails', async () => {
  const h = harness();
  const walks = async () => {
    const all = Promise.all([h.sync.release('TCP', 4000), h.sync.release('TCP', 4001), h.sync.release('UDP', 4002)]);
    h.clock.advance(0);
    await all;
    return h.left.splice(0);
  };
  assert.deepEqual(await walks(), ['4002/UDP', '4000/TCP', '4001/TCP']);
  assert.equal(h.calls(), 2, 'one for each protocol');
  h.state.fault = new Error('no');
  await walks();
  assert.equal(h.log.of('error').length, 1);
  h.state.fault = undefined;
  await h.cleared();
  assert.deepEqual(h.left, ['4002/UDP'], 'a new owner may have connections by now');
});

test('after rules were missing, entries without NAT go, and those to the right local ports stay', async () => {
  const web = portal(4001, { name: 'shop/web:http', protocol: 'TCP', port: 80, nodePort: 30_080 });
  const h = await noted(portal(4000), web);
  await h.iptables.restore('IPv4', '*nat\n:KUBE-PORTALS-HOST - [0:0]\nCOMMIT\n');
  h.state.fault = new Error('no');
  await h.cleared(true);
  h.state.fault = undefined;
  h.missed.length = 0;
  assert.deepEqual(await h.cleared(), [{ destination: VIP, port: 53, keepLocalPort: 4000 }]);
  assert.deepEqual(h.missed, [
    { destination: VIP, port: 80 },
    { family: 'IPv4', port: 30_080 },
  ]);
  h.missed.length = 0;
  assert.deepEqual(await h.cleared(), []);
  assert.deepEqual(h.missed, []);
});
