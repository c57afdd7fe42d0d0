import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Conflict } from '../../../src/model/capture.ts';
import type { Counters, EndpointStats, ListenerStats, OpenConnection } from '../../../src/model/data-plane.ts';
import {
  type Endpoint,
  endpointName,
  type NamedEndpoint,
  namedEndpoint,
  withoutName,
} from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { type CarriedPort, type ListenerId, listenerId, type ServicePort } from '../../../src/model/service-port.ts';
import type { Rates } from '../../../src/model/view.ts';
import type { DialError } from '../../../src/operate/log/dial-errors.ts';
import { ConnectTimes } from '../../../src/operate/view/connect-times.ts';
import { noCounters } from '../../../src/operate/view/traffic.ts';
import { inPieces, RunningView, type ViewSources } from '../../../src/operate/view/view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { address as ip, servicePort as servicePortOf } from '../../support/model.ts';

const FAILED = 'connections to an endpoint failed during the last minute';
const RATES: Rates = { connections: 1, receivedBytes: 20, sentBytes: 300, failures: 0 };

function endpoint(address: string, port = 80): NamedEndpoint {
  return namedEndpoint(ip(address), port);
}

function servicePort(name: ServicePortName, fields: Partial<ServicePort> = {}): ServicePort {
  return servicePortOf({ name, endpoints: [endpoint('10.1.0.1')], ...fields });
}

function setUp() {
  const carried = { IPv4: new Map<ServicePortName, CarriedPort>(), IPv6: new Map<ServicePortName, CarriedPort>() };
  const stats = new Map<ListenerId, ListenerStats>();
  const problems = new Map<ListenerId, string>();
  const drained = new Set<string>();
  const errors = new Map<string, DialError>();
  const unsampled = new Set<ListenerId>();
  const reasons = new Map<ServicePortName, string>();
  const conflicts: Conflict[] = [];
  const refused: { what: string; found: string }[] = [];
  const sources = {
    families: () =>
      (['IPv4', 'IPv6'] as const).map((family) => ({
        family,
        names: () => carried[family].keys(),
        carried: (name: ServicePortName) => carried[family].get(name),
        whyEmpty: (name: ServicePortName) => reasons.get(name),
        conflictsOf: (name: ServicePortName) => conflicts.filter(({ owner }) => owner === name),
        refusedOf: () => refused,
      })),
    dataPlane: { statsOf: (id: ListenerId) => stats.get(id) },
    sampler: {
      ratesOf: (id: ListenerId) => (unsampled.has(id) ? undefined : RATES),
      problemOf: (ids: readonly ListenerId[]) => ids.map((id) => problems.get(id)).find((each) => each !== undefined),
      connectTimes: new ConnectTimes(),
    },
    dialErrors: { last: (name: ServicePortName, backend: string) => errors.get(`${name} ${backend}`) },
    isDrained: (each: Endpoint) => drained.has(endpointName(each)),
  } as unknown as ViewSources;
  const view = new RunningView(sources);
  /** Carries a Service port, with a listener for each of its sets at these local ports. */
  const carry = (
    port: ServicePort,
    {
      family = 'IPv4',
      localPorts = [40_000, 40_001],
      failure,
      counters = {},
      endpoints = [],
    }: {
      family?: 'IPv4' | 'IPv6';
      localPorts?: readonly (number | undefined)[];
      /** Of listeners without one. */
      failure?: string;
      counters?: Partial<Counters>;
      endpoints?: readonly EndpointStats[];
    } = {},
  ) => {
    const sets = port.local === undefined ? (['own'] as const) : (['own', 'local'] as const);
    const listeners = sets.map((set, n) => ({
      id: listenerId(port.name, family, set),
      set,
      localPort: localPorts[n],
      ...(localPorts[n] === undefined && failure !== undefined && { failure }),
    }));
    carried[family].set(port.name, { servicePort: port, listeners });
    const { name, protocol } = port;
    for (const { id, localPort } of listeners) {
      if (localPort === undefined) continue;
      const all = { ...noCounters(), ...counters };
      stats.set(id, { id, name, family, protocol, localPort, worker: 1, counters: all, endpoints });
    }
  };
  const views = (filter = {}) => [...view.services(filter)];
  return { view, carry, carried, views, problems, drained, errors, unsampled, reasons, conflicts, refused };
}

