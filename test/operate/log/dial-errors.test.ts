import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IpFamily } from '../../../src/model/address.ts';
import type { Counters, DialFailure, ListenerStats } from '../../../src/model/data-plane.ts';
import { namedEndpoint } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { type EndpointSetName, type ListenerId, listenerId } from '../../../src/model/service-port.ts';
import { DialErrors } from '../../../src/operate/log/dial-errors.ts';
import { noCounters } from '../../../src/operate/view/traffic.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { address as ip } from '../../support/model.ts';

const WEB: ServicePortName = 'default/web:http';
const DNS: ServicePortName = 'kube-system/dns';
const POD = '10.0.0.1:80';

function setUp() {
  const clock = new ManualClock();
  const errors = new DialErrors(clock);
  const stats = new Map<ListenerId, ListenerStats>();
  let readings = 0;
  errors.readFrom({
    statsOf: (id) => {
      readings++;
      return stats.get(id);
    },
  });
  const fail = (backend: string, err = 'refused', reason: DialFailure = 'refused', name = WEB) =>
    errors.failed({ name, backend, reason, err });
  /** What one endpoint at port 80 has counted so far. */
  const count = (
    counters: Partial<Counters>,
    { name = WEB, family = 'IPv4' as IpFamily, set = 'own' as EndpointSetName, protocol = 'TCP' as 'TCP' | 'UDP' } = {},
  ) => {
    const endpoint = namedEndpoint(ip(family === 'IPv4' ? '10.0.0.1' : 'fd00::1'), 80);
    const endpoints = [{ endpoint, counters: { ...noCounters(), ...counters } }];
    const id = listenerId(name, family, set);
    stats.set(id, { id, name, family, protocol, localPort: 1, counters: noCounters(), endpoints });
  };
  /** Long enough for counters to be read anew. */
  const pass = () => clock.advance(1_000);
  return { clock, errors, fail, count, pass, readings: () => readings };
}

test('the last failed dial of each endpoint of each Service port is remembered for ten minutes', () => {
  const { clock, errors, fail } = setUp();
  fail(POD, 'first');
  clock.advance(1_000);
  fail(POD, 'second');
  assert.deepEqual(errors.last(WEB, POD), { at: clock.wallNow(), err: 'second', isLatest: false });
  assert.equal(errors.last(WEB, '10.0.0.2:80'), undefined);
  assert.equal(errors.last(DNS, POD), undefined);
  clock.advance(10 * 60_000);
  assert.equal(errors.last(WEB, POD), undefined);
});

test('it is forgotten, the least recent first, beyond a thousand endpoints', () => {
  const { errors, fail } = setUp();
  for (let n = 0; n < 1_000; n++) fail(`10.0.0.1:${n}`);
  fail('10.0.0.1:0', 'again');
  fail('10.0.0.2:80');
  assert.equal(errors.last(WEB, '10.0.0.1:1'), undefined);
  assert.equal(errors.last(WEB, '10.0.0.1:0')?.err, 'again');
  assert.equal(errors.last(WEB, '10.0.0.2:80')?.err, 'refused');
});

test('it is the latest until the endpoint answers a dial, and again when another one fails', () => {
  const { errors, fail, count, pass } = setUp();
  count({ connects: 5 });
  fail(POD);
  // The connections that it has go on.
  count({ connects: 5, sentBytes: 10_000, failedRefused: 1 });
  pass();
  assert.equal(errors.last(WEB, POD)?.isLatest, true);
  count({ connects: 6 });
  pass();
  assert.equal(errors.last(WEB, POD)?.isLatest, false);
  fail(POD);
  pass();
  assert.equal(errors.last(WEB, POD)?.isLatest, true);
});

test('an answer to the other listener of a Service port counts, and one of another family does not', () => {
  const { errors, fail, count, pass } = setUp();
  for (const family of ['IPv4', 'IPv6'] as const) count({ connects: 5 }, { family });
  count({ connects: 3 }, { set: 'local' });
  for (const backend of [POD, '[fd00::1]:80']) fail(backend);
  count({ connects: 4 }, { set: 'local' });
  pass();
  assert.equal(errors.last(WEB, POD)?.isLatest, false);
  assert.equal(errors.last(WEB, '[fd00::1]:80')?.isLatest, true);
});

test('over UDP, bytes from the endpoint are answers, and new flows are not', () => {
  const { errors, fail, count, pass } = setUp();
  const dns = { name: DNS, protocol: 'UDP' } as const;
  count({ sentBytes: 100 }, dns);
  fail(POD, 'refused', 'refused', DNS);
  count({ sentBytes: 100, connections: 7 }, dns);
  pass();
  assert.equal(errors.last(DNS, POD)?.isLatest, true);
  count({ sentBytes: 150, connections: 7 }, dns);
  pass();
  assert.equal(errors.last(DNS, POD)?.isLatest, false);
});

test('what lies in this node, or cannot be counted, is held against no endpoint', () => {
  const { errors, fail, count } = setUp();
  fail(POD);
  assert.equal(errors.last(WEB, POD)?.isLatest, false, 'its listener is gone');
  count({});
  fail(POD, 'EMFILE', 'other');
  assert.equal(errors.last(WEB, POD)?.isLatest, false);
});

test('many failures of one Service port at once read its counters once', () => {
  const { fail, count, pass, readings } = setUp();
  count({});
  for (let n = 0; n < 500; n++) fail(`10.0.0.1:${n}`);
  assert.equal(readings(), 2, 'of its two listeners');
  pass();
  fail(POD);
  assert.equal(readings(), 4);
});
