import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Address } from '../../src/model/address.ts';
import type { UdpFlows } from '../../src/model/conntrack.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import type { Portal, PortalDelta } from '../../src/rules/portal.ts';
import { FlowSync } from '../../src/sync/flow-sync.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

const VIP = '10.96.0.10' as Address;
const OTHER = '203.0.113.9' as Address;

function portal(localPort: number, change: Partial<ServicePort> = {}): Portal {
  const servicePort: ServicePort = {
    name: 'kube-system/dns:dns',
    protocol: 'UDP',
    port: 53,
    nodePort: 0,
    clusterIPs: [VIP],
    externalIPs: [],
    loadBalancerIPs: [],
    affinity: { type: 'None' },
    endpoints: [{ address: '10.0.0.1' as Address, port: 53 }],
    ...change,
  };
  return { servicePort, localPort };
}

function harness() {
  const asked: UdpFlows[] = [];
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
      deleteUdpTo: () => assert.fail('is for cleaning up'),
    },
    clock: new ManualClock(),
    log,
    metrics: { conntrackReconciled: (_durationMs, deleted) => counted.push(deleted) },
  });
  const note = (upserted: readonly Portal[], removed: PortalDelta['removed'] = []) => sync.note({ upserted, removed });
  const cleared = async () => {
    asked.length = 0;
    await sync.clear();
    return [...asked];
  };
  return { sync, note, cleared, counted, state, log };
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

test('TCP is ignored', async () => {
  const h = harness();
  h.note([portal(4000, { protocol: 'TCP' })]);
  h.note([], ['kube-system/dns:dns']);
  assert.deepEqual(await h.cleared(), []);
});

test('nothing is deleted when destinations and local port stay the same', async () => {
  const h = await noted(portal(4000, { nodePort: 30053 }));
  h.note([portal(4000, { nodePort: 30053 })]);
  assert.deepEqual(await h.cleared(), []);
});

test('another local port concerns every destination', async () => {
  const h = await noted(portal(4000, { nodePort: 30053 }));
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

test('all entries of a Service port that goes, or turns to TCP, are deleted', async () => {
  for (const delta of [
    { upserted: [], removed: ['kube-system/dns:dns' as const] },
    { upserted: [portal(4000, { protocol: 'TCP' })], removed: [] },
  ]) {
    const h = await noted(portal(4000));
    h.sync.note(delta);
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

test('what fails is retried by the next sync, as things are then, and logged once until it succeeds', async () => {
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
  assert.deepEqual(await h.cleared(), []);
});

test('the last endpoint that goes, and the first that comes, make entries wrong', async () => {
  const h = await noted(portal(4000));
  h.note([portal(4000, { endpoints: [] })]);
  assert.deepEqual(await h.cleared(), [{ destination: VIP, port: 53 }]);
  h.note([portal(4000)]);
  assert.deepEqual(await h.cleared(), [{ destination: VIP, port: 53, keepLocalPort: 4000 }]);
});

test('with two endpoint sets, the ports are kept that a destination may lead to', async () => {
  const local = { endpoints: [{ address: '10.0.0.2' as Address, port: 53 }], internal: true, external: false };
  const h = harness();
  h.note([{ ...portal(4000, { local, nodePort: 30053 }), localSetPort: 4001 }]);
  assert.deepEqual(await h.cleared(), [
    { destination: VIP, port: 53, keepLocalPort: 4001 },
    { family: 'IPv4', port: 30053, keepLocalPort: 4000 },
  ]);
});

test('all entries are deleted when a policy or a source range changes', async () => {
  const local = { endpoints: [{ address: '10.0.0.2' as Address, port: 53 }], internal: false, external: true };
  const h = await noted(portal(4000, { nodePort: 30053, loadBalancerIPs: [OTHER] }));
  const limited = { nodePort: 30053, loadBalancerIPs: [OTHER], loadBalancerSourceRanges: [] };
  h.note([portal(4000, limited)]);
  assert.deepEqual(await h.cleared(), [{ destination: OTHER, port: 53 }]);
  h.note([{ ...portal(4000, { ...limited, local }), localSetPort: 4001 }]);
  assert.deepEqual(await h.cleared(), [
    { destination: OTHER, port: 53 },
    { family: 'IPv4', port: 30053 },
  ]);
});

test('when the node has another address, no entry to any destination is right, whatever port it leads to', async () => {
  const h = await noted(portal(4000, { nodePort: 30053 }));
  h.sync.noteAll();
  assert.deepEqual(await h.cleared(), [
    { destination: VIP, port: 53 },
    { family: 'IPv4', port: 30053 },
  ]);
  assert.deepEqual(await h.cleared(), []);
});
