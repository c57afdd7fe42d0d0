import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { IpFamily } from '../../src/model/address.ts';
import { type EndpointAddress, type EndpointGroup, namedEndpoint } from '../../src/model/endpoint.ts';
import type { Protocol, Service, ServiceOptions } from '../../src/model/service.ts';
import { type EndpointSet, type ServicePort, type SnapshotDelta, verdictOf } from '../../src/model/service-port.ts';
import { ServiceTracker, type ServiceTrackerOptions } from '../../src/services/service-tracker.ts';
import { foundText } from '../../src/util/found.ts';
import { service as anyService, cidr, endpointAddress, address as ip } from '../support/model.ts';

function service(overrides: Partial<Service> = {}): Service {
  return anyService({ ports: [{ name: 'http', protocol: 'TCP', port: 80, nodePort: 0 }], ...overrides });
}

function group(addresses: readonly EndpointAddress[], port = 8080, name = 'http'): EndpointGroup {
  return { addresses, ports: [{ name, protocol: 'TCP', port }] };
}

const NOTHING_NEW: SnapshotDelta = {
  upserted: [],
  removed: [],
  unserved: [],
  refused: [],
  failed: new Map(),
  healthChecks: new Map(),
  triggeredAt: [],
};

function tracker(options: ServiceTrackerOptions = {}, family: IpFamily = 'IPv4') {
  const it = new ServiceTracker(family, options);
  return {
    it,
    service: (value: Service | undefined) => it.apply([{ kind: 'Service', key: 'shop/web', value }]),
    endpoints: (...groups: EndpointGroup[]) =>
      it.apply([{ kind: 'Endpoints', key: 'shop/web', value: { key: 'shop/web', groups } }]),
    slice: (name: string, value: EndpointGroup | undefined, of: 'shop/web' | 'shop/other' = 'shop/web') =>
      it.apply([
        {
          kind: 'EndpointSlice',
          key: `shop/${name}`,
          value: value && { key: `shop/${name}`, service: of, group: value },
        },
      ]),
    addresses: () => it.takeDelta().upserted.map((port) => port.endpoints.map((e) => `${e.address}:${e.port}`)),
  };
}

/** A tracker that knows shop/web. */
function serving() {
  const t = tracker();
  t.service(service());
  return t;
}

describe('a Service and its endpoints', () => {
  test('match by port name', () => {
    const t = tracker();
    t.service(
      service({
        ports: [
          { name: 'http', protocol: 'TCP', port: 80, nodePort: 0 },
          { name: 'admin', protocol: 'TCP', port: 81, nodePort: 0 },
        ],
      }),
    );
    t.endpoints(
      group([endpointAddress('10.0.0.1')], 8080, 'http'),
      group([endpointAddress('10.0.0.2')], 9090, 'admin'),
    );
    const ports = new Map(t.it.takeDelta().upserted.map((port) => [port.name, port.endpoints]));
    assert.deepEqual(ports.get('shop/web:http'), [namedEndpoint(ip('10.0.0.1'), 8080)]);
    assert.deepEqual(ports.get('shop/web:admin'), [namedEndpoint(ip('10.0.0.2'), 9090)]);
  });

  test('match by protocol, too: a UDP port does not take the TCP endpoints of its name', () => {
    for (const kind of ['slice', 'endpoints'] as const) {
      const t = tracker();
      t.service(service({ ports: [{ name: 'dns', protocol: 'UDP', port: 53, nodePort: 0 }] }));
      const both: EndpointGroup = {
        addresses: [endpointAddress('10.0.0.1')],
        ports: [
          { name: 'dns', protocol: 'TCP', port: 5353 },
          { name: 'dns', protocol: 'UDP', port: 5354 },
        ],
      };
      if (kind === 'slice') t.slice('a', both);
      else t.endpoints(both);
      assert.deepEqual(t.addresses(), [['10.0.0.1:5354']]);
    }
  });

  test('only ready addresses of the family are candidates, each once', () => {
    const t = serving();
    t.slice(
      'a',
      group([endpointAddress('10.0.0.2'), endpointAddress('10.0.0.1'), endpointAddress('10.0.0.3', { ready: false })]),
    );
    t.slice('b', group([endpointAddress('10.0.0.1'), endpointAddress('fd00::1')]));
    assert.deepEqual(t.addresses(), [['10.0.0.1:8080', '10.0.0.2:8080']]);
  });
});

describe('slices', () => {
  test('report once when their changes were triggered, except slices of the other family', () => {
    const t = tracker();
    const slice = (name: 'a' | 'b', text: string, triggeredAt: number) =>
      t.it.apply([
        {
          kind: 'EndpointSlice',
          key: `shop/${name}`,
          value: { key: `shop/${name}`, service: 'shop/web', group: group([endpointAddress(text)]), triggeredAt },
        },
      ]);
    t.service(service());
    slice('a', '10.0.0.1', 1_000);
    slice('a', '10.0.0.2', 2_000);
    slice('b', 'fd00::1', 3_000);
    assert.deepEqual(t.it.takeDelta().triggeredAt, [1_000, 2_000]);
    t.service(service({ affinity: { type: 'ClientIP', timeoutSeconds: 5 } }));
    assert.deepEqual(t.it.takeDelta().triggeredAt, []);
  });

  test('keep the first of very many triggers', () => {
    const t = serving();
    for (let triggeredAt = 1; triggeredAt <= 2_000; triggeredAt++) {
      const value = { key: 'shop/a' as const, service: 'shop/web' as const, group: group([]), triggeredAt };
      t.it.apply([
        {
          kind: 'EndpointSlice',
          key: 'shop/a',
          value: { ...value, group: group([endpointAddress(`10.0.0.${1 + (triggeredAt % 2)}`)]) },
        },
      ]);
    }
    const { triggeredAt, upserted } = t.it.takeDelta();
    assert.equal(upserted.length, 1);
    assert.deepEqual([triggeredAt[0], triggeredAt.length <= 1_000], [1, true]);
  });

  test('of one Service merge, and take precedence over Endpoints while there is one', () => {
    const t = serving();
    t.endpoints(group([endpointAddress('10.0.0.9')]));
    t.slice('a', group([endpointAddress('10.0.0.1')]));
    t.slice('b', group([endpointAddress('10.0.0.2')], 8081));
    assert.deepEqual(t.addresses(), [['10.0.0.1:8080', '10.0.0.2:8081']]);
    t.slice('a', undefined);
    t.slice('b', undefined);
    assert.deepEqual(t.addresses(), [['10.0.0.9:8080']]);
  });
});

