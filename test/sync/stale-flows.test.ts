import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Address } from '../../src/model/address.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import type { Portal } from '../../src/rules/portal.ts';
import { StaleFlows } from '../../src/sync/flow-sync.ts';

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

function noted(...portals: readonly Portal[]): StaleFlows {
  const flows = new StaleFlows('IPv4');
  flows.note({ upserted: portals, removed: [] });
  flows.take();
  return flows;
}

test('a Service port that comes is told with the local port that its entries may have, once', () => {
  const flows = new StaleFlows('IPv4');
  flows.note({ upserted: [portal(4000, { nodePort: 30053, externalIPs: [OTHER] })], removed: [] });
  assert.deepEqual(flows.take(), [
    { destination: VIP, port: 53, keepLocalPort: 4000 },
    { destination: OTHER, port: 53, keepLocalPort: 4000 },
    { family: 'IPv4', port: 30053, keepLocalPort: 4000 },
  ]);
  assert.deepEqual(flows.take(), []);
});

test('TCP is none of its business', () => {
  const flows = new StaleFlows('IPv4');
  flows.note({ upserted: [portal(4000, { protocol: 'TCP' })], removed: [] });
  flows.note({ upserted: [], removed: ['kube-system/dns:dns'] });
  assert.deepEqual(flows.take(), []);
});

test('a change that leaves destinations and local port as they were tells nothing', () => {
  const flows = noted(portal(4000, { nodePort: 30053 }));
  flows.note({ upserted: [portal(4000, { nodePort: 30053 })], removed: [] });
  assert.deepEqual(flows.take(), []);
});

test('another local port is told for every destination', () => {
  const flows = noted(portal(4000, { nodePort: 30053 }));
  flows.note({ upserted: [portal(4001, { nodePort: 30053 })], removed: [] });
  assert.deepEqual(flows.take(), [
    { destination: VIP, port: 53, keepLocalPort: 4001 },
    { family: 'IPv4', port: 30053, keepLocalPort: 4001 },
  ]);
});

test('only the destination that a Service port lost is told, and that nothing is kept', () => {
  const flows = noted(portal(4000, { nodePort: 30053, externalIPs: [OTHER] }));
  flows.note({ upserted: [portal(4000, { nodePort: 30053 })], removed: [] });
  assert.deepEqual(flows.take(), [{ destination: OTHER, port: 53 }]);
  flows.note({ upserted: [portal(4000)], removed: [] });
  assert.deepEqual(flows.take(), [{ family: 'IPv4', port: 30053 }]);
});

test('a Service port that goes, or turns to TCP, is told', () => {
  for (const delta of [
    { upserted: [], removed: ['kube-system/dns:dns' as const] },
    { upserted: [portal(4000, { protocol: 'TCP' })], removed: [] },
  ]) {
    const flows = noted(portal(4000));
    flows.note(delta);
    assert.deepEqual(flows.take(), [{ destination: VIP, port: 53 }]);
  }
});

test('an address that goes from one Service to another keeps what leads to the new one, in whatever order', () => {
  const heir = portal(4001, { name: 'kube-system/dns2:dns' });
  const flows = noted(portal(4000));
  flows.note({ upserted: [heir], removed: [] });
  flows.note({ upserted: [], removed: ['kube-system/dns:dns'] });
  assert.deepEqual(flows.take(), [{ destination: VIP, port: 53, keepLocalPort: 4001 }]);
});

test('what is put back is told again, as things are then', () => {
  const flows = new StaleFlows('IPv4');
  flows.note({ upserted: [portal(4000)], removed: [] });
  const failed = flows.take();
  flows.note({ upserted: [], removed: ['kube-system/dns:dns'] });
  flows.putBack(failed);
  assert.deepEqual(flows.take(), [{ destination: VIP, port: 53 }]);
  assert.deepEqual(flows.take(), []);
});

test('a Service port that gets or loses its last endpoint is told', () => {
  const flows = noted(portal(4000));
  flows.note({ upserted: [portal(4000, { endpoints: [] })], removed: [] });
  assert.deepEqual(flows.take(), [{ destination: VIP, port: 53 }]);
  flows.note({ upserted: [portal(4000)], removed: [] });
  assert.deepEqual(flows.take(), [{ destination: VIP, port: 53, keepLocalPort: 4000 }]);
});

test('with two endpoint sets, the ports are kept that a destination may lead to', () => {
  const local = { endpoints: [{ address: '10.0.0.2' as Address, port: 53 }], internal: true, external: false };
  const flows = new StaleFlows('IPv4');
  flows.note({ upserted: [{ ...portal(4000, { local, nodePort: 30053 }), localSetPort: 4001 }], removed: [] });
  assert.deepEqual(flows.take(), [
    { destination: VIP, port: 53, keepLocalPort: 4001 },
    { family: 'IPv4', port: 30053, keepLocalPort: 4000 },
  ]);
});

test('when a policy or a source range changes, nothing is kept: who is let in, and where to, has changed', () => {
  const local = { endpoints: [{ address: '10.0.0.2' as Address, port: 53 }], internal: false, external: true };
  const flows = noted(portal(4000, { nodePort: 30053, loadBalancerIPs: [OTHER] }));
  const limited = { nodePort: 30053, loadBalancerIPs: [OTHER], loadBalancerSourceRanges: [] };
  flows.note({ upserted: [portal(4000, limited)], removed: [] });
  assert.deepEqual(flows.take(), [{ destination: OTHER, port: 53 }]);
  flows.note({ upserted: [{ ...portal(4000, { ...limited, local }), localSetPort: 4001 }], removed: [] });
  assert.deepEqual(flows.take(), [
    { destination: OTHER, port: 53 },
    { family: 'IPv4', port: 30053 },
  ]);
});

test('when the node has another address, no entry to any destination is right, whatever port it leads to', () => {
  const flows = noted(portal(4000, { nodePort: 30053 }));
  flows.noteAll();
  assert.deepEqual(flows.take(), [
    { destination: VIP, port: 53 },
    { family: 'IPv4', port: 30053 },
  ]);
  assert.deepEqual(flows.take(), []);
});
