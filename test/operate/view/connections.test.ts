import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ListenerStats, OpenConnection } from '../../../src/model/data-plane.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import type { ListenerId, ServicePort } from '../../../src/model/service-port.ts';
import { createView, type ViewSources } from '../../../src/operate/view/view.ts';
import { address } from '../../rules/fixtures.ts';

test('connections of one Service among a hundred idle ones are listed without a look at all of these at once', async () => {
  const names = Array.from({ length: 101 }, (_, index): ServicePortName => `default/s${index}`);
  const busy = 'default/s100';
  const servicePort = { protocol: 'TCP', port: 80, clusterIPs: [address('10.96.0.1')] } as unknown as ServicePort;
  const open: OpenConnection = {
    ...{
      client: { address: address('10.244.0.9'), port: 1 },
      endpoint: { address: address('10.244.0.1'), port: 8080 },
    },
    state: 'established',
  };
  let looks = 0;
  let most = 0;
  const asked: ListenerId[] = [];
  const view = createView({
    families: () => [
      {
        family: 'IPv4',
        names: () => names,
        carried: (name: ServicePortName) => ({ servicePort, listeners: [{ id: name, set: 'own', localPort: 1 }] }),
      },
    ],
    dataPlane: {
      statsOf: (id: ListenerId) => {
        looks++;
        most = Math.max(most, looks);
        return { counters: { active: id === busy ? 1 : 0 } } as ListenerStats;
      },
      async *connections(id: ListenerId) {
        asked.push(id);
        yield [open];
      },
    },
  } as unknown as ViewSources);
  const found = [];
  for await (const piece of view.connections()) {
    found.push(...piece);
    looks = 0;
  }
  assert.deepEqual(found, [{ name: busy, protocol: 'TCP', virtual: { address: '10.96.0.1', port: 80 }, ...open }]);
  assert.deepEqual(asked, [busy]);
  assert.ok(most <= 20, `${most} looks between two pieces`);
});