describe('a delta', () => {
  test('has the other Services where one cannot be derived, which keeps its last state and is reported once', () => {
    let fault: string | undefined;
    const t = tracker({
      isListening: () => {
        if (fault !== undefined) throw new Error(fault);
        return false;
      },
    });
    t.it.setNodeAddresses([ip('192.0.2.1')]);
    const change = (port: number) => {
      t.service(
        service({ externalIPs: [ip('192.0.2.1')], ports: [{ name: 'http', protocol: 'TCP', port, nodePort: 0 }] }),
      );
      for (const key of ['shop/a', 'shop/b'] as const) {
        const ports = [{ name: 'http', protocol: 'TCP' as const, port, nodePort: 0 }];
        t.it.apply([{ kind: 'Service', key, value: service({ key, ports }) }]);
      }
      const { upserted, removed, failed } = t.it.takeDelta();
      assert.equal(t.it.pendingServices, 0);
      const faults = [...failed].map(([key, err]) => [key, err?.split('\n')[0]]);
      return [upserted.map(({ name }) => name).sort(), removed, faults];
    };
    const others = ['shop/a:http', 'shop/b:http'];
    assert.deepEqual(change(80), [[...others, 'shop/web:http'], [], []]);
    fault = 'a defect';
    assert.deepEqual(change(81), [others, [], [['shop/web', 'Error: a defect']]]);
    assert.deepEqual(change(82), [others, [], []]);
    fault = 'another defect';
    assert.deepEqual(change(83), [others, [], [['shop/web', 'Error: another defect']]]);
    fault = undefined;
    assert.deepEqual(change(84), [[...others, 'shop/web:http'], [], [['shop/web', undefined]]]);
  });

  test('derives only the Services that name an address which the node has got or lost', () => {
    const t = serving();
    t.it.apply(
      Array.from({ length: 1_000 }, (_, i) => {
        const key = `shop/s${i}` as const;
        return { kind: 'Service', key, value: service({ key, ports: [] }) };
      }),
    );
    t.it.apply([
      {
        kind: 'Service',
        key: 'shop/s1',
        value: service({ key: 'shop/s1', externalIPs: [ip('192.0.2.1')] }),
      },
    ]);
    t.endpoints(group([endpointAddress('192.0.2.2')]));
    t.it.takeDelta();
    const derived = (...addresses: string[]) => {
      t.it.setNodeAddresses(addresses.map(ip));
      const { pendingServices } = t.it;
      t.it.takeDelta();
      return pendingServices;
    };
    assert.equal(derived('10.0.0.1', '169.254.0.1'), 0);
    assert.equal(derived('10.0.0.1', '192.0.2.1'), 1, 'an external IP');
    assert.equal(derived('10.0.0.1', '192.0.2.1', '192.0.2.2'), 1, 'an endpoint');
    assert.equal(derived('10.0.0.1'), 2);
    const key = 'shop/s2';
    t.it.apply([{ kind: 'Service', key, value: service({ key, clusterIPs: [ip('192.0.2.3')] }) }]);
    t.it.takeDelta();
    assert.equal(derived('10.0.0.1', '192.0.2.3'), 1, 'a cluster IP');
    assert.equal(derived('10.0.0.1'), 1);
    assert.equal(derived('10.0.0.1', '169.254.0.1'), 0);
  });

  test('is empty when an edit was undone, or when only the order differs', () => {
    const t = serving();
    t.endpoints(group([endpointAddress('10.0.0.1'), endpointAddress('10.0.0.2')]));
    t.it.takeDelta();
    t.service(service({ externalIPs: [ip('192.0.2.1')] }));
    t.service(service());
    t.endpoints(group([endpointAddress('10.0.0.2'), endpointAddress('10.0.0.1')]));
    assert.deepEqual(t.it.takeDelta(), NOTHING_NEW);
  });

  test('reports a renamed port as one removed and one added', () => {
    const t = serving();
    t.it.takeDelta();
    t.service(service({ ports: [{ name: 'web', protocol: 'TCP', port: 80, nodePort: 0 }] }));
    const delta = t.it.takeDelta();
    assert.deepEqual(delta.removed, ['shop/web:http']);
    assert.deepEqual(
      delta.upserted.map((port) => port.name),
      ['shop/web:web'],
    );
  });

  test('reports ports that cannot be served, and serves the others', () => {
    const ports: [string, Protocol][] = [
      ['http', 'TCP'],
      ['sctp', 'SCTP'],
    ];
    const t = tracker();
    const specs = ports.map(([name, protocol], i) => ({ name, protocol, port: 80 + i, nodePort: 0 }));
    t.service(service({ uid: 'a-b-c', ports: specs }));
    const delta = t.it.takeDelta();
    assert.deepEqual(
      delta.upserted.map((port) => port.name),
      ['shop/web:http'],
    );
    assert.deepEqual(
      delta.unserved.map((port) => [port.name, port.uid]),
      [['shop/web:sctp', 'a-b-c']],
    );
    assert.equal(t.it.uidOf('shop/web:http'), 'a-b-c');
    assert.equal(t.it.uidOf('shop/other'), undefined);
    t.service(service({ clusterIPs: [ip('fd00::1')] }));
    assert.match(t.it.takeDelta().unserved[0]?.found ?? '', /no IPv4 cluster IP/);
  });

  test('may be taken in parts', () => {
    const t = serving();
    t.it.apply([{ kind: 'Service', key: 'shop/other', value: service({ key: 'shop/other' }) }]);
    for (const isMore of [true, false]) {
      assert.equal(t.it.takeDelta(1).upserted.length, 1);
      assert.equal(t.it.pendingServices > 0, isMore);
    }
  });

  test('holds frozen values', () => {
    const t = serving();
    const [first] = t.it.takeDelta().upserted;
    assert.ok(first);
    assert.throws(() => Object.assign(first, { port: 81 }), TypeError);
  });
});

