import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PortRange } from '../../src/model/port-range.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import { Listeners } from '../../src/sync/listeners.ts';
import { PortAllocator } from '../../src/sync/port-allocator.ts';
import { FakeDataPlane } from '../fakes/fake-data-plane.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address as ip } from '../rules/fixtures.ts';

function servicePort(overrides: Partial<ServicePort> = {}): ServicePort {
  return {
    name: 'shop/web',
    protocol: 'TCP',
    port: 80,
    nodePort: 0,
    clusterIPs: [ip('10.96.0.1')],
    externalIPs: [],
    loadBalancerIPs: [],
    affinity: { type: 'None' },
    endpoints: [],
    ...overrides,
  };
}

function harness(range?: PortRange) {
  const dataPlane = new FakeDataPlane();
  const clock = new ManualClock();
  const log = new RecordingLog();
  const counts = { changes: 0 };
  const listeners = new Listeners({
    dataPlane,
    clock,
    log,
    ports: new PortAllocator(range, () => 0),
    bindAddress: '0.0.0.0',
    onPortalsChanged: () => {
      counts.changes++;
    },
  });
  const portOf = (name: ServicePortName) => dataPlane.listeners.get(name)?.port;
  /** What a successful rule sync does. */
  const syncRules = async () => {
    const retired = listeners.retired();
    listeners.closeRetired(retired);
    await listeners.settled();
  };
  return { dataPlane, clock, log, listeners, counts, portOf, syncRules };
}

describe('listeners', () => {
  test('keep their port whatever changes but the protocol', async () => {
    const h = harness();
    h.listeners.want(servicePort());
    await h.listeners.settled();
    const port = h.portOf('shop/web');
    assert.ok(port);
    h.listeners.want(servicePort({ port: 81, nodePort: 30_000, clusterIPs: [ip('10.96.0.9')] }));
    h.listeners.want(servicePort({ affinity: { type: 'ClientIP', timeoutSeconds: 5 } }));
    h.listeners.want(servicePort({ endpoints: [{ address: ip('10.0.0.1'), port: 1 }] }));
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), port);
    assert.equal(h.dataPlane.opened.length, 1);
    h.listeners.want(servicePort({ protocol: 'UDP' }));
    await h.listeners.settled();
    assert.notEqual(h.portOf('shop/web'), port);
    assert.equal(h.dataPlane.listeners.get('shop/web')?.spec.protocol, 'UDP');
    assert.deepEqual(
      h.listeners.portals().map((portal) => portal.localPort),
      [h.portOf('shop/web')],
    );
  });

  test('ask for rules only when what rules say has changed', async () => {
    const h = harness();
    h.listeners.want(servicePort());
    await h.listeners.settled();
    assert.equal(h.counts.changes, 1);
    h.listeners.want(servicePort({ endpoints: [{ address: ip('10.0.0.1'), port: 1 }] }));
    h.listeners.want(servicePort({ affinity: { type: 'ClientIP', timeoutSeconds: 5 } }));
    assert.equal(h.counts.changes, 1);
    assert.deepEqual(h.dataPlane.listeners.get('shop/web')?.backends.affinity, { type: 'ClientIP', timeoutSeconds: 5 });
    h.listeners.want(servicePort({ externalIPs: [ip('192.0.2.1')] }));
    assert.equal(h.counts.changes, 2);
  });

  test('of a removed Service port stay open until rules without them are installed', async () => {
    const h = harness();
    h.listeners.want(servicePort());
    await h.listeners.settled();
    h.listeners.unwant('shop/web');
    await h.listeners.settled();
    assert.deepEqual(h.listeners.portals(), []);
    assert.ok(h.portOf('shop/web'));
    await h.syncRules();
    assert.equal(h.portOf('shop/web'), undefined);
  });

  test('that are wanted again before that keep their port', async () => {
    const h = harness();
    h.listeners.want(servicePort());
    await h.listeners.settled();
    const port = h.portOf('shop/web');
    h.listeners.unwant('shop/web');
    const retired = h.listeners.retired();
    h.listeners.want(servicePort());
    h.listeners.closeRetired(retired);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), port);
    assert.equal(h.listeners.portals().length, 1);
    assert.equal(h.counts.changes, 3);
  });

  test('that were given up while opening are closed, and changes made meanwhile arrive', async () => {
    const h = harness();
    const release = h.dataPlane.hold();
    h.listeners.want(servicePort());
    h.listeners.want(servicePort({ name: 'shop/kept' }));
    h.listeners.unwant('shop/web');
    h.listeners.want(servicePort({ name: 'shop/kept', endpoints: [{ address: ip('10.0.0.1'), port: 1 }] }));
    release();
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), undefined);
    assert.equal(h.dataPlane.listeners.get('shop/kept')?.backends.endpoints.length, 1);
  });

  test('take another port of the range when one is in use, and release it at the end', async () => {
    const h = harness({ first: 30_000, last: 30_001 });
    h.dataPlane.taken.add('TCP:30000');
    h.listeners.want(servicePort());
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), 30_001);
    h.listeners.unwant('shop/web');
    await h.syncRules();
    h.listeners.want(servicePort({ name: 'shop/next' }));
    await h.listeners.settled();
    assert.equal(h.portOf('shop/next'), 30_001);
  });

  test('that cannot be opened are tried again, with an error that says why', async () => {
    const h = harness({ first: 30_000, last: 30_000 });
    h.dataPlane.taken.add('TCP:30000');
    h.listeners.want(servicePort());
    await h.listeners.settled();
    assert.deepEqual(h.listeners.portals(), []);
    assert.match(String(h.log.of('error')[0]?.fields['err']), /--proxy-port-range/);
    h.clock.advance(1_000);
    await h.listeners.settled();
    assert.equal(h.log.of('error').length, 2);
    h.dataPlane.taken.clear();
    h.clock.advance(1_999);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), undefined);
    h.clock.advance(1);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), 30_000);
    assert.equal(h.clock.pendingTimers, 0);
  });

  test('that are given up while waiting for another try leave no timer', async () => {
    const h = harness({ first: 30_000, last: 30_000 });
    h.dataPlane.taken.add('TCP:30000');
    h.listeners.want(servicePort());
    await h.listeners.settled();
    h.listeners.unwant('shop/web');
    assert.equal(h.clock.pendingTimers, 0);
  });
});
