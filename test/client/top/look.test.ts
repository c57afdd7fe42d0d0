import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Looker, type OpenKey } from '../../../src/client/top/look.ts';
import type { ServiceView } from '../../../src/contracts/view.ts';
import { type Address, parseAddress } from '../../../src/model/address.ts';
import { counters, FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { controlOf } from '../control-of.ts';
import { WEB } from './scenes.ts';

const DNS: OpenKey = { key: 'kube-system/dns:dns IPv4', namespace: 'kube-system', service: 'dns' };

/** Changes every Service that is told. */
function lookerAt(change: (service: ServiceView) => ServiceView, clock = new ManualClock()): Looker {
  const view = new FakeView();
  const services = view.services.bind(view);
  view.services = function* (filter) {
    for (const service of services(filter)) yield change(service);
  };
  return new Looker(controlOf(view, 1), clock);
}

describe('a look', () => {
  test('has a row for each Service, and the history', async () => {
    const { services, history, opened } = await lookerAt((service) => service).look(undefined);
    assert.deepEqual(
      services.map(({ key, address, endpoints }) => [key, address, endpoints.active]),
      [
        ['default/web:http IPv4', '10.96.0.0:80', 3],
        ['kube-system/dns:dns IPv4', '10.96.0.1:53', 3],
        ['shop/empty IPv4', '10.96.0.2:80', 0],
      ],
    );
    assert.equal(history.length, 180);
    assert.equal(opened, undefined);
  });

  test('has the endpoints of one Service, with rates', async () => {
    const clock = new ManualClock();
    let connections = 100;
    const busy = (service: ServiceView): ServiceView => ({
      ...service,
      listeners: service.listeners.map((listener) => ({
        ...listener,
        endpoints: listener.endpoints.map((each) => ({ ...each, counters: { ...counters(0), connections } })),
      })),
    });
    const looker = lookerAt(busy, clock);
    await looker.look(WEB);
    connections = 110;
    clock.advance(5_000);
    const { opened } = await looker.look(WEB);
    assert.equal(opened?.service.name, 'default/web:http');
    assert.deepEqual(
      opened.endpoints.map(({ key, rates }) => [key, rates?.connections]),
      [
        ['own 10.244.0.1:8080', 2],
        ['own 10.244.0.2:8080', 2],
        ['own 10.244.0.3:8080', 2],
      ],
    );
  });

  test('does not take an endpoint of one Service for that of another', async () => {
    const clock = new ManualClock();
    const pod = { address: parseAddress('10.244.7.7') as Address, port: 8080 };
    const looker = lookerAt(
      (service) => ({
        ...service,
        listeners: service.listeners.map((listener) => ({
          ...listener,
          endpoints: [{ endpoint: pod, state: 'active', counters: counters(service.service === 'web' ? 1 : 1_000) }],
        })),
      }),
      clock,
    );
    await looker.open(WEB);
    clock.advance(1_000);
    const opened = await looker.open(DNS);
    assert.equal(opened?.endpoints[0]?.rates?.connections, 0);
  });

  test('has none when the Service is gone', async () => {
    const { opened } = await lookerAt((service) => service).look({ ...WEB, key: 'default/web:https IPv4' });
    assert.equal(opened, undefined);
  });

  test('knows no rates of endpoints that nobody counts', async () => {
    const uncounted = (service: ServiceView): ServiceView => ({
      ...service,
      listeners: service.listeners.map((listener) => ({
        ...listener,
        endpoints: listener.endpoints.map(({ endpoint, state }) => ({ endpoint, state })),
      })),
    });
    const opened = await lookerAt(uncounted).open(WEB);
    assert.deepEqual(
      opened?.endpoints.map(({ rates }) => rates),
      [undefined, undefined, undefined],
    );
  });
});