describe('traffic policies', () => {
  const HERE = { nodeName: 'n1' };
  const onNode = (text: string, nodeName: string, more: Partial<EndpointAddress> = {}) =>
    endpointAddress(text, { nodeName, ...more });
  const nodePort = [{ name: 'http', protocol: 'TCP', port: 80, nodePort: 30_080 }] as const;
  const told = (set: EndpointSet | undefined) =>
    set && {
      verdict: verdictOf(set, 'own'),
      endpoints: set.endpoints.map((endpoint) => endpoint.address),
      draining: set.draining?.map((endpoint) => endpoint.address) ?? [],
    };
  const only = (t: ReturnType<typeof tracker>) => {
    const { upserted } = t.it.takeDelta();
    assert.equal(upserted.length, 1);
    const [{ local, ...own } = assert.fail()] = upserted;
    return { own: told(own), local: told(local), takes: local && [local.internal, local.external] };
  };
  const GROUP = group([onNode('10.0.0.1', 'n1'), onNode('10.0.0.2', 'n2')]);
  const ALL = { verdict: 'proxy', endpoints: ['10.0.0.1', '10.0.0.2'], draining: [] };
  const OURS = { verdict: 'proxy', endpoints: ['10.0.0.1'], draining: ['10.0.0.2'] };

  const cases: readonly [what: string, Partial<Service>, expected: object][] = [
    ['Cluster', { ports: nodePort }, { own: ALL, local: undefined, takes: undefined }],
    [
      'external Local',
      { ports: nodePort, externalTrafficPolicy: 'Local' },
      { own: ALL, local: OURS, takes: [false, true] },
    ],
    [
      'internal Local',
      { ports: nodePort, internalTrafficPolicy: 'Local' },
      { own: ALL, local: OURS, takes: [true, false] },
    ],
    [
      'both Local',
      { ports: nodePort, internalTrafficPolicy: 'Local', externalTrafficPolicy: 'Local' },
      { own: ALL, local: OURS, takes: [true, true] },
    ],
    [
      'external Local by a load balancer',
      { loadBalancerIPs: [ip('203.0.113.1')], externalTrafficPolicy: 'Local' },
      { own: ALL, local: OURS, takes: [false, true] },
    ],
    [
      'external Local by an external IP',
      { externalIPs: [ip('203.0.113.1')], externalTrafficPolicy: 'Local' },
      { own: ALL, local: OURS, takes: [false, true] },
    ],
    [
      'external Local by a load balancer of another family',
      { loadBalancerIPs: [ip('2001:db8::1')], externalTrafficPolicy: 'Local' },
      { own: ALL, local: undefined, takes: undefined },
    ],
  ];
  for (const [what, fields, expected] of cases) {
    test(`${what}: the endpoint sets, and the traffic that each gets`, () => {
      const t = tracker();
      t.it.setTopology(HERE);
      t.service(service(fields));
      t.slice('a', GROUP);
      assert.deepEqual(only(t), expected);
    });
  }

  test('traffic without endpoints is rejected, and dropped where others could serve it', () => {
    const t = tracker();
    t.it.setTopology(HERE);
    t.service(service({ ports: nodePort, externalTrafficPolicy: 'Local' }));
    const NOBODY = { verdict: 'reject', endpoints: [], draining: [] };
    assert.deepEqual(only(t), { own: NOBODY, local: NOBODY, takes: [false, true] });
    t.slice('a', group([onNode('10.0.0.2', 'n2')]));
    const OTHERS = { endpoints: ['10.0.0.2'], draining: [] };
    assert.deepEqual(only(t), {
      own: { verdict: 'proxy', ...OTHERS },
      local: { verdict: 'drop', endpoints: [], draining: ['10.0.0.2'] },
      takes: [false, true],
    });
    t.service(service({ internalTrafficPolicy: 'Local' }));
    assert.deepEqual(only(t), {
      own: { verdict: 'drop', endpoints: [], draining: ['10.0.0.2'] },
      local: undefined,
      takes: undefined,
    });
  });

  test('the second set exists as long as the Service, with and without endpoints', () => {
    const t = tracker();
    t.it.setTopology(HERE);
    t.service(service({ ports: nodePort, externalTrafficPolicy: 'Local' }));
    for (const addresses of [[], [onNode('10.0.0.1', 'n1')], [onNode('10.0.0.2', 'n2')], []]) {
      t.slice('a', group(addresses));
      for (const port of t.it.takeDelta().upserted) assert.ok(port.local);
    }
  });

  test('take effect once the node is known, and again when it changes', () => {
    const t = tracker();
    t.service(service({ internalTrafficPolicy: 'Local' }));
    t.slice('a', GROUP);
    assert.deepEqual(only(t).own?.verdict, 'drop');
    t.it.setTopology({ nodeName: 'n1' });
    assert.deepEqual(only(t).own, OURS);
    t.it.setTopology({ nodeName: 'n1' });
    assert.equal(t.it.pendingServices, 0);
    t.it.setTopology({ nodeName: 'n2' });
    assert.deepEqual(only(t).own?.endpoints, ['10.0.0.2']);
  });

  test('a health check counts the ready addresses of the node once, whatever their ports', () => {
    const t = tracker();
    t.it.setTopology(HERE);
    const ports = ['http', 'admin'].map((name, i) => ({ name, protocol: 'TCP' as const, port: 80 + i, nodePort: 0 }));
    t.service(service({ ports, externalTrafficPolicy: 'Local', healthCheckNodePort: 32_000 }));
    const addresses = [
      onNode('10.0.0.1', 'n1'),
      onNode('10.0.0.2', 'n1', { ready: false, terminating: true }),
      onNode('10.0.0.3', 'n2'),
    ];
    t.slice('a', group(addresses));
    t.slice('b', group([...addresses, onNode('10.0.0.4', 'n1')], 9090, 'admin'));
    const checks = () => [...t.it.takeDelta().healthChecks];
    assert.deepEqual(checks(), [['shop/web', { port: 32_000, localEndpoints: 2 }]]);
    t.slice('b', group([onNode('10.0.0.1', 'n1')], 9091, 'admin'));
    assert.deepEqual(checks(), [['shop/web', { port: 32_000, localEndpoints: 1 }]]);
    t.slice('b', group([onNode('10.0.0.1', 'n1')], 9092, 'admin'));
    assert.deepEqual(checks(), []);
    t.service(undefined);
    assert.deepEqual(checks(), [['shop/web', undefined]]);
  });
});

describe('an endpoint', () => {
  const states = (t: ReturnType<typeof tracker>) => {
    const [port = assert.fail()] = t.it.takeDelta().upserted;
    return [port.endpoints.length, port.draining?.length ?? 0];
  };

  test('is used while ready, drains while it is listed, and is removed when nothing lists it', () => {
    const t = serving();
    const with2 = (state: Partial<EndpointAddress>) => {
      t.slice('a', group([endpointAddress('10.0.0.1'), endpointAddress('10.0.0.2', state)]));
      return states(t);
    };
    assert.deepEqual(with2({}), [2, 0]);
    assert.deepEqual(with2({ ready: false, serving: true, terminating: true }), [1, 1]);
    t.slice('a', group([endpointAddress('10.0.0.1')]));
    assert.deepEqual(states(t), [1, 0]);
    assert.deepEqual(with2({ ready: false, serving: false }), [1, 1]);
  });

  test('that two slices list in different states has the better state, in any order', () => {
    const where = { address: ip('10.0.0.1'), terminating: true, ready: false };
    const old: EndpointAddress = { nodeName: 'z', ...where, serving: false };
    const dying: EndpointAddress = { nodeName: 'a', ...where, serving: true };
    for (const [a, b, expected] of [
      [old, endpointAddress('10.0.0.1'), [1, 0]],
      [endpointAddress('10.0.0.1'), dying, [1, 0]],
      [old, dying, [1, 0]],
      [dying, old, [1, 0]],
    ] as const) {
      const t = serving();
      t.slice('a', group([a]));
      t.slice('b', group([b]));
      assert.deepEqual(states(t), expected);
    }
  });

  test('that two slices place on different nodes is on one of them, in any order', () => {
    const place = (...nodeNames: readonly string[]) => {
      const t = tracker();
      t.it.setTopology({ nodeName: 'n1' });
      t.service(service({ internalTrafficPolicy: 'Local' }));
      for (const nodeName of nodeNames) t.slice(nodeName, group([endpointAddress('10.0.0.1', { nodeName })]));
      return t.addresses();
    };
    assert.deepEqual(place('n1', 'n2'), place('n2', 'n1'));
  });
});

