import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PortRange } from '../../src/model/address.ts';
import type { Portal } from '../../src/model/capture.ts';
import { namedEndpoint } from '../../src/model/endpoint.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import { Listeners } from '../../src/sync/listeners.ts';
import { foundText } from '../../src/util/found.ts';
import { FakeDataPlane } from '../fakes/fake-data-plane.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { portBook } from '../support/capture.ts';
import { listenSpec } from '../support/listen-spec.ts';
import { address as ip, servicePort as servicePortOf } from '../support/model.ts';

const ONE = namedEndpoint(ip('10.0.0.8'), 1);

function servicePort(overrides: Partial<ServicePort> = {}): ServicePort {
  return servicePortOf({ endpoints: [ONE], ...overrides });
}

function harness(range: PortRange = { first: 40_000, last: 41_000 }) {
  const dataPlane = new FakeDataPlane();
  const clock = new ManualClock();
  const needed = new Set<number>();
  const isNeeded = (port: number) => needed.has(port);
  const ports = portBook(clock, { range, isNeeded });
  const log = new RecordingLog();
  const counts = { changes: 0 };
  const released: string[] = [];
  const listeners = new Listeners({
    family: 'IPv4',
    dataPlane,
    clock,
    log,
    ports,
    flows: {
      release: async (protocol, port) => {
        released.push(`${port}/${protocol}`);
      },
    },
    bindAddress: '0.0.0.0',
    clientAddresses: { clientAddress: 'preserve', masqueradeAll: false },
    scheduler: 'rr',
  });
  listeners.onPortalsChanged(() => {
    counts.changes++;
  });
  /** All portals, put together from the deltas. */
  const portals = new Map<ServicePortName, Portal>();
  const follow = () => {
    const { upserted, removed } = listeners.takePortalDelta();
    for (const name of removed) {
      portals.delete(name);
      ports.remove(name);
    }
    for (const portal of upserted) {
      portals.set(portal.servicePort.name, portal);
      ports.serve(portal);
    }
    return [...portals.values()];
  };
  const portOf = (name: ServicePortName) => dataPlane.listeners.get(name)?.port;
  /** What a successful rule sync does. */
  const syncRules = async () => {
    const retired = listeners.retired();
    follow();
    listeners.closeRetired(retired);
    await listeners.settled();
  };
  return { dataPlane, clock, ports, needed, log, listeners, counts, released, portOf, follow, syncRules };
}

/** With a listener for shop/web. */
async function listening(range?: PortRange) {
  const h = harness(range);
  h.listeners.want(servicePort());
  await h.listeners.settled();
  return h;
}