test('Services are sorted by name, IPv4 first, and filtered by namespace and Service', () => {
  const { carry, views } = setUp();
  carry(servicePort('b/web'));
  carry(servicePort('a/web:https'));
  carry(servicePort('a/web:http'));
  carry(servicePort('a/web:http'), { family: 'IPv6' });
  carry(servicePort('a/web-2'), { family: 'IPv6' });
  const seen = (filter = {}) => views(filter).map(({ name, family }) => `${name} ${family}`);
  assert.deepEqual(seen(), ['a/web-2 IPv6', 'a/web:http IPv4', 'a/web:http IPv6', 'a/web:https IPv4', 'b/web IPv4']);
  assert.deepEqual(seen({ namespace: 'b' }), ['b/web IPv4']);
  assert.deepEqual(seen({ service: 'web-2' }), ['a/web-2 IPv6']);
  assert.deepEqual(seen({ namespace: 'a', service: 'web' }).length, 3);
  assert.deepEqual(seen({ namespace: 'we' }), [], 'whole names');
});

test('each view is made when it is read, without Services that are gone by then', () => {
  const { carry, carried, view } = setUp();
  carry(servicePort('a/1'));
  carry(servicePort('a/2'));
  carry(servicePort('a/3'));
  const seen: string[] = [];
  for (const { name } of view.services()) {
    seen.push(name);
    carried.IPv4.delete('a/2');
  }
  assert.deepEqual(seen, ['a/1', 'a/3']);
});

test('counters and rates are sums over the listeners; endpoints have their own counters and errors', () => {
  const { carry, views, errors } = setUp();
  const [one, two, gone] = [endpoint('10.1.0.1'), endpoint('10.1.0.2'), endpoint('10.1.0.3')];
  const port = servicePort('a/b', {
    endpoints: [one, two],
    draining: [gone],
    local: { endpoints: [one], internal: false, external: true },
  });
  const counted = { ...noCounters(), active: 2 };
  carry(port, { counters: { connections: 5, active: 3 }, endpoints: [{ endpoint: one, counters: counted }] });
  errors.set('a/b 10.1.0.2:80', { at: 1, err: 'refused', isLatest: false });
  const [view] = views();
  assert.equal(view?.counters.connections, 10);
  assert.equal(view?.counters.active, 6);
  assert.deepEqual(view?.rates, { connections: 2, receivedBytes: 40, sentBytes: 600, failures: 0 });
  assert.deepEqual(
    view?.listeners.map(({ set, localPort, worker, traffic }) => ({ set, localPort, worker, traffic })),
    [
      { set: 'own', localPort: 40_000, worker: 1, traffic: ['internal', 'node'] },
      { set: 'local', localPort: 40_001, worker: 1, traffic: ['external'] },
    ],
  );
  assert.deepEqual(view?.listeners[0]?.endpoints, [
    { endpoint: withoutName(one), state: 'active', weight: 1, counters: counted },
    { endpoint: withoutName(two), state: 'active', weight: 1, lastError: { at: 1, err: 'refused' } },
    { endpoint: withoutName(gone), state: 'draining', weight: 0 },
  ]);
  assert.deepEqual(view?.listeners[1]?.endpoints, [
    { endpoint: withoutName(one), state: 'active', weight: 1, counters: counted },
  ]);
});

test('a Service has rates once one of its listeners was sampled', () => {
  const { carry, views, unsampled } = setUp();
  carry(servicePort('a/b', { local: { endpoints: [], internal: false, external: true } }));
  unsampled.add('a/b');
  assert.deepEqual(views()[0]?.rates, RATES);
  unsampled.add('a/b/local');
  assert.equal(views()[0]?.rates, undefined);
});