describe('two families', () => {
  const served = ['IPv4', 'IPv6'] as const;
  const both = () => served.map((family) => tracker({ servedFamilies: () => served }, family));

  test('each serves its own part of a Service', () => {
    const dual = service({
      clusterIPs: [ip('10.96.0.1'), ip('fd00::1')],
      externalIPs: [ip('2001:db8::1')],
      loadBalancerSourceRanges: [cidr('192.0.2.0/24')],
    });
    const seen = both().map((t) => {
      t.service(dual);
      t.slice('a', group([endpointAddress('10.0.0.1')]));
      t.slice('b', group([endpointAddress('fd00:1::1')]));
      const { upserted, unserved } = t.it.takeDelta();
      const [{ clusterIPs, externalIPs, endpoints, loadBalancerSourceRanges } = assert.fail()] = upserted;
      const ranges = loadBalancerSourceRanges?.map(({ network }) => network);
      return [clusterIPs, externalIPs, endpoints.map((endpoint) => endpoint.address), ranges, unserved.length];
    });
    assert.deepEqual(seen, [
      [['10.96.0.1'], [], ['10.0.0.1'], ['192.0.2.0'], 0],
      // Whom the ranges do not name stays out, in either family.
      [['fd00::1'], ['2001:db8::1'], ['fd00:1::1'], [], 0],
    ]);
  });

  test('a Service of one family is not reported as unserved by the other', () => {
    for (const t of both()) {
      t.service(service({ clusterIPs: [ip('fd00::1')] }));
      assert.deepEqual(t.it.takeDelta().unserved, []);
    }
  });

  test('only one of them reports what is wrong with a Service', () => {
    const ports = [{ name: 'sctp', protocol: 'SCTP' as const, port: 80, nodePort: 0 }];
    for (const clusterIPs of [['10.96.0.1', 'fd00::1'], ['fd00::1'], ['10.96.0.1']]) {
      const told = both().flatMap((t) => {
        t.service(service({ ports, clusterIPs: clusterIPs.map(ip) }));
        return t.it.takeDelta().unserved;
      });
      assert.equal(told.length, 1);
    }
  });
});

