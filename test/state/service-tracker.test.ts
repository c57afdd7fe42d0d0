import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EndpointAddress, EndpointGroup } from '../../src/model/endpoint.ts';
import type { Protocol, Service } from '../../src/model/service.ts';
import { ServiceTracker } from '../../src/state/service-tracker.ts';
import { address as ip } from '../rules/fixtures.ts';

function service(overrides: Partial<Service> = {}): Service {
  return {
    key: 'shop/web',
    clusterIPs: [ip('10.96.0.1')],
    externalIPs: [],
    loadBalancerIPs: [],
    ports: [{ name: 'http', protocol: 'TCP', port: 80, nodePort: 0 }],
    affinity: { type: 'None' },
    ...overrides,
  };
}

function address(text: string, overrides: Partial<EndpointAddress> = {}): EndpointAddress {
  return { address: ip(text), ready: true, serving: true, terminating: false, ...overrides };
}

function group(addresses: readonly EndpointAddress[], port = 8080, name = 'http'): EndpointGroup {
  return { addresses, ports: [{ name, protocol: 'TCP', port }] };
}

function tracker() {
  const it = new ServiceTracker('IPv4');
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

describe('a Service and its endpoints', () => {
  test('join whichever arrives first', () => {
    for (const endpointsFirst of [true, false]) {
      const t = tracker();
      if (endpointsFirst) t.endpoints(group([address('10.0.0.1')]));
      t.service(service());
      if (!endpointsFirst) t.endpoints(group([address('10.0.0.1')]));
      assert.deepEqual(t.addresses(), [['10.0.0.1:8080']]);
    }
  });

  test('match by port name, and only by it', () => {
    const t = tracker();
    t.service(
      service({
        ports: [
          { name: 'http', protocol: 'TCP', port: 80, nodePort: 0 },
          { name: 'admin', protocol: 'TCP', port: 81, nodePort: 0 },
        ],
      }),
    );
    t.endpoints(group([address('10.0.0.1')], 8080, 'http'), group([address('10.0.0.2')], 9090, 'admin'));
    const ports = new Map(t.it.takeDelta().upserted.map((port) => [port.name, port.endpoints]));
    assert.deepEqual(ports.get('shop/web:http'), [{ address: '10.0.0.1', port: 8080 }]);
    assert.deepEqual(ports.get('shop/web:admin'), [{ address: '10.0.0.2', port: 9090 }]);
  });

  test('only ready addresses of the family are candidates, each once', () => {
    const t = tracker();
    t.service(service());
    t.slice('a', group([address('10.0.0.2'), address('10.0.0.1'), address('10.0.0.3', { ready: false })]));
    t.slice('b', group([address('10.0.0.1'), address('fd00::1')]));
    assert.deepEqual(t.addresses(), [['10.0.0.1:8080', '10.0.0.2:8080']]);
  });

  test('endpoints survive their Service, so adding it again finds them', () => {
    const t = tracker();
    t.service(service());
    t.endpoints(group([address('10.0.0.1')]));
    t.it.takeDelta();
    t.service(undefined);
    assert.deepEqual(t.it.takeDelta().removed, ['shop/web:http']);
    t.service(service());
    assert.deepEqual(t.addresses(), [['10.0.0.1:8080']]);
  });
});

describe('slices', () => {
  test('of one Service merge, and take precedence over Endpoints while there is one', () => {
    const t = tracker();
    t.service(service());
    t.endpoints(group([address('10.0.0.9')]));
    t.slice('a', group([address('10.0.0.1')]));
    t.slice('b', group([address('10.0.0.2')], 8081));
    assert.deepEqual(t.addresses(), [['10.0.0.1:8080', '10.0.0.2:8081']]);
    t.slice('a', undefined);
    t.slice('b', undefined);
    assert.deepEqual(t.addresses(), [['10.0.0.9:8080']]);
  });

  test('that move to another Service leave the first', () => {
    const t = tracker();
    t.service(service());
    t.it.apply([{ kind: 'Service', key: 'shop/other', value: service({ key: 'shop/other' }) }]);
    t.slice('a', group([address('10.0.0.1')]));
    t.it.takeDelta();
    t.slice('a', group([address('10.0.0.1')]), 'shop/other');
    const delta = t.it.takeDelta();
    assert.deepEqual(
      new Map(delta.upserted.map((port) => [port.name, port.endpoints.length])),
      new Map([
        ['shop/web:http', 0],
        ['shop/other:http', 1],
      ]),
    );
  });
});

describe('a delta', () => {
  test('is empty when an edit was undone, or when only the order differs', () => {
    const t = tracker();
    t.service(service());
    t.endpoints(group([address('10.0.0.1'), address('10.0.0.2')]));
    t.it.takeDelta();
    t.service(service({ externalIPs: [ip('192.0.2.1')] }));
    t.service(service());
    t.endpoints(group([address('10.0.0.2'), address('10.0.0.1')]));
    assert.deepEqual(t.it.takeDelta(), { upserted: [], removed: [], unserved: [] });
  });

  test('names a renamed port as one removed and one new', () => {
    const t = tracker();
    t.service(service());
    t.it.takeDelta();
    t.service(service({ ports: [{ name: 'web', protocol: 'TCP', port: 80, nodePort: 0 }] }));
    const delta = t.it.takeDelta();
    assert.deepEqual(delta.removed, ['shop/web:http']);
    assert.deepEqual(
      delta.upserted.map((port) => port.name),
      ['shop/web:web'],
    );
  });

  test('tells of ports that cannot be carried, and serves the others', () => {
    const ports: [string, Protocol][] = [
      ['http', 'TCP'],
      ['sctp', 'SCTP'],
    ];
    const t = tracker();
    t.service(service({ ports: ports.map(([name, protocol], i) => ({ name, protocol, port: 80 + i, nodePort: 0 })) }));
    const delta = t.it.takeDelta();
    assert.deepEqual(
      delta.upserted.map((port) => port.name),
      ['shop/web:http'],
    );
    assert.deepEqual(
      delta.unserved.map((port) => port.name),
      ['shop/web:sctp'],
    );
    t.service(service({ clusterIPs: [ip('fd00::1')] }));
    assert.match(t.it.takeDelta().unserved[0]?.reason ?? '', /no IPv4 cluster IP/);
  });

  test('holds frozen values, and the same one while nothing changed', () => {
    const t = tracker();
    t.service(service());
    const [first] = t.it.takeDelta().upserted;
    assert.ok(first);
    assert.throws(() => Object.assign(first, { port: 81 }), TypeError);
  });
});