test('an ejected endpoint is shown as such, and makes its Service degraded', () => {
  const { carry, views } = setUp();
  const [one, two, gone] = [endpoint('10.1.0.1'), endpoint('10.1.0.2'), endpoint('10.1.0.3')];
  const counters = { ...noCounters(), ejected: 1 };
  const endpoints = [two, gone].map((each) => ({ endpoint: each, counters }));
  carry(servicePort('a/b', { endpoints: [one, two], draining: [gone] }), { counters: { ejected: 1 }, endpoints });
  const [view] = views();
  assert.deepEqual(
    view?.listeners[0]?.endpoints.map(({ state }) => state),
    ['active', 'ejected', 'draining'],
  );
  assert.equal(view?.state, 'degraded');
  assert.match(view?.reason ?? '', /ejected/);
});

test('an endpoint whose last dial failed is failing, unless it is ejected or gets no more connections', () => {
  const { carry, views, errors } = setUp();
  const [one, two, three, gone] = [1, 2, 3, 4].map((n) => endpoint(`10.1.0.${n}`)) as [
    NamedEndpoint,
    NamedEndpoint,
    NamedEndpoint,
    NamedEndpoint,
  ];
  const endpoints = [{ endpoint: three, counters: { ...noCounters(), ejected: 1 } }];
  carry(servicePort('a/b', { endpoints: [one, two, three], draining: [gone] }), { endpoints });
  for (const each of [two, three, gone]) {
    errors.set(`a/b ${endpointName(each)}`, { at: 1, err: 'refused', isLatest: true });
  }
  const [view] = views();
  assert.deepEqual(
    view?.listeners[0]?.endpoints.map(({ state }) => state),
    ['active', 'failing', 'ejected', 'draining'],
  );
  assert.deepEqual(view?.listeners[0]?.endpoints[1]?.lastError, { at: 1, err: 'refused' });
});

test('a Service is down while each endpoint that gets new connections is failing or ejected, also in a summary', () => {
  const { carry, views, errors, problems } = setUp();
  const [one, two, gone] = [endpoint('10.1.0.1'), endpoint('10.1.0.2'), endpoint('10.1.0.3')];
  const endpoints = [{ endpoint: two, counters: { ...noCounters(), ejected: 1 } }];
  const of = (protocol: 'TCP' | 'UDP', failedRefused: number) =>
    carry(servicePort('a/b', { protocol, endpoints: [one, two], draining: [gone] }), {
      counters: { ejected: 1, failedRefused },
      endpoints,
    });
  const states = () => [views()[0]?.state, views({ summary: true })[0]?.state];
  of('TCP', 4);
  assert.deepEqual(states(), ['degraded', 'degraded']);
  errors.set(`a/b ${endpointName(one)}`, { at: 1, err: 'refused', isLatest: true });
  assert.deepEqual(states(), ['down', 'down']);
  assert.deepEqual(views({ summary: true })[0]?.listeners[0]?.endpoints, []);
  errors.set(`a/b ${endpointName(one)}`, { at: 1, err: 'refused', isLatest: false });
  assert.deepEqual(states(), ['degraded', 'degraded'], 'one has answered since');
  of('UDP', 4);
  errors.set(`a/b ${endpointName(one)}`, { at: 1, err: 'refused', isLatest: true });
  assert.deepEqual(states(), ['degraded', 'degraded'], 'one-way datagrams are never answered');
  problems.set(listenerId('a/b', 'IPv4', 'own'), FAILED);
  assert.deepEqual(states(), ['down', 'down']);
});

test('a Service whose endpoints of an earlier boot have not answered yet says so', () => {
  const { carry, views } = setUp();
  const endpoints = [endpoint('10.1.0.1'), { ...endpoint('10.1.0.2'), isDoubtful: true }] as const;
  carry(servicePort('a/b', { endpoints }), { counters: { ejected: 1 } });
  const [view] = views();
  assert.deepEqual([view?.state, /^endpoints of an earlier boot/.test(view?.reason ?? '')], ['degraded', true]);
});