describe('addresses that would lead back to the proxy', () => {
  const NODE = ip('192.0.2.1');
  const listening = { ports: new Set<number>(), programs: new Set<number>() };
  const onNode = (options: Partial<ServiceTrackerOptions> = {}) => {
    listening.ports.clear();
    listening.programs.clear();
    const isListening = (address: string | undefined, port: number) =>
      (address ?? NODE) === NODE && listening.programs.has(port);
    const t = tracker({ isListening, ...options });
    t.it.addresses.proxyPorts = { TCP: listening.ports, UDP: listening.ports };
    t.it.setNodeAddresses([NODE]);
    t.service(service());
    return {
      ...t,
      other: (overrides: Partial<Service> | undefined) =>
        t.it.apply([{ kind: 'Service', key: 'shop/b', value: overrides && service({ key: 'shop/b', ...overrides }) }]),
      /** The endpoints of shop/web, if they changed, and what was refused. */
      news: () => {
        const { upserted, refused } = t.it.takeDelta();
        const web = upserted.find(({ name }) => name === 'shop/web:http');
        return [web?.endpoints.map((e) => e.port), refused.map(({ what }) => what)];
      },
    };
  };

  test('a Service that names this node is derived anew when a NodePort comes or goes, not when its Service changes', () => {
    const t = onNode();
    t.slice('a', group([endpointAddress(NODE)]));
    t.it.takeDelta();
    const ports = [{ name: '', protocol: 'TCP', port: 443, nodePort: 30_080 }] as const;
    for (const [overrides, pending] of [
      [{ ports }, 2],
      [{ ports, externalIPs: [ip('192.0.2.200')] }, 1],
      [{ ports: ports.map((each) => ({ ...each, nodePort: 30_081 })) }, 2],
      [{}, 2],
      [{ externalIPs: [ip('192.0.2.200')] }, 1],
    ] as const) {
      t.other({ clusterIPs: [ip('10.96.0.9')], ...overrides });
      assert.equal(t.it.pendingServices, pending, JSON.stringify(overrides));
      t.it.takeDelta();
    }
  });

  test("an endpoint with another Service's address is refused while that Service has it", () => {
    const t = onNode();
    t.slice('a', group([endpointAddress('10.96.0.9')], 443));
    assert.deepEqual(t.news(), [[443], []]);
    t.other({ clusterIPs: [ip('10.96.0.9')], ports: [{ name: '', protocol: 'TCP', port: 443, nodePort: 0 }] });
    assert.deepEqual(t.news(), [[], ['endpoint 10.96.0.9:443']]);
    t.other({ clusterIPs: [ip('10.96.0.9')], ports: [{ name: '', protocol: 'UDP', port: 443, nodePort: 0 }] });
    assert.deepEqual(t.news(), [[443], []]);
    t.other({ loadBalancerIPs: [ip('10.96.0.9')], ports: [{ name: '', protocol: 'TCP', port: 443, nodePort: 0 }] });
    assert.deepEqual(t.news(), [[], ['endpoint 10.96.0.9:443']]);
    t.other({ loadBalancerIPs: [ip('10.96.0.9')], ports: [{ name: '', protocol: 'TCP', port: 444, nodePort: 0 }] });
    assert.deepEqual(t.news(), [[443], []]);
    t.other({ externalIPs: [ip('10.96.0.9')], ports: [{ name: '', protocol: 'TCP', port: 443, nodePort: 0 }] });
    assert.deepEqual(t.news(), [undefined, ['external IP 10.96.0.9:443']]);
    t.other({ clusterIPs: [ip('10.96.0.9')], ports: [{ name: '', protocol: 'TCP', port: 443, nodePort: 0 }] });
    t.news();
    t.other(undefined);
    assert.deepEqual(t.news(), [[443], []]);
  });

  test('an endpoint at a NodePort or a port of the proxy on this node is refused', () => {
    const t = onNode();
    t.endpoints(
      group([endpointAddress('192.0.2.1')], 30_080),
      group([endpointAddress('192.0.2.1'), endpointAddress('192.0.2.2')], 40_001),
    );
    assert.deepEqual(t.news(), [[30_080, 40_001, 40_001], []]);
    t.other({ ports: [{ name: '', protocol: 'TCP', port: 1, nodePort: 30_080 }] });
    assert.deepEqual(t.news(), [[40_001, 40_001], ['endpoint 192.0.2.1:30080']]);
    listening.ports.add(40_001);
    t.it.listeningChanged();
    assert.deepEqual(t.news(), [[40_001], ['endpoint 192.0.2.1:40001']]);
    t.it.setNodeAddresses([ip('192.0.2.3')]);
    assert.deepEqual(t.news(), [[30_080, 40_001, 40_001], []]);
  });

  test('an endpoint at any loopback address is refused while the proxy has its port', () => {
    const t = onNode();
    t.endpoints(group([endpointAddress('127.0.0.2')], 40_001));
    assert.deepEqual(t.news(), [[40_001], []]);
    listening.ports.add(40_001);
    t.it.listeningChanged();
    assert.deepEqual(t.news(), [[], ['endpoint 127.0.0.2:40001']]);
    listening.ports.delete(40_001);
    t.it.listeningChanged();
    assert.deepEqual(t.news(), [[40_001], []]);
    t.endpoints(group([endpointAddress('10.0.0.1')], 40_001));
    t.news();
    t.it.listeningChanged();
    assert.equal(t.it.pendingServices, 0, 'it has no loopback address any more');
  });

  test('an external IP is not served where an endpoint has its address and port, and rules spare the proxy', () => {
    const t = onNode({ isMarking: true });
    t.service(service({ externalIPs: [NODE, ip('192.0.2.2')] }));
    t.endpoints(group([endpointAddress(NODE), endpointAddress('192.0.2.2')], 80));
    const { upserted, refused } = t.it.takeDelta();
    assert.deepEqual([upserted[0]?.externalIPs, upserted[0]?.endpoints.length], [['192.0.2.2'], 2]);
    assert.match(
      refused.map((part) => `${part.what}: ${foundText(part)}`).join(),
      /^external IP 192.0.2.1:80: .*keeps/,
    );
  });

  test('ports of the node that a Service needs are known, and reported when they are new', () => {
    const t = onNode();
    const ports = [{ name: 'http', protocol: 'UDP' as const, port: 80, nodePort: 30_080 }];
    t.service(service({ ports, healthCheckNodePort: 32_000 }));
    t.other({ ports });
    assert.deepEqual(t.it.addresses.takeNewPorts(), [
      { port: 30_080, protocol: 'UDP' },
      { port: 32_000, protocol: 'TCP' },
    ]);
    const needed = () =>
      [30_080, 32_000].flatMap((port) => [
        t.it.addresses.needsPort(port, 'TCP'),
        t.it.addresses.needsPort(port, 'UDP'),
      ]);
    assert.deepEqual(needed(), [false, true, true, false]);
    t.service(undefined);
    assert.deepEqual(needed(), [false, true, false, false]);
    t.other(undefined);
    assert.deepEqual(needed(), [false, false, false, false]);
    assert.deepEqual(t.it.addresses.takeNewPorts(), []);
  });

  test("an endpoint at the NodePort's own number and this node's address is named, while it can serve", () => {
    const t = onNode();
    const named = () => t.it.takeDelta().upserted.map(({ namedEndpoints }) => namedEndpoints);
    const ports = [{ name: 'http', protocol: 'TCP' as const, port: 80, nodePort: 30_080 }];
    t.service(service({ ports }));
    t.endpoints(group([endpointAddress('192.0.2.1'), endpointAddress('192.0.2.2')], 30_080));
    assert.deepEqual(named(), [['192.0.2.1']]);
    t.endpoints(group([endpointAddress('192.0.2.1'), endpointAddress('192.0.2.2')], 8_080));
    assert.deepEqual(named(), [undefined]);
    t.endpoints(group([endpointAddress('192.0.2.1', { ready: false }), endpointAddress('192.0.2.2')], 30_080));
    assert.deepEqual(named(), [undefined]);
    t.endpoints(group([endpointAddress('192.0.2.1')], 30_080));
    t.it.setWeights([{ address: ip('192.0.2.1'), port: 30_080, weight: 0 }]);
    assert.deepEqual(named(), [undefined]);
    t.it.setWeights([]);
    assert.deepEqual(named(), [['192.0.2.1']]);
    t.it.setNodeAddresses([ip('192.0.2.3')]);
    assert.deepEqual(named(), [undefined]);
  });

  test('a program at a NodePort counts as an endpoint of the Service only if somebody vouches for the endpoint', () => {
    const t = onNode({ isMarking: true, nodeEndpointPorts: [] });
    listening.programs.add(30_080);
    t.service(service({ ports: [{ name: 'http', protocol: 'TCP', port: 80, nodePort: 30_080 }] }));
    for (const [overrides, nodePort] of [
      [{}, 0],
      [{ isVouchedFor: true }, 30_080],
    ] as const) {
      t.endpoints(group([endpointAddress(NODE, overrides)], 30_080));
      assert.equal(t.it.takeDelta().upserted[0]?.nodePort, nodePort);
    }
  });

  test('an endpoint at an address of this node is refused for as long as nobody vouches for it', () => {
    const t = onNode({ isMarking: true, nodeEndpointPorts: [] });
    const ports = [{ name: 'http', protocol: 'TCP' as const, port: 80, nodePort: 30_080 }];
    t.service(service({ ports, uid: 'u-1' }));
    const news = () => {
      const { upserted, refused } = t.it.takeDelta();
      const [web] = upserted;
      return [web?.endpoints.length, web?.namedEndpoints, web?.closedEndpoints, refused.map(({ uid }) => uid)];
    };
    t.endpoints(group([endpointAddress('192.0.2.1'), endpointAddress('192.0.2.2')], 30_080));
    assert.deepEqual(news(), [1, ['192.0.2.1'], ['192.0.2.1'], ['u-1']]);
    const [here] = t.it.candidates('shop/web:http', 'own');
    assert.match(here?.reason ?? '', /no Pod, .* --node-endpoint-ports opens it/);
    t.endpoints(group([endpointAddress('192.0.2.1', { isVouchedFor: true }), endpointAddress('192.0.2.2')], 30_080));
    assert.deepEqual(news(), [2, ['192.0.2.1'], undefined, []]);
    t.it.setNodeAddresses([ip('192.0.2.1'), ip('192.0.2.2')]);
    assert.deepEqual(news(), [1, ['192.0.2.1', '192.0.2.2'], ['192.0.2.2'], ['u-1']]);
  });

  test('a refused endpoint is reported once, and again when it comes back', () => {
    const t = onNode();
    t.slice('a', group([endpointAddress('10.96.0.1'), endpointAddress('10.0.0.1')], 80));
    assert.deepEqual(t.news(), [[80], ['endpoint 10.96.0.1:80']]);
    t.slice('a', group([endpointAddress('10.96.0.1'), endpointAddress('10.0.0.2')], 80));
    assert.deepEqual(t.news(), [[80], []]);
    t.slice('a', group([endpointAddress('10.0.0.2')], 80));
    t.news();
    t.slice('a', group([endpointAddress('10.96.0.1'), endpointAddress('10.0.0.2')], 80));
    assert.deepEqual(t.news(), [undefined, ['endpoint 10.96.0.1:80']]);
  });

  test('of many refused endpoints only a few are named', () => {
    const t = onNode();
    const ips = Array.from({ length: 500 }, (_, i) => ip(`10.97.${i >> 8}.${i & 255}`));
    t.other({ loadBalancerIPs: ips, ports: [{ name: '', protocol: 'TCP', port: 443, nodePort: 0 }] });
    t.slice(
      'a',
      group(
        ips.map((text) => endpointAddress(text)),
        443,
      ),
    );
    const [, told] = t.news();
    assert.deepEqual(told, ['endpoint 10.97.0.0:443, 10.97.0.100:443, 10.97.0.101:443 and 497 more']);
  });

  test('an external IP is not taken from a program that listens there, nor from a cluster IP', () => {
    const t = onNode();
    const externalIPs = () => t.it.takeDelta().upserted.flatMap((port) => port.externalIPs);
    t.service(service({ externalIPs: [NODE, ip('198.51.100.1'), ip('10.96.0.9')] }));
    assert.deepEqual(externalIPs(), [NODE, '198.51.100.1', '10.96.0.9']);
    listening.programs.add(80);
    t.it.listeningChanged();
    assert.deepEqual(externalIPs(), ['198.51.100.1', '10.96.0.9']);
    t.other({ clusterIPs: [ip('10.96.0.9')] });
    assert.deepEqual(externalIPs(), ['198.51.100.1']);
  });

  describe('a port of this node', () => {
    const OTHER = ip('192.0.2.7');
    const ports = [{ name: 'http', protocol: 'TCP' as const, port: 80, nodePort: 30_080 }];
    /** What it gets, and what the log says. */
    const told = (t: ReturnType<typeof onNode>) => {
      const { upserted, refused } = t.it.takeDelta();
      const web = upserted.find(({ name }) => name === 'shop/web:http');
      return [web?.nodePort, web?.clusterIPs, refused.map((part) => `${part.what}: ${foundText(part)}`)];
    };
    const LISTENS = 'a program on this node listens on that port; stop it, or choose another port';

    test('is not taken as a NodePort from a program that listens there, until it has ended', () => {
      const t = onNode();
      listening.programs.add(30_080);
      t.service(service({ ports, uid: 'u-1' }));
      const { refused } = t.it.takeDelta();
      assert.deepEqual(
        refused.map((part) => [part.name, part.what, foundText(part), part.uid]),
        [['shop/web:http', 'NodePort 30080/TCP', LISTENS, 'u-1']],
      );
      t.it.listeningChanged();
      assert.deepEqual(told(t), [undefined, undefined, []], 'it is said once');
      listening.programs.clear();
      t.it.listeningChanged();
      assert.equal(told(t)[0], 30_080);
      t.it.listeningChanged();
      assert.equal(t.it.pendingServices, 0, 'it waits for nothing any more');
    });

    test('is not taken as that of a cluster IP, only from other addresses', () => {
      const t = onNode();
      listening.programs.add(80);
      t.service(service({ clusterIPs: [NODE, OTHER] }));
      assert.deepEqual(told(t), [0, [OTHER], [`cluster IP ${NODE}:80: ${LISTENS}`]]);
      listening.programs.clear();
      t.it.listeningChanged();
      assert.deepEqual(told(t), [0, [NODE, OTHER], []]);
    });

    test('stays with the Service port to which the installed rules route it', () => {
      let holder = 'shop/web:http';
      const t = onNode({ holds: (name) => name === holder });
      listening.programs.add(30_080);
      t.service(service({ ports }));
      assert.deepEqual(told(t), [30_080, ['10.96.0.1'], []]);
      holder = 'shop/b:http';
      t.endpoints(group([endpointAddress('10.0.0.1')]));
      assert.equal(told(t)[0], 0);
    });

    test('asks the kernel nothing about a port that the Service port has already', () => {
      const t = onNode({ holds: () => true, isListening: () => assert.fail('it reads what all programs listen at') });
      t.service(service({ ports }));
      assert.equal(told(t)[0], 30_080);
    });

    test("is never taken from the proxy's own HTTP servers, whoever has it", () => {
      const t = onNode({ httpPorts: new Set([30_080]), holds: () => true });
      t.service(service({ ports }));
      assert.deepEqual(told(t)[2], ["NodePort 30080/TCP: it is an HTTP port of the proxy's own; choose another port"]);
      t.service(service({ ports: [{ ...ports[0]!, protocol: 'UDP' }] }));
      assert.equal(told(t)[0], 30_080, 'UDP has ports of its own');
    });

    test('is no matter where NodePorts are not served, nor where the program is an endpoint of the Service', () => {
      let addresses: readonly ReturnType<typeof ip>[] | undefined = [OTHER];
      const t = onNode({ nodePortAddresses: () => addresses });
      listening.programs.add(30_080);
      t.service(service({ ports }));
      assert.equal(told(t)[0], 30_080);
      addresses = undefined;
      t.service(service({ ports, uid: 'u-2' }));
      assert.equal(told(t)[0], 0);
      t.endpoints(group([endpointAddress(NODE, { ready: false })], 30_080));
      assert.equal(told(t)[0], 30_080);
    });

    test('of two families is named with the family', () => {
      const t = onNode({ servedFamilies: () => ['IPv4', 'IPv6'] });
      listening.programs.add(30_080);
      t.service(service({ ports }));
      assert.deepEqual(told(t)[2], [`NodePort 30080/TCP over IPv4: ${LISTENS}`]);
    });
  });

  test('an external IP is not taken from an endpoint for as long as there is one', () => {
    const t = onNode();
    for (const external of [NODE, ip('192.0.2.2')]) {
      t.service(service({ externalIPs: [external] }));
      t.it.takeDelta();
      t.other({ ports: [{ name: '', protocol: 'TCP', port: 80, nodePort: 0 }] });
      t.it.takeDelta();
      const name = `external IP ${external}:80`;
      t.slice('other', group([endpointAddress(external)], 80), 'shop/other');
      assert.deepEqual(
        t.it.takeDelta().refused.map(({ what }) => what),
        [name],
      );
      // At an address of another machine, all ports are left to it.
      t.slice('other', group([endpointAddress(external)], 81), 'shop/other');
      const { upserted, refused } = t.it.takeDelta();
      const served = upserted.find((port) => port.name === 'shop/web:http')?.externalIPs;
      if (external === NODE) assert.deepEqual(served, [external]);
      else assert.match(refused[0]?.found ?? '', /an endpoint of another Service has this address/);
      t.slice('other', undefined);
      t.it.takeDelta();
    }
  });

  test('an external IP is not taken from the API server, wherever that is found to be', () => {
    const servers: { address: ReturnType<typeof ip>; port: number }[] = [];
    const t = onNode({ apiServers: () => servers });
    const at = ip('203.0.113.6');
    t.service(service({ externalIPs: [at], ports: [{ name: 'http', protocol: 'TCP', port: 6443, nodePort: 0 }] }));
    assert.deepEqual(t.it.takeDelta().upserted[0]?.externalIPs, [at]);
    servers.push({ address: at, port: 6443 });
    t.it.listeningChanged();
    const { upserted, refused } = t.it.takeDelta();
    assert.deepEqual([upserted[0]?.externalIPs, refused.map(({ found }) => found)], [[], ['it is the API server']]);
  });
});

