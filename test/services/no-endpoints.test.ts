import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IpFamily } from '../../src/model/address.ts';
import type { EndpointAddress, EndpointGroup } from '../../src/model/endpoint.ts';
import type { Protocol, ServiceKey } from '../../src/model/service.ts';
import { ServiceTracker } from '../../src/services/service-tracker.ts';
import { endpointAddress, service } from '../support/model.ts';

const HTTP = { name: 'http', protocol: 'TCP' as Protocol, port: 8080 };

function notReady(text: string): EndpointAddress {
  return endpointAddress(text, { ready: false, serving: false });
}

/** Of shop/web, whose port is "http". Each group is a slice. */
function tracker(groups: readonly EndpointGroup[] = [], family: IpFamily = 'IPv4'): ServiceTracker {
  const it = new ServiceTracker(family);
  const ports = [{ name: 'http', protocol: 'TCP' as const, port: 80, nodePort: 0 }];
  it.apply([{ kind: 'Service', key: 'shop/web', value: service({ key: 'shop/web', ports }) }]);
  for (const [index, group] of groups.entries()) addSlice(it, `shop/web-${index}`, 'shop/web', group);
  return it;
}

function addSlice(it: ServiceTracker, key: ServiceKey, of: ServiceKey, group: EndpointGroup): void {
  it.apply([{ kind: 'EndpointSlice', key, value: { key, service: of, group } }]);
}

function said(it: ServiceTracker): string | undefined {
  const found = it.noEndpoints('shop/web:http', 'own');
  return found && `${found.reason}: ${found.message}`;
}

test('an idled Service says that it sleeps', () => {
  const it = tracker([{ addresses: [], ports: [HTTP] }]);
  const ports = [{ name: 'http', protocol: 'TCP' as const, port: 80, nodePort: 0 }];
  const value = service({ key: 'shop/web', ports, options: { isIdled: true } });
  it.apply([{ kind: 'Service', key: 'shop/web', value }]);
  assert.equal(said(it), 'NoAddresses: it has no endpoints: it was scaled to zero, as its annotation …/idled-at says');
});

test('a Service port without endpoints says why', () => {
  const group = (addresses: readonly EndpointAddress[], ...ports: EndpointGroup['ports']) => ({ addresses, ports });
  const one = endpointAddress('10.244.1.1');
  for (const [groups, why] of [
    [[], 'NoObjects: no EndpointSlice or Endpoints object in namespace shop is for web'],
    [[group([], HTTP)], 'NoAddresses: it has no endpoints; check that its selector matches the labels of Pods'],
    [[group([endpointAddress('fd00::1')], HTTP)], 'OtherFamily: none of its endpoints has an IPv4 address'],
    [
      [group([one], { ...HTTP, name: '' })],
      'OtherPort: its endpoints have port "" (TCP), and the Service wants "http" (TCP)',
    ],
    [
      [group([one], { ...HTTP, protocol: 'UDP' }), group([endpointAddress('fd00::1')], HTTP)],
      'OtherPort: its endpoints have port "http" (UDP), and the Service wants "http" (TCP)',
    ],
    [[group([one])], 'OtherPort: its endpoints have no port, and the Service wants "http" (TCP)'],
    [
      [group([one], ...['a', 'b', 'c', 'd', 'e'].map((name) => ({ ...HTTP, name })))],
      'OtherPort: its endpoints have port "a" (TCP), "b" (TCP), "c" (TCP) and 2 more, and the Service wants "http" (TCP)',
    ],
    [[group([notReady('10.244.1.1')], HTTP)], 'NotReady: its only endpoint is not ready'],
    [
      [group([notReady('10.244.1.1'), notReady('10.244.1.2')], HTTP), group([notReady('10.244.1.3')], HTTP)],
      'NotReady: all 3 endpoints are not ready',
    ],
    [
      [group([notReady('10.244.1.1')], HTTP), { ...group([one, endpointAddress('10.244.1.2')], HTTP), weight: 0 }],
      'NoneMayServe: none of its 2 endpoints may serve: its weight is 0 (2)',
    ],
    [[group([one, notReady('10.244.1.2')], HTTP)], undefined],
  ] as const) {
    assert.equal(said(tracker(groups)), why);
  }
  assert.match(said(tracker([group([one], HTTP)], 'IPv6')) ?? '', /none of its endpoints has an IPv6 address$/);
  assert.equal(tracker().noEndpoints('shop/none:http', 'own'), undefined);
});

test('endpoints in a namespace without their Service are named', () => {
  const it = tracker();
  const group = { addresses: [endpointAddress('10.244.1.1')], ports: [HTTP] };
  addSlice(it, 'own/web-1', 'own/web', group);
  addSlice(it, 'shop/other-1', 'shop/other', group);
  addSlice(it, 'x/notweb-1', 'x/notweb', group);
  it.apply([{ kind: 'Service', key: 'own/web', value: service({ key: 'own/web' }) }]);
  assert.match(said(it) ?? '', /^NoObjects/, 'those belong to the Service there');
  addSlice(it, 'b/web-1', 'b/web', group);
  assert.equal(said(it), 'OtherNamespace: its endpoints are in namespace b, and the Service is in shop');
  it.apply([{ kind: 'Endpoints', key: 'c/web', value: { key: 'c/web', groups: [group] } }]);
  assert.equal(said(it), 'OtherNamespace: its endpoints are in namespace b, c, and the Service is in shop');
  assert.equal(it.noEndpoints('shop/web:http', 'own', { isBrief: true })?.reason, 'NoObjects', 'a brief look');
  addSlice(it, 'shop/web-1', 'shop/web', group);
  assert.equal(said(it), undefined);
});