test('a summary has only the number of endpoints', () => {
  const { carry, views } = setUp();
  carry(servicePort('a/b', { draining: [endpoint('10.1.0.2')] }));
  const [view] = views({ summary: true });
  assert.deepEqual(view?.listeners[0]?.endpoints, []);
  assert.deepEqual(view?.listeners[0]?.endpointCount, { all: 2, active: 1 });
});

test('states', async (t) => {
  const ID: ListenerId = 'a/b';
  const NONE: Partial<ServicePort> = { endpoints: [] };
  const OUT = endpoint('10.1.0.9');
  const cases: [string, Partial<ServicePort>, (set: ReturnType<typeof setUp>) => void, string, RegExp | undefined][] = [
    ['serves', {}, () => {}, 'ok', undefined],
    ['has endpoints that drain by themselves', { draining: [OUT] }, () => {}, 'ok', undefined],
    ['fails', {}, ({ problems }) => problems.set(ID, FAILED), 'degraded', /an endpoint failed during the last minute/],
    ['has a drained endpoint', { draining: [OUT] }, ({ drained }) => drained.add('10.1.0.9:80'), 'degraded', /drained/],
    ['has none', NONE, () => {}, 'empty', /no endpoint is ready/],
    [
      'has none, as explain says',
      NONE,
      ({ reasons }) => reasons.set('a/b', 'all 3 endpoints are not ready'),
      'empty',
      /^all 3 endpoints are not ready$/,
    ],
    [
      'has only drained ones',
      { ...NONE, draining: [OUT] },
      ({ drained }) => drained.add('10.1.0.9:80'),
      'empty',
      /are drained/,
    ],
    ['has them elsewhere', { ...NONE, onlyElsewhere: true }, () => {}, 'empty', /no endpoint on this node/],
    [
      'has none, and clients would wait',
      { ...NONE, waitMs: 30_000 },
      () => {},
      'idle',
      /^no endpoint is ready; clients wait up to 30s for one$/,
    ],
  ];
  for (const [what, fields, arrange, state, reason] of cases) {
    await t.test(what, () => {
      const set = setUp();
      set.carry(servicePort('a/b', fields));
      arrange(set);
      const [view] = set.views();
      assert.equal(view?.state, state);
      if (reason === undefined) assert.equal(view?.reason, undefined);
      else assert.match(view?.reason ?? '', reason);
    });
  }
  await t.test('has clients who wait: without an endpoint, or because all are full', () => {
    const { carry, views } = setUp();
    const counters = { waiting: 2 };
    carry(servicePort('a/1', { ...NONE, waitMs: 30_000 }), { counters });
    carry(servicePort('a/2', { options: { maxConnections: 10 } }), { counters });
    carry(servicePort('a/3'), { counters: { waiting: 1 } });
    assert.deepEqual(
      views().map(({ state, reason, waitMs, maxConnections }) => [state, reason, waitMs, maxConnections]),
      [
        ['waiting', 'no endpoint is ready; 2 clients wait', 30_000, undefined],
        ['waiting', '2 clients wait for an endpoint that has fewer than 10 connections', undefined, 10],
        ['waiting', '1 client waits for an endpoint', undefined, undefined],
      ],
    );
  });
  await t.test('has a problem at one of its listeners', () => {
    const { carry, views, problems } = setUp();
    const local = { endpoints: [endpoint('10.1.0.1')], internal: false, external: true };
    carry(servicePort('a/b', { local }));
    problems.set(listenerId('a/b', 'IPv4', 'local'), FAILED);
    assert.equal(views()[0]?.reason, FAILED);
  });
  await t.test('goes without addresses that another has', () => {
    const { carry, views, conflicts } = setUp();
    const clusterIPs = [ip('10.96.0.1'), ip('10.96.0.2')];
    carry(servicePort('a/b', { clusterIPs, externalIPs: [ip('192.0.2.1')], nodePort: 30_080 }));
    for (const what of ['10.96.0.1:80/TCP', '192.0.2.1:81/TCP', 'NodePort 30080/TCP']) {
      conflicts.push({ owner: 'a/b', holder: 'z/z', what });
    }
    const [view] = views();
    assert.deepEqual([view?.clusterIPs, view?.externalIPs, view?.nodePort], [['10.96.0.2'], ['192.0.2.1'], 0]);
    assert.equal(view?.state, 'degraded');
    assert.equal(
      view?.reason,
      'it goes without 10.96.0.1:80/TCP, 192.0.2.1:81/TCP, NodePort 30080/TCP: z/z has it; give one of the two another ' +
        'address or NodePort',
    );
  });
  await t.test('goes without a port that a program has', () => {
    const { carry, views, refused } = setUp();
    carry(servicePort('a/b'));
    refused.push({ what: 'NodePort 22/TCP', found: 'a program on this node listens on that port' });
    const [view] = views();
    assert.equal(view?.state, 'degraded');
    assert.equal(view?.reason, 'it goes without NodePort 22/TCP: a program on this node listens on that port');
  });
  await t.test('has no listener yet', () => {
    const { carry, views } = setUp();
    carry(servicePort('a/b'), { localPorts: [undefined] });
    assert.equal(views()[0]?.state, 'pending');
    assert.equal(views()[0]?.listeners[0]?.localPort, undefined);
    assert.equal(views()[0]?.reason, 'its listener is not open yet');
  });
  await t.test('lacks one of its listeners, as the last try has failed', () => {
    const { carry, views } = setUp();
    const local = { endpoints: [endpoint('10.1.0.1')], internal: false, external: true };
    carry(servicePort('a/b', { local }), { localPorts: [40_000, undefined], failure: 'no local port is free' });
    assert.equal(views()[0]?.state, 'pending');
    assert.equal(views()[0]?.reason, 'no local port is free');
  });
});