describe('weights', () => {
  const weighted = (addresses: readonly string[], weight: number) => ({
    ...group(addresses.map((text) => endpointAddress(text))),
    weight,
  });
  const endpointsOf = (port: ServicePort | undefined) =>
    port?.endpoints.map((each) => `${each.address} ${each.weight ?? '-'}`);

  test('of a slice hold for its endpoints; an operator has the last word, and 1 is left out', () => {
    const t = serving();
    t.slice('a', weighted(['10.0.0.1', '10.0.0.2'], 5));
    t.slice('b', group([endpointAddress('10.0.0.3')]));
    const endpoints = () => endpointsOf(t.it.takeDelta().upserted[0]);
    assert.deepEqual(endpoints(), ['10.0.0.1 5', '10.0.0.2 5', '10.0.0.3 -']);
    t.it.setWeights([
      { address: ip('10.0.0.1'), port: 8080, weight: 1 },
      { address: ip('10.0.0.3'), port: 8080, weight: 7 },
    ]);
    assert.deepEqual(endpoints(), ['10.0.0.1 -', '10.0.0.2 5', '10.0.0.3 7']);
    t.it.setWeights([{ address: ip('10.0.0.3'), port: 8080, weight: 8 }]);
    assert.deepEqual(endpoints(), ['10.0.0.1 5', '10.0.0.2 5', '10.0.0.3 8']);
    t.slice('a', weighted(['10.0.0.1', '10.0.0.2'], 6));
    assert.deepEqual(endpoints(), ['10.0.0.1 6', '10.0.0.2 6', '10.0.0.3 8']);
  });

  test('of 0 drain, unless an operator says otherwise', () => {
    const t = serving();
    t.slice('a', weighted(['10.0.0.1', '10.0.0.2'], 0));
    t.it.setWeights([{ address: ip('10.0.0.2'), port: 8080, weight: 3 }]);
    const [port] = t.it.takeDelta().upserted;
    assert.deepEqual(endpointsOf(port), ['10.0.0.2 3']);
    assert.deepEqual(port?.draining, [namedEndpoint(ip('10.0.0.1'), 8080)]);
    t.it.setWeights([]);
    assert.deepEqual(endpointsOf(t.it.takeDelta().upserted[0]), []);
  });

  test('of an endpoint in two slices: the higher one counts, in any order', () => {
    for (const [a, b] of [
      [2, 9],
      [9, 2],
    ] as const) {
      const t = serving();
      t.slice('a', weighted(['10.0.0.1'], a));
      t.slice('b', weighted(['10.0.0.1'], b));
      assert.deepEqual(endpointsOf(t.it.takeDelta().upserted[0]), ['10.0.0.1 9']);
    }
  });
});

