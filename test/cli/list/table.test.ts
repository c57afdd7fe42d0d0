import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { headerLines, serviceLines, type TableOptions } from '../../../src/cli/list/table.ts';
import type { EndpointView, ListenerView, ServiceView } from '../../../src/model/view.ts';
import { counters, FAKE_NOW, FakeView } from '../../fakes/fake-view.ts';
import { address } from '../../support/model.ts';

const options: TableOptions = { layout: undefined, isExact: false, isWide: false, now: FAKE_NOW };
const [web, dns, empty] = [...new FakeView({ endpoints: 2 }).services()] as [ServiceView, ServiceView, ServiceView];

function endpoint(text: string, changes: Partial<EndpointView> = {}): EndpointView {
  const shown: EndpointView = {
    endpoint: { address: address(text), port: 8080 },
    state: 'active',
    weight: 1,
    counters: counters(100),
  };
  return { ...shown, ...changes };
}

function listener(changes: Partial<ListenerView>): ListenerView {
  return { ...(web.listeners[0] as ListenerView), ...changes };
}

describe('the list of Services', () => {
  test('has the layout of ipvsadm, with the names at the end, and a state that is not ok among the flags', () => {
    assert.deepEqual(
      [...headerLines(options), ...[web, dns, empty].flatMap((service) => serviceLines(service, options))],
      [
        'Prot LocalAddress:Port Scheduler Flags         Service',
        '  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn',
        'TCP  10.96.0.0:80 rr                           default/web:http',
        'TCP  0.0.0.0:30080 rr                          default/web:http',
        'TCP  192.0.2.10:80 rr                          default/web:http',
        '  -> 10.244.0.1:8080              Proxy   1      15         0',
        '  -> 10.244.0.2:8080              Proxy   1      16         0',
        'UDP  10.96.0.1:53 rr persistent 10800          kube-system/dns:dns',
        '  -> 10.244.1.1:53                Proxy   1      15         0',
        '  -> 10.244.1.2:53                Proxy   1      16         0',
        'TCP  10.96.0.2:80 rr empty                     shop/empty',
      ],
    );
  });

  test('shows weight 0 and the state of endpoints without new connections, and a dash where nothing is counted', () => {
    const endpoints = [
      endpoint('10.244.0.1', { state: 'draining', weight: 0 }),
      endpoint('10.244.0.2', { state: 'drained', weight: 0 }),
      { endpoint: { address: address('10.244.0.3'), port: 8080 }, state: 'active' as const, weight: 1 },
    ];
    assert.deepEqual(serviceLines({ ...web, listeners: [listener({ endpoints })] }, options).slice(3), [
      '  -> 10.244.0.1:8080              Proxy   0      15         0          draining',
      '  -> 10.244.0.2:8080              Proxy   0      15         0          drained',
      '  -> 10.244.0.3:8080              Proxy   1      -          -',
    ]);
  });

  test('shows the scheduler and the weights', () => {
    const endpoints = [endpoint('10.244.0.1', { weight: 65_535 }), endpoint('10.244.0.2', { weight: 3 })];
    const view = { ...dns, scheduler: 'wlc' as const, listeners: [listener({ endpoints })] };
    assert.deepEqual(serviceLines(view, options), [
      'UDP  10.96.0.1:53 wlc persistent 10800         kube-system/dns:dns',
      '  -> 10.244.0.1:8080              Proxy   65535  15         0',
      '  -> 10.244.0.2:8080              Proxy   3      15         0',
    ]);
  });

  test('never cuts an address', () => {
    const long = '2001:db8:85a3:1234:5678:8a2e:370:7334';
    const view = { ...web, family: 'IPv6' as const, clusterIPs: [address(long)], nodePort: 0, loadBalancerIPs: [] };
    assert.deepEqual(serviceLines({ ...view, listeners: [listener({ endpoints: [endpoint(long)] })] }, options), [
      `TCP  [${long}]:80 rr default/web:http`,
      `  -> [${long}]:8080 Proxy   1      15         0`,
    ]);
  });

  test('aligns the columns of one Service also with long addresses', () => {
    const long = '2001:db8:85a3:1234:5678:8a2e:370:7334';
    const view = {
      ...web,
      family: 'IPv6' as const,
      clusterIPs: [address(long)],
      loadBalancerIPs: [address('fd00::1')],
    };
    const endpoints = [endpoint(long), endpoint('fd00::7')];
    const cells = (column: RegExp, layout: TableOptions['layout']) =>
      serviceLines({ ...view, listeners: [listener({ endpoints })] }, { ...options, layout })
        .map((line) => line.search(column))
        .filter((at) => at >= 0);
    for (const layout of [undefined, 'stats', 'rate'] as const) {
      const names = cells(/default\/web/, layout);
      assert.equal(names.length, 3);
      assert.equal(new Set(names).size, 1, layout);
    }
    assert.equal(new Set(cells(/Proxy/, undefined)).size, 1);
    const counted = cells(/(?<=\d) {8}- {8}-/, 'stats');
    assert.equal(counted.length, 3);
    assert.equal(new Set(counted).size, 1);
  });

  test('shows a NodePort as the address of everything', () => {
    const view: ServiceView = { ...web, family: 'IPv6', clusterIPs: [], loadBalancerIPs: [] };
    assert.match(serviceLines(view, options)[0] ?? '', /^TCP {2}\[::\]:30080 rr /);
  });

  test('shows a dash for a Service that has no address, so that its endpoints are not those of the one above', () => {
    const view: ServiceView = { ...web, clusterIPs: [], loadBalancerIPs: [], externalIPs: [], nodePort: 0 };
    assert.match(serviceLines(view, options)[0] ?? '', /^TCP {2}- rr /);
  });

  test('names each address at the endpoints that it goes to', () => {
    const listeners = [
      listener({ traffic: ['internal', 'node'], endpoints: [endpoint('10.244.0.1'), endpoint('10.244.9.9')] }),
      listener({ set: 'local', traffic: ['external'], endpoints: [endpoint('10.244.0.1')] }),
    ];
    assert.deepEqual(
      serviceLines({ ...web, listeners }, options).map((line) => line.slice(0, 32).trim()),
      [
        'TCP  10.96.0.0:80 rr',
        '-> 10.244.0.1:8080',
        '-> 10.244.9.9:8080',
        'TCP  0.0.0.0:30080 rr',
        'TCP  192.0.2.10:80 rr',
        '-> 10.244.0.1:8080',
      ],
    );
  });

  test('shows which endpoints only the node itself uses', () => {
    const listeners = [
      listener({ traffic: ['node'], endpoints: [endpoint('10.244.9.9')] }),
      listener({ set: 'local', traffic: ['internal', 'external'], endpoints: [endpoint('10.244.0.1')] }),
    ];
    assert.deepEqual(
      serviceLines({ ...web, listeners }, options).map((line) => line.slice(0, 32).trim()),
      [
        'TCP  0.0.0.0:30080 rr from-node',
        'TCP  192.0.2.10:80 rr from-node',
        '-> 10.244.9.9:8080',
        'TCP  10.96.0.0:80 rr',
        'TCP  0.0.0.0:30080 rr',
        'TCP  192.0.2.10:80 rr',
        '-> 10.244.0.1:8080',
      ],
    );
  });

  test('shows what is wrong when it is wide, without control characters', () => {
    const lastError = { at: FAKE_NOW - 72_000, err: 'refused\u001b[31m' };
    const view: ServiceView = { ...web, state: 'degraded', reason: 'dials\nfail', nodePort: 0, loadBalancerIPs: [] };
    const listeners = [listener({ localPort: undefined, endpoints: [endpoint('10.244.0.1', { lastError })] })];
    const wide = { ...options, isWide: true };
    assert.deepEqual(
      [...headerLines(wide), ...serviceLines({ ...view, listeners }, wide)],
      [
        'Prot LocalAddress:Port Scheduler Flags         Service                                  State    Port  Worker Reason',
        '  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn State    LastError',
        'TCP  10.96.0.0:80 rr                           default/web:http                         degraded -     0      dials\\u000afail',
        '  -> 10.244.0.1:8080              Proxy   1      15         0          active   refused\\u001b[31m (1m12s ago)',
      ],
    );
  });
});