test('connections are listed in pieces, also when most Services are idle', async () => {
  const names = Array.from({ length: 101 }, (_, index): ServicePortName => `default/s${index}`);
  const busy = 'default/s100';
  const servicePort = {
    protocol: 'TCP',
    port: 80,
    clusterIPs: [ip('10.96.0.1')],
    externalIPs: [],
    loadBalancerIPs: [],
  } as unknown as ServicePort;
  const open: OpenConnection = {
    ...{
      client: { address: ip('10.244.0.9'), port: 1 },
      endpoint: { address: ip('10.244.0.1'), port: 8080 },
    },
    state: 'established',
  };
  let looks = 0;
  let most = 0;
  const asked: ListenerId[] = [];
  const view = new RunningView({
    families: () => [
      {
        family: 'IPv4',
        names: () => names,
        carried: (name: ServicePortName) => ({
          servicePort: { ...servicePort, name },
          listeners: [{ id: name, set: 'own', localPort: 1 }],
        }),
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

function sizes(rows: Iterable<unknown>, clock = new ManualClock()): number[] {
  return [...inPieces(rows, clock, String)].map(({ length }) => length);
}

describe('pieces of rows', () => {
  test('have at most a hundred rows', () => {
    assert.deepEqual(sizes(Array(250).fill(0)), [100, 100, 50]);
    assert.deepEqual(sizes(Array(200).fill(0)), [100, 100]);
    assert.deepEqual(sizes([]), []);
  });

  test('have fewer rows when these are large', () => {
    assert.deepEqual(sizes(Array(7).fill('x'.repeat(30_000))), [3, 3, 1]);
    assert.deepEqual(sizes(['x'.repeat(1_000_000), 'x'.repeat(1_000_000)]), [1, 1]);
  });

  test('have fewer rows when these take long to make', () => {
    const clock = new ManualClock();
    function* slow() {
      for (let row = 0; row < 5; row++) {
        clock.advance(1);
        yield row;
      }
    }
    assert.deepEqual(sizes(slow(), clock), [2, 2, 1]);
  });

  test('are made only when the next one is requested', () => {
    let made = 0;
    let isOver = false;
    function* rows() {
      try {
        for (;;) yield made++;
      } finally {
        isOver = true;
      }
    }
    for (const _ of inPieces(rows(), new ManualClock(), String)) {
      assert.equal(made, 100);
      break;
    }
    assert.ok(isOver);
  });
});