test('an annotation that is refused is reported once, of the Service, for its owner', () => {
  const t = serving();
  const refused = { what: 'the scheduler "dh" of kube-userspace-proxy/scheduler', found: 'because' };
  const asking = service({ uid: 'u-1', options: { refused: [refused] } });
  t.it.takeDelta();
  t.it.apply([{ kind: 'Service', key: asking.key, value: asking }]);
  assert.deepEqual(t.it.takeDelta().refused, [{ name: asking.key, ...refused, uid: 'u-1' }]);
  assert.equal(t.it.refusedOf(`${asking.key}:http`).length, 1, 'of each of its ports');
  t.slice('a', group([endpointAddress('10.0.0.1')]));
  assert.deepEqual(t.it.takeDelta().refused, []);
});

describe('clients wait for endpoints', () => {
  const waitOf = (options: ServiceOptions | undefined, waitForEndpointsMs?: number) => {
    const t = tracker({ ...(waitForEndpointsMs !== undefined && { waitForEndpointsMs }) });
    t.service(service({ ...(options && { options }) }));
    return t.it.takeDelta().upserted[0]?.waitMs;
  };

  test('for as long as the Service says, else 120 s where it is idled, else as long as the node says', () => {
    assert.equal(waitOf(undefined), undefined);
    assert.equal(waitOf(undefined, 5_000), 5_000);
    assert.equal(waitOf({ waitForEndpointsMs: 1_000 }, 5_000), 1_000);
    assert.equal(waitOf({ isIdled: true }, 5_000), 120_000);
    assert.equal(waitOf({ isIdled: true, waitForEndpointsMs: 1_000 }), 1_000);
    assert.equal(waitOf({ isIdled: true, waitForEndpointsMs: 0 }, 5_000), undefined);
    assert.equal(waitOf({ waitForEndpointsMs: 0 }, 5_000), undefined);
  });

  test('of an idled Service until there is one, though whoever wakes it takes its mark away before', () => {
    const t = tracker();
    const waits = () => t.it.takeDelta().upserted.map(({ waitMs, endpoints }) => [waitMs, endpoints.length]);
    t.service(service({ options: { isIdled: true } }));
    assert.deepEqual(waits(), [[120_000, 0]]);
    t.service(service());
    assert.deepEqual(waits(), [[120_000, 0]], 'the pods are not ready yet');
    t.slice('a', group([endpointAddress('10.0.0.1', { ready: false })]));
    assert.deepEqual(waits(), [[120_000, 0]]);
    t.slice('a', group([endpointAddress('10.0.0.1')]));
    assert.deepEqual(waits(), [[undefined, 1]]);
    t.slice('a', group([]));
    assert.deepEqual(waits(), [[undefined, 0]], 'nobody has idled it again');
  });

  test('also of those that are elsewhere, and health checks still count none', () => {
    const t = tracker({ waitForEndpointsMs: 5_000 });
    t.it.setTopology({ nodeName: 'n1' });
    t.service(service({ internalTrafficPolicy: 'Local', healthCheckNodePort: 32_000 }));
    t.slice('a', group([endpointAddress('10.0.0.1', { nodeName: 'n2' })]));
    const { upserted, healthChecks } = t.it.takeDelta();
    const [port = assert.fail()] = upserted;
    assert.deepEqual([port.onlyElsewhere, verdictOf(port, 'own')], [true, 'proxy']);
    assert.equal(healthChecks.get('shop/web')?.localEndpoints, 0);
  });
});

describe('drained endpoints', () => {
  const both = group([endpointAddress('10.0.0.1'), endpointAddress('10.0.0.2')]);

  test('get no new connections until they are undrained; only their Services are derived again', () => {
    const t = serving();
    t.it.apply([{ kind: 'Service', key: 'shop/other', value: service({ key: 'shop/other' }) }]);
    t.slice('a', both);
    t.slice('b', group([endpointAddress('10.0.0.3')]), 'shop/other');
    t.it.takeDelta();
    t.it.setWeights([{ address: ip('10.0.0.1'), port: 8080, weight: 0 }]);
    assert.equal(t.it.pendingServices, 1);
    const [port] = t.it.takeDelta().upserted;
    assert.deepEqual(port?.endpoints, [namedEndpoint(ip('10.0.0.2'), 8080)]);
    assert.deepEqual(port?.draining, [namedEndpoint(ip('10.0.0.1'), 8080)]);
    t.it.setWeights([]);
    assert.deepEqual(t.addresses(), [['10.0.0.1:8080', '10.0.0.2:8080']]);
  });

  test('are identified by address and port', () => {
    const t = serving();
    t.slice('a', both);
    t.it.takeDelta();
    t.it.setWeights([{ address: ip('10.0.0.1'), port: 9090, weight: 0 }]);
    assert.deepEqual(t.addresses(), []);
  });

  test('make a Service without other endpoints refuse, and fail its health check', () => {
    const t = tracker();
    t.it.setTopology({ nodeName: 'n1' });
    const here = { nodeName: 'n1' };
    t.service(service({ healthCheckNodePort: 32_000 }));
    t.slice(
      'a',
      group([
        endpointAddress('10.0.0.1', here),
        endpointAddress('10.0.0.2', { ...here, ready: false, terminating: true }),
      ]),
    );
    assert.equal(t.it.takeDelta().healthChecks.get('shop/web')?.localEndpoints, 1);
    t.it.setWeights(['10.0.0.1', '10.0.0.2'].map((text) => ({ address: ip(text), port: 8080, weight: 0 })));
    const { upserted, healthChecks } = t.it.takeDelta();
    assert.deepEqual(
      upserted.map((port) => verdictOf(port, 'own')),
      ['reject'],
    );
    assert.equal(healthChecks.get('shop/web')?.localEndpoints, 0);
  });
});