describe('the statistics', () => {
  test('have the layout of ipvsadm, with the time to connect; packets are not counted', () => {
    const stats = { ...options, layout: 'stats' } as const;
    assert.deepEqual(
      [...headerLines(stats), ...serviceLines(dns, stats)],
      [
        'Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes  ConnP50  ConnP99 Service',
        '  -> RemoteAddress:Port',
        'UDP  10.96.0.1:53                     1001        -        -  1001000 20020000        -        - kube-system/dns:dns persistent 10800',
        '  -> 10.244.1.1:53                     100        -        -   100000  2000000        -        -',
        '  -> 10.244.1.2:53                     101        -        -   101000  2020000        -        -',
      ],
    );
  });

  test('are shown once for a Service, as they are not counted by address', () => {
    const lines = serviceLines(web, { ...options, layout: 'stats' });
    assert.equal(
      lines[0],
      'TCP  10.96.0.0:80                     1000        -        -  1000000 20000000   ≤0.5ms    ≤16ms default/web:http',
    );
    assert.equal(
      lines[1],
      'TCP  0.0.0.0:30080                       -        -        -        -        -        -        - default/web:http',
    );
  });

  test('are shown once also with two endpoint sets', () => {
    const listeners = [
      listener({ traffic: ['internal'], endpoints: [] }),
      listener({ set: 'local', traffic: ['external'], endpoints: [] }),
    ];
    const lines = serviceLines({ ...web, listeners }, { ...options, layout: 'stats' });
    assert.deepEqual(
      lines.map((line) => line.split(/ +/)[2]),
      ['1000', '-', '-'],
    );
  });

  test('are rounded, or exact', () => {
    const many = { ...dns, counters: { ...dns.counters, sentBytes: 123_456_789_012 } };
    const stats = { ...options, layout: 'stats' } as const;
    assert.match(serviceLines(many, stats)[0] ?? '', / {5}123G /);
    assert.match(serviceLines(many, { ...stats, isExact: true })[0] ?? '', / 123456789012 /);
  });
});

test('rates are those of the Services, without endpoints', () => {
  const rate = { ...options, layout: 'rate' } as const;
  const rates = { connections: 12.4, receivedBytes: 100, sentBytes: 2_000_000_000, failures: 0 };
  assert.deepEqual(
    [...headerLines(rate), ...serviceLines({ ...dns, rates }, rate)],
    [
      'Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS Service',
      'UDP  10.96.0.1:53                       12        -        -      100    2000M kube-system/dns:dns persistent 10800',
    ],
  );
});

test('until one interval has passed, there are no rates', () => {
  const rate = { ...options, layout: 'rate' } as const;
  const { rates: _, ...fresh } = dns;
  assert.match(serviceLines(fresh, rate)[0] ?? '', /^UDP {2}10\.96\.0\.1:53( +-){5} kube-system/);
});