describe('listeners', () => {
  test('keep their port until the protocol changes', async () => {
    const h = await listening();
    const port = h.portOf('shop/web');
    assert.ok(port);
    h.listeners.want(servicePort({ port: 81, nodePort: 30_000, clusterIPs: [ip('10.96.0.9')] }));
    h.listeners.want(servicePort({ affinity: { type: 'ClientIP', timeoutSeconds: 5 } }));
    h.listeners.want(servicePort({ endpoints: [namedEndpoint(ip('10.0.0.1'), 1)] }));
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), port);
    assert.equal(h.dataPlane.opened.length, 1);
    h.listeners.want(servicePort({ protocol: 'UDP' }));
    await h.listeners.settled();
    assert.equal(h.dataPlane.listeners.get('shop/web')?.spec.protocol, 'UDP');
    assert.deepEqual(
      h.follow().map((portal) => portal.localPort),
      [h.portOf('shop/web')],
    );
  });

  test('move from a local port that something else needs, and rules change', async () => {
    const h = await listening();
    h.follow();
    h.needed.add(40_000);
    h.listeners.vacate([{ port: 40_000, protocol: 'UDP' }]);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), 40_000, 'UDP has ports of its own');
    const { changes } = h.counts;
    h.listeners.vacate([{ port: 40_000, protocol: 'TCP' }]);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), 40_001);
    assert.ok(h.counts.changes > changes);
    assert.deepEqual(
      h.follow().map((portal) => portal.localPort),
      [40_001],
    );
    assert.equal(h.listeners.localPorts.TCP.has(40_000), false);
  });

  test('move at the end of a failed upgrade, when a port was needed meanwhile', async () => {
    const h = await listening();
    h.listeners.stop();
    h.needed.add(40_000);
    h.listeners.vacate([{ port: 40_000, protocol: 'TCP' }]);
    h.listeners.resume();
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), 40_001);
  });

  test('request new rules only when rules differ', async () => {
    const h = await listening();
    assert.equal(h.counts.changes, 1);
    h.listeners.want(servicePort({ endpoints: [namedEndpoint(ip('10.0.0.1'), 1)] }));
    h.listeners.want(servicePort({ affinity: { type: 'ClientIP', timeoutSeconds: 5 } }));
    assert.equal(h.counts.changes, 1);
    assert.deepEqual(h.dataPlane.listeners.get('shop/web')?.backends.affinity, { type: 'ClientIP', timeoutSeconds: 5 });
    h.listeners.want(servicePort({ externalIPs: [ip('192.0.2.1')] }));
    assert.equal(h.counts.changes, 2);
  });

  test('pass on whose address is kept and which header is sent, without new rules', async () => {
    const h = await listening();
    const backends = () => h.dataPlane.listeners.get('shop/web')?.backends;
    assert.deepEqual(backends()?.keptAddresses, { pods: 'all', others: 'none', clusterIPs: [ip('10.96.0.1')] });
    assert.equal(backends()?.proxyProtocol, undefined);
    h.listeners.want(servicePort({ options: { clientAddress: 'node', proxyProtocol: 'v2' } }));
    assert.equal(backends()?.keptAddresses, undefined);
    assert.equal(backends()?.proxyProtocol, 'v2');
    assert.equal(h.counts.changes, 1);
    h.listeners.want(servicePort({ protocol: 'UDP', options: { proxyProtocol: 'v2' } }));
    await h.listeners.settled();
    assert.equal(backends()?.proxyProtocol, undefined, 'a datagram has no header');
  });

  test('pass on for whom clients wait, and how much one endpoint gets, without new rules', async () => {
    const h = await listening();
    const wanted = (fields: Partial<ServicePort>) => {
      h.listeners.want(servicePort(fields));
      const {
        endpoints: _,
        affinity: __,
        keptAddresses: ___,
        ...terms
      } = h.dataPlane.listeners.get('shop/web')!.backends;
      return terms;
    };
    assert.deepEqual(wanted({}), {});
    assert.deepEqual(wanted({ waitMs: 30_000 }), { waiting: { forEndpointsMs: 30_000, whileFullMs: 0, max: 1_024 } });
    assert.deepEqual(wanted({ options: { maxConnections: 5 } }), {
      waiting: { forEndpointsMs: 0, whileFullMs: 5_000, max: 1_024 },
      maxConnections: 5,
    });
    assert.deepEqual(wanted({ waitMs: 1_000, options: { maxConnections: 5, queueTimeoutMs: 100, maxWaiting: 7 } }), {
      waiting: { forEndpointsMs: 1_000, whileFullMs: 100, max: 7 },
      maxConnections: 5,
    });
    assert.deepEqual(wanted({ options: { maxConnections: 5, queueTimeoutMs: 0 } }), { maxConnections: 5 });
    const ofConnections = { maxConnectionAgeMs: 60_000, drainTimeoutMs: 0 };
    const options = { ...ofConnections, udpTimeoutMs: 900 };
    assert.deepEqual(wanted({ options }), ofConnections);
    assert.equal(h.counts.changes, 1);
    h.listeners.want(servicePort({ protocol: 'UDP', options }));
    await h.listeners.settled();
    const { udpTimeoutMs, maxConnectionAgeMs, drainTimeoutMs } = h.dataPlane.listeners.get('shop/web')!.backends;
    assert.deepEqual([udpTimeoutMs, maxConnectionAgeMs, drainTimeoutMs], [900, undefined, undefined]);
  });

  test('request no new rules where clients wait when endpoints go and come', async () => {
    const h = harness();
    const waiting = (fields: Partial<ServicePort> = {}) => servicePort({ waitMs: 1_000, ...fields });
    h.listeners.want(waiting({ endpoints: [] }));
    await h.listeners.settled();
    assert.equal(h.counts.changes, 1);
    h.listeners.want(waiting());
    h.listeners.want(waiting({ endpoints: [], onlyElsewhere: true }));
    h.listeners.want(waiting({ waitMs: 2_000 }));
    assert.equal(h.counts.changes, 1);
    h.listeners.want(servicePort({ endpoints: [] }));
    assert.equal(h.counts.changes, 2, 'they are refused from now on');
  });

  test('request new rules when the last endpoint is removed and the first is added, and keep their port', async () => {
    const h = await listening();
    const port = h.portOf('shop/web');
    h.listeners.want(servicePort({ endpoints: [], draining: [ONE] }));
    assert.equal(h.counts.changes, 2);
    const backends = h.dataPlane.listeners.get('shop/web')?.backends;
    assert.deepEqual([backends?.endpoints, backends?.draining], [[], [ONE]]);
    h.listeners.want(servicePort({ endpoints: [], onlyElsewhere: true }));
    assert.equal(h.counts.changes, 3);
    h.listeners.want(servicePort());
    assert.equal(h.counts.changes, 4);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), port);
  });

  test('are two where a Service port has two endpoint sets', async () => {
    const h = harness();
    const local = { endpoints: [namedEndpoint(ip('10.0.0.7'), 1)], internal: false, external: true };
    h.listeners.want(servicePort());
    await h.listeners.settled();
    const port = h.portOf('shop/web');
    h.listeners.want(servicePort({ local }));
    await h.listeners.settled();
    const localSetPort = h.portOf('shop/web/local');
    assert.ok(localSetPort);
    assert.deepEqual(h.dataPlane.listeners.get('shop/web')?.backends.endpoints, [ONE]);
    assert.deepEqual(h.dataPlane.listeners.get('shop/web/local')?.backends.endpoints, local.endpoints);
    assert.deepEqual(
      h.follow().map((portal) => [portal.localPort, portal.localSetPort]),
      [[port, localSetPort]],
    );
    assert.ok(h.listeners.localPorts.TCP.has(localSetPort));
    assert.equal(h.listeners.ownerOf(localSetPort, 'TCP'), 'shop/web');
    assert.equal(h.listeners.ownerOf(localSetPort, 'UDP'), undefined);
    const changes = h.counts.changes;
    h.listeners.want(servicePort({ local: { ...local, endpoints: [ONE] } }));
    assert.equal(h.counts.changes, changes, 'only endpoints');
    assert.deepEqual(h.dataPlane.listeners.get('shop/web/local')?.backends.endpoints, [ONE]);

    h.listeners.want(servicePort());
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web/local'), localSetPort, 'until no rule uses it');
    await h.syncRules();
    assert.equal(h.portOf('shop/web/local'), undefined);
    assert.equal(h.listeners.localPorts.TCP.has(localSetPort), false);
    h.listeners.want(servicePort({ local }));
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web/local'), localSetPort, 'the same again');
    h.listeners.unwant('shop/web');
    await h.syncRules();
    assert.equal(h.dataPlane.listeners.size, 0);
  });

  test('serve the other set until the second one has a port', async () => {
    const h = harness({ first: 30_000, last: 30_000 });
    h.listeners.want(servicePort({ local: { endpoints: [ONE], internal: true, external: false } }));
    await h.listeners.settled();
    assert.deepEqual(
      h.follow().map((portal) => [portal.localPort, portal.localSetPort]),
      [[30_000, undefined]],
    );
    h.listeners.unwant('shop/web');
    assert.equal(h.clock.pendingTimers, 0);
  });

  test('of a removed Service port stay open until its rules are removed', async () => {
    const h = await listening();
    h.listeners.unwant('shop/web');
    await h.listeners.settled();
    assert.deepEqual(h.follow(), []);
    assert.ok(h.portOf('shop/web'));
    await h.syncRules();
    assert.equal(h.portOf('shop/web'), undefined);
  });

  test('that are wanted again before then keep their port', async () => {
    const h = await listening();
    const port = h.portOf('shop/web');
    h.listeners.unwant('shop/web');
    const retired = h.listeners.retired();
    h.listeners.want(servicePort());
    h.listeners.closeRetired(retired);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), port);
    assert.equal(h.follow().length, 1);
    assert.equal(h.counts.changes, 3);
  });

  test('that are no longer wanted when they open are closed; changes made meanwhile take effect', async () => {
    const h = harness();
    const release = h.dataPlane.hold();
    h.listeners.want(servicePort());
    h.listeners.want(servicePort({ name: 'shop/kept' }));
    h.listeners.unwant('shop/web');
    h.listeners.want(servicePort({ name: 'shop/kept', endpoints: [ONE, namedEndpoint(ip('10.0.0.1'), 1)] }));
    release();
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), undefined);
    assert.equal(h.dataPlane.listeners.get('shop/kept')?.backends.endpoints.length, 2);
  });

  test('take another port of the range when one is in use, and release it at the end', async () => {
    const h = harness({ first: 30_000, last: 30_001 });
    h.dataPlane.taken.add('TCP:30000');
    h.listeners.want(servicePort());
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), 30_001);
    h.listeners.unwant('shop/web');
    await h.syncRules();
    h.dataPlane.taken.clear();
    h.listeners.want(servicePort({ name: 'shop/next' }));
    await h.listeners.settled();
    assert.equal(h.portOf('shop/next'), 30_000);
    h.listeners.want(servicePort());
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), 30_001, 'it was kept');
  });

  test('give up after 100 ports in use', async () => {
    const h = harness();
    for (let port = 40_000; port <= 41_000; port++) h.dataPlane.taken.add(`TCP:${port}`);
    h.listeners.want(servicePort());
    await h.listeners.settled();
    assert.equal(h.dataPlane.opened.length, 100);
    assert.match(String(h.log.of('error')[0]?.fields['err']), /of the 1001 there are, 100 were tried/);
  });

  test('report each change of portals once', async () => {
    const h = harness();
    for (const name of ['shop/a', 'shop/b', 'shop/c'] as const) h.listeners.want(servicePort({ name }));
    await h.listeners.settled();
    const names = () => {
      const { upserted, removed } = h.listeners.takePortalDelta();
      return { upserted: upserted.map(({ servicePort: { name } }) => name), removed };
    };
    assert.deepEqual(names(), { upserted: ['shop/a', 'shop/b', 'shop/c'], removed: [] });
    assert.deepEqual(names(), { upserted: [], removed: [] });
    h.listeners.want(servicePort({ name: 'shop/a', nodePort: 30_000 }));
    h.listeners.want(servicePort({ name: 'shop/c', endpoints: [namedEndpoint(ip('10.0.0.1'), 1)] }));
    h.listeners.unwant('shop/b');
    assert.deepEqual(names(), { upserted: ['shop/a'], removed: ['shop/b'] });
    h.listeners.closeRetired(h.listeners.retired());
    await h.listeners.settled();
    assert.deepEqual(names(), { upserted: [], removed: [] });
    assert.deepEqual(h.listeners.retired(), []);
  });

  test('remove the rules of the old protocol even when the new one cannot be opened', async () => {
    const h = await listening({ first: 30_000, last: 30_000 });
    h.follow();
    const changes = h.counts.changes;
    h.dataPlane.taken.add('UDP:30000');
    h.listeners.want(servicePort({ protocol: 'UDP' }));
    await h.listeners.settled();
    assert.equal(h.counts.changes, changes + 1);
    assert.deepEqual(h.follow(), []);
  });

  test('that were adopted are kept while wanted, and closed otherwise', async () => {
    const h = harness();
    const names = ['shop/web', 'shop/other', 'shop/gone'] as const;
    const adopted = names.map((name, i) => ({
      id: name,
      name,
      family: 'IPv4' as const,
      protocol: 'TCP' as const,
      address: '0.0.0.0',
      localPort: 40_000 + i,
    }));
    for (const { name, protocol, localPort: port } of adopted) {
      await h.dataPlane.open(listenSpec({ name, protocol, address: '0.0.0.0', port }), {
        endpoints: [],
        affinity: { type: 'None' },
      });
    }
    h.listeners.adopt(adopted);
    h.listeners.want(servicePort({ endpoints: [namedEndpoint(ip('10.0.0.1'), 1)] }));
    h.listeners.want(servicePort({ name: 'shop/other', protocol: 'UDP' }));
    h.listeners.want(servicePort({ name: 'shop/new' }));
    await h.listeners.settled();
    await h.syncRules();
    assert.equal(h.portOf('shop/web'), 40_000);
    assert.equal(h.dataPlane.listeners.get('shop/web')?.backends.endpoints.length, 1);
    assert.equal(h.dataPlane.listeners.get('shop/other')?.spec.protocol, 'UDP');
    assert.equal(h.portOf('shop/gone'), undefined);
    assert.equal(h.portOf('shop/new'), 40_003);
    assert.equal(h.dataPlane.opened.filter(({ name }) => name === 'shop/new').length, 1, 'without trying theirs');
    assert.deepEqual(
      h
        .follow()
        .map(({ servicePort: { name }, localPort }) => `${name} ${localPort}`)
        .toSorted(),
      ['shop/new 40003', 'shop/other 40000', 'shop/web 40000'],
    );
  });

  test('that cannot be opened are retried, with an error that says why', async () => {
    const h = harness({ first: 30_000, last: 30_000 });
    h.dataPlane.taken.add('TCP:30000');
    h.listeners.want(servicePort());
    await h.listeners.settled();
    assert.deepEqual(h.follow(), []);
    assert.match(String(h.log.of('error')[0]?.fields['err']), /--proxy-port-range/);
    h.clock.advance(1_000);
    await h.listeners.settled();
    assert.equal(h.log.of('error').length, 2);
    const failure = () => h.listeners.carried('shop/web')?.listeners[0]?.failure;
    assert.match(
      failure() ?? '',
      /^no local port is free: of the 1 there are, 1 were tried and are in use by other programs, 0 are reserved for them /,
    );
    h.dataPlane.taken.clear();
    h.clock.advance(1_999);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), undefined);
    h.clock.advance(1);
    await h.listeners.settled();
    assert.equal(h.portOf('shop/web'), 30_000);
    assert.equal(failure(), undefined);
    assert.equal(h.clock.pendingTimers, 0);
  });

  test('of a namespace with its share of local ports wait until it has fewer, while others are served', async () => {
    const h = harness({ first: 30_000, last: 30_009 });
    const unserved: string[] = [];
    h.listeners.onUnserved((port) => unserved.push(`${port.name}: ${foundText(port)}`));
    const names = Array.from({ length: 10 }, (_, i) => `hog/s:${i}` as ServicePortName);
    for (const name of names) h.listeners.want(servicePort({ name }));
    await h.listeners.settled();
    await h.syncRules();
    assert.equal(h.dataPlane.listeners.size, 8);
    assert.equal(unserved.length, 2);
    assert.match(unserved[0] ?? '', /^hog\/s:8: its namespace has its share of the local ports/);
    h.listeners.want(servicePort({ name: 'other/a' }));
    await h.listeners.settled();
    assert.equal(h.portOf('other/a'), 30_008);

    h.clock.advance(1_000);
    await h.listeners.settled();
    assert.equal(unserved.length, 2, 'each is told once');
    for (const name of names.slice(0, 3)) h.listeners.unwant(name);
    await h.syncRules();
    h.clock.advance(100);
    await h.listeners.settled();
    assert.equal(h.portOf('hog/s:8'), 30_009);
    assert.equal(h.portOf('hog/s:9'), 30_000, 'the port that retired first');
    assert.deepEqual(h.released, ['30000/TCP']);
    h.listeners.stop();
    assert.equal(h.clock.pendingTimers, 0);
  });

  test('that lack a local port get one soon after another listener has closed', async () => {
    const h = harness({ first: 30_000, last: 30_000 });
    for (const name of ['a/a', 'b/b', 'c/c'] as const) h.listeners.want(servicePort({ name }));
    await h.listeners.settled();
    h.clock.advance(10_000);
    await h.listeners.settled();
    await h.syncRules();
    assert.equal(h.portOf('a/a'), 30_000);
    const begun = h.clock.now();
    h.listeners.unwant('a/a');
    await h.syncRules();
    while (h.dataPlane.listeners.size === 0) {
      assert.ok(h.clock.now() - begun < 1_000);
      h.clock.advance(50);
      await h.listeners.settled();
    }
    assert.equal(h.portOf('b/b'), 30_000, 'the first that came');
    assert.deepEqual(h.released, ['30000/TCP']);
  });
});