describe('the reason why an endpoint is not used', () => {
  const verdicts = (t: ReturnType<typeof tracker>, set: 'own' | 'local' = 'own') =>
    Object.fromEntries(t.it.candidates('shop/web:http', set).map((one) => [one.endpoint.address, one.reason]));

  test('is known for each endpoint that is not chosen', () => {
    const t = serving();
    const dying = { ready: false, terminating: true };
    t.slice(
      'a',
      group(
        [
          endpointAddress('10.0.0.1'),
          endpointAddress('10.0.0.2', { ready: false }),
          endpointAddress('10.0.0.3', dying),
          endpointAddress('10.0.0.4', { ...dying, serving: false }),
          endpointAddress('10.0.0.5'),
          endpointAddress('10.96.0.1'),
        ],
        80,
      ),
    );
    t.it.setWeights([{ address: ip('10.0.0.5'), port: 80, weight: 0 }]);
    assert.deepEqual(verdicts(t), {
      '10.0.0.1': undefined,
      '10.0.0.2': 'not ready',
      '10.0.0.3': 'terminating, and others are ready',
      '10.0.0.4': 'terminating, and no longer serving',
      '10.0.0.5': 'drained by an operator',
      '10.96.0.1': 'it is an address of a Service, so connections would come back to the proxy',
    });
  });

  test("is the policy in the node's set, and hints in the cluster's set", () => {
    const t = tracker();
    t.it.setTopology({ nodeName: 'n1', zone: 'a' });
    t.service(
      service({
        externalTrafficPolicy: 'Local',
        ports: [{ name: 'http', protocol: 'TCP', port: 80, nodePort: 30_080 }],
      }),
    );
    const at = (nodeName: string, zone: string) => ({ nodeName, zone, zoneHints: [zone] });
    t.slice('a', group([endpointAddress('10.0.0.1', at('n1', 'a')), endpointAddress('10.0.0.2', at('n2', 'b'))]));
    assert.deepEqual(verdicts(t), { '10.0.0.1': undefined, '10.0.0.2': 'its topology hints are for zone b' });
    assert.deepEqual(verdicts(t, 'local'), {
      '10.0.0.1': undefined,
      '10.0.0.2': 'on another node, and the policy is Local',
    });
    t.slice(
      'a',
      group([
        endpointAddress('10.0.0.1', { ...at('n1', 'a'), nodeHints: ['n1'] }),
        endpointAddress('10.0.0.2', { ...at('n2', 'a'), nodeHints: ['n2', 'n3'] }),
      ]),
    );
    assert.equal(verdicts(t)['10.0.0.2'], 'its topology hints are for node n2, n3');
  });

  test('is unknown for Service ports that are not served', () => {
    const t = tracker();
    assert.deepEqual(t.it.candidates('shop/web:http', 'own'), []);
    t.service(service({ ports: [{ name: 'http', protocol: 'SCTP', port: 80, nodePort: 0 }] }));
    t.slice('a', group([endpointAddress('10.0.0.1')]));
    assert.deepEqual(t.it.candidates('shop/web:http', 'own'), []);
    assert.deepEqual(t.it.candidates('shop/web:other', 'own'), []);
  });
});

test('Service ports are found by endpoint and by address', () => {
  const t = tracker();
  t.it.setNodeAddresses([ip('192.168.50.10')]);
  t.service(
    service({
      externalIPs: [ip('203.0.113.7')],
      ports: [
        { name: 'http', protocol: 'TCP', port: 80, nodePort: 30_080 },
        { name: 'dns', protocol: 'UDP', port: 53, nodePort: 0 },
      ],
    }),
  );
  t.slice('a', group([endpointAddress('10.0.0.1', { ready: false })]));
  t.it.takeDelta();
  const having = (text: string, port: number) => [...t.it.withEndpoint({ address: ip(text), port })].flat();
  assert.deepEqual(having('10.0.0.1', 8080), ['shop/web:http']);
  assert.deepEqual(having('10.0.0.1', 8081), []);
  assert.deepEqual(having('203.0.113.7', 80), [], 'its external IP');
  for (const loopback of ['127.0.0.1', '127.0.0.2', '127.255.255.254']) {
    assert.equal(t.it.claimants(ip(loopback), 30_080, 'TCP').length, 1, `every ${loopback} is this node`);
  }
  const at = (text: string, port: number, protocol: 'TCP' | 'UDP' = 'TCP') =>
    t.it.claimants(ip(text), port, protocol).map(({ name }) => name);
  assert.deepEqual(at('10.96.0.1', 80), ['shop/web:http']);
  assert.deepEqual(at('203.0.113.7', 80), ['shop/web:http']);
  assert.deepEqual(at('192.168.50.10', 30_080), ['shop/web:http']);
  assert.deepEqual(at('10.96.0.1', 53, 'UDP'), ['shop/web:dns']);
  for (const [text, port, protocol] of [
    ['10.96.0.1', 80, 'UDP'],
    ['10.96.0.1', 30_080, 'TCP'],
    ['192.168.50.10', 80, 'TCP'],
    ['198.51.100.1', 30_080, 'TCP'],
  ] as const) {
    assert.deepEqual(at(text, port, protocol), [], `${text}:${port}/${protocol}`);
  }
});

test('an endpoint among thousands is found by its address, without a search', () => {
  const t = tracker();
  let looks = 0;
  const counted = (text: string): EndpointAddress => {
    const { address: value, ...rest } = endpointAddress(text);
    const get = () => {
      looks++;
      return value;
    };
    return Object.defineProperty({ ...rest }, 'address', { get, enumerable: true }) as EndpointAddress;
  };
  const others = Array.from({ length: 100 }, (_, i) => counted(`10.0.1.${i}`));
  t.service(service());
  t.slice('a', group([...others, counted('10.0.0.1')]));
  t.slice('b', group([counted('10.0.0.1')]), 'shop/other');
  t.slice('c', group([counted('10.0.0.1')]));
  looks = 0;
  const steps = [...t.it.withEndpoint({ address: ip('10.0.0.1'), port: 8080 })];
  assert.deepEqual(steps, [['shop/web:http'], ['shop/web:http']], 'one for each object of a Service that is there');
  assert.equal(looks, 0);
});

test('only Service ports whose own group of addresses has an endpoint are found by it', () => {
  const t = tracker();
  const having = (text: string, port: number) => [...t.it.withEndpoint({ address: ip(text), port })].flat();
  const port = (name: string) => ({ name, protocol: 'TCP' as const, port: 80, nodePort: 0 });
  t.service(service({ ports: [port('http'), port('admin')] }));
  t.endpoints(group([endpointAddress('10.0.0.1')]), group([endpointAddress('10.0.0.2')], 9090, 'admin'));
  assert.deepEqual([having('10.0.0.1', 8080), having('10.0.0.1', 9090)], [['shop/web:http'], []]);
  assert.deepEqual(having('10.0.0.2', 9090), ['shop/web:admin']);
  t.slice('a', group([endpointAddress('10.0.0.1')], 9090, 'other'));
  assert.deepEqual([having('10.0.0.1', 8080), having('10.0.0.1', 9090)], [[], []], 'slices alone count');
  t.slice('a', group([endpointAddress('10.0.0.1')], 9090, 'admin'));
  assert.deepEqual(having('10.0.0.1', 9090), ['shop/web:admin']);
});
