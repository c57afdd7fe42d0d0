import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NoLocalEndpoints } from '../../src/http/no-local-endpoints.ts';
import { type Address, parseAddress } from '../../src/model/address.ts';
import type { LocalEndpointSet, ServicePort } from '../../src/model/service-port.ts';

const ENDPOINTS = [{ address: parseAddress('10.0.0.1') as Address, port: 80 }];

function port(name: ServicePort['name'], parts: Partial<ServicePort>): ServicePort {
  return {
    ...{ name, protocol: 'TCP', port: 80, nodePort: 0, clusterIPs: [], externalIPs: [], loadBalancerIPs: [] },
    ...{ affinity: { type: 'None' }, endpoints: ENDPOINTS },
    ...parts,
  };
}

/** Endpoints of the policy Local, all of them on other nodes. */
function elsewhere(traffic: { internal: boolean; external: boolean }): LocalEndpointSet {
  return { ...traffic, endpoints: [], onlyElsewhere: true };
}

function counts(ports: NoLocalEndpoints) {
  return { internal: ports.count('internal'), external: ports.count('external') };
}

test('each kind of traffic counts by the set that takes it', () => {
  const cases: readonly (readonly [parts: Partial<ServicePort>, internal: number, external: number])[] = [
    [{}, 0, 0],
    [{ endpoints: [] }, 0, 0],
    [{ nodePort: 30_000, local: elsewhere({ internal: false, external: true }) }, 0, 1],
    [{ nodePort: 30_000, local: elsewhere({ internal: true, external: false }) }, 1, 0],
    [{ nodePort: 30_000, local: { internal: false, external: true, endpoints: ENDPOINTS } }, 0, 0],
    [{ endpoints: [], onlyElsewhere: true }, 1, 0],
    [{ endpoints: [], onlyElsewhere: true, nodePort: 30_000 }, 1, 1],
    [{ endpoints: [], onlyElsewhere: true, externalIPs: ENDPOINTS.map(({ address }) => address) }, 1, 1],
    [{ endpoints: [], onlyElsewhere: true, loadBalancerIPs: ENDPOINTS.map(({ address }) => address) }, 1, 1],
  ];
  for (const [parts, internal, external] of cases) {
    const ports = new NoLocalEndpoints();
    ports.apply({ upserted: [port('default/web', parts)], removed: [] });
    assert.deepEqual(counts(ports), { internal, external }, JSON.stringify(parts));
  }
});

test('a Service port counts until it has endpoints here, or goes', () => {
  const ports = new NoLocalEndpoints();
  const lacking = { endpoints: [], onlyElsewhere: true, nodePort: 30_000 } as const;
  ports.apply({ upserted: [port('default/a', lacking), port('default/b', lacking)], removed: [] });
  assert.deepEqual(counts(ports), { internal: 2, external: 2 });
  ports.apply({ upserted: [port('default/a', lacking)], removed: [] });
  assert.deepEqual(counts(ports), { internal: 2, external: 2 });
  ports.apply({ upserted: [port('default/a', { nodePort: 30_000 })], removed: [] });
  assert.deepEqual(counts(ports), { internal: 1, external: 1 });
  ports.apply({ upserted: [], removed: ['default/b', 'default/unheard-of'] });
  assert.deepEqual(counts(ports), { internal: 0, external: 0 });
});
