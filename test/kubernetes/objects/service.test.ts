import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IpFamily } from '../../../src/model/address.ts';
import { decodeService, okValue, problemOf, service, warningsOf } from './objects.ts';

test('a Service becomes its model, with defaults filled in and the rest left behind', () => {
  const object = { ...service(), status: { loadBalancer: { ingress: [{ ip: '203.0.113.1' }] } } };
  assert.deepEqual(okValue(decodeService(object)), {
    key: 'shop/web',
    clusterIPs: ['10.96.0.1'],
    externalIPs: [],
    loadBalancerIPs: ['203.0.113.1'],
    ports: [{ name: 'http', protocol: 'TCP', port: 80, nodePort: 30080 }],
    affinity: { type: 'None' },
  });
});

test('the uid is kept, and nothing that is none', () => {
  const uidOf = (uid: unknown) => okValue(decodeService(service({}, { uid }))).uid;
  assert.equal(uidOf('5f0a1b2c-0000-4000-8000-000000000001'), '5f0a1b2c-0000-4000-8000-000000000001');
  for (const uid of ['', 'a b', 'a\nb', 'x'.repeat(65), 7, null]) assert.equal(uidOf(uid), undefined);
});

test('headless and ExternalName Services and those of another proxy are skipped, whatever else is in them', () => {
  const reasonOf = (object: unknown) => {
    const decoded = decodeService(object);
    return decoded.status === 'skipped' ? decoded.reason : decoded;
  };
  assert.equal(reasonOf(service({ clusterIP: 'None' })), 'it is headless');
  assert.equal(reasonOf(service({ clusterIP: '' })), 'it has no cluster IP');
  assert.equal(reasonOf(service({ clusterIP: undefined, ports: 7 })), 'it has no cluster IP');
  assert.equal(reasonOf(service({ clusterIP: 'None', clusterIPs: ['None'] })), 'it is headless');
  assert.equal(reasonOf(service({ type: 'ExternalName' })), 'its type is ExternalName');
  for (const label of ['service.kubernetes.io/headless', 'service.kubernetes.io/service-proxy-name']) {
    for (const value of ['', 'x', null]) {
      const object = service({ clusterIP: 'nonsense' }, { labels: { [label]: value } });
      assert.equal(reasonOf(object), `it has the label ${label}`);
    }
  }
});

test('in a file, a Service without a cluster IP is served where it gets one, or has NodePorts or other addresses', () => {
  const familiesOf = (spec: object, ...clusterIpFamilies: readonly IpFamily[]) => {
    const object = service({ clusterIP: undefined, ...spec });
    const decoded = decodeService(object, { clusterIpFamilies, loopbackEndpoints: false });
    return decoded.status === 'ok' ? decoded.value.families?.join() : decoded.status;
  };
  const plain = { type: 'ClusterIP' };
  const dual = { ipFamilyPolicy: 'PreferDualStack' };
  assert.equal(familiesOf({}), 'IPv4');
  assert.equal(familiesOf(plain), 'skipped');
  assert.equal(familiesOf({ ports: [{ port: 80 }] }), 'skipped', 'no NodePort');
  assert.equal(familiesOf({ ...plain, externalIPs: ['192.0.2.1'] }), 'IPv4');
  assert.equal(familiesOf(plain, 'IPv4'), 'IPv4');
  assert.equal(familiesOf(plain, 'IPv6', 'IPv4'), 'IPv6', 'the default is the first');
  assert.equal(familiesOf({ ...plain, ...dual }, 'IPv6', 'IPv4'), 'IPv6,IPv4');
  assert.equal(familiesOf({ ...plain, ...dual }, 'IPv4'), 'IPv4', 'no range for the other');
  assert.equal(familiesOf(dual), 'IPv4,IPv6', 'its NodePort');
  assert.equal(familiesOf({ ...plain, ipFamilies: ['IPv6'] }, 'IPv4', 'IPv6'), 'IPv6');
  assert.equal(familiesOf({ ipFamilies: ['IPv6'] }, 'IPv4'), 'IPv6', 'its NodePort');
  assert.equal(familiesOf({ ...plain, ipFamilies: ['IPv6'] }, 'IPv4'), 'skipped');
  const other = service({ clusterIP: undefined, ...plain, ipFamilies: ['IPv6'] });
  const skipped = decodeService(other, { clusterIpFamilies: ['IPv4'], loopbackEndpoints: false });
  assert.match(
    skipped.status === 'skipped' ? (skipped.problem?.advice ?? '') : '',
    /give --service-cluster-ip-range a range of IPv6, too$/,
  );
  assert.equal(familiesOf({ clusterIP: 'None' }, 'IPv4'), 'skipped');
  assert.equal(familiesOf({ ipFamilies: ['IPX'] }, 'IPv4'), 'invalid');
  assert.equal(familiesOf({ clusterIP: '10.96.0.1' }, 'IPv4'), undefined);
});

test('clusterIPs hold one address of each family, in canonical form', () => {
  const dual = service({ clusterIPs: ['10.96.0.1', 'FD00:0::0A'] });
  assert.deepEqual(okValue(decodeService(dual)).clusterIPs, ['10.96.0.1', 'fd00::a']);
  assert.equal(
    problemOf(decodeService(service({ clusterIPs: ['10.96.0.1', '10.96.0.2'] }))),
    'spec.clusterIPs[1] is "10.96.0.2"; expected at most one IPv4 address',
  );
  // Either could be meant.
  assert.equal(
    problemOf(decodeService(service({ clusterIPs: ['10.96.0.2'] }))),
    'spec.clusterIP is "10.96.0.1"; expected the first of spec.clusterIPs, 10.96.0.2',
  );
});

test('node ports count for the types NodePort and LoadBalancer only', () => {
  const nodePortOf = (type: string) => okValue(decodeService(service({ type }))).ports[0]?.nodePort;
  assert.equal(nodePortOf('NodePort'), 30080);
  assert.equal(nodePortOf('LoadBalancer'), 30080);
  assert.equal(nodePortOf('ClusterIP'), 0);
  const without = service({ ports: [{ port: 80, nodePort: 0 }] });
  assert.equal(okValue(decodeService(without)).ports[0]?.nodePort, 0);
});

test('ClientIP affinity has its timeout, by default three hours', () => {
  const affinityOf = (timeoutSeconds: unknown) =>
    decodeService(service({ sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds } } }));
  assert.deepEqual(okValue(decodeService(service({ sessionAffinity: null }))).affinity, { type: 'None' });
  assert.deepEqual(okValue(affinityOf(undefined)).affinity, { type: 'ClientIP', timeoutSeconds: 10_800 });
  assert.deepEqual(okValue(affinityOf(86_400)).affinity, { type: 'ClientIP', timeoutSeconds: 86_400 });
  for (const bad of [0, 86_401, 1.5, '60']) {
    assert.match(problemOf(affinityOf(bad)), /^spec\.sessionAffinityConfig\.clientIP\.timeoutSeconds is /);
  }
});

test('a bad external or ingress address is left out with a warning, and the rest is served', () => {
  const object = {
    ...service({ externalIPs: ['192.0.2.1', '127.0.0.1', 'x\n-A', '192.0.2.1', 5] }),
    status: {
      loadBalancer: { ingress: [{ hostname: 'lb.example' }, { ip: '::1' }, { ip: '203.0.113.1' }, 'x', null] },
    },
  };
  const decoded = decodeService(object);
  assert.deepEqual(okValue(decoded).externalIPs, ['192.0.2.1']);
  assert.deepEqual(okValue(decoded).loadBalancerIPs, ['203.0.113.1']);
  assert.deepEqual(warningsOf(decoded), [
    { field: 'spec.externalIPs[1]', found: 'is "127.0.0.1"', advice: 'a loopback address is never proxied' },
    { field: 'spec.externalIPs[2]', found: 'is "x\\n-A"', advice: 'expected an IP address' },
    { field: 'spec.externalIPs[4]', found: 'is 5', advice: 'expected a string' },
    { field: 'status.loadBalancer.ingress[3]', found: 'is "x"', advice: 'expected an object' },
    { field: 'status.loadBalancer.ingress[1].ip', found: 'is "::1"', advice: 'a loopback address is never proxied' },
  ]);
});

test('traffic policies are kept where they are not the default', () => {
  const policiesOf = (spec: Record<string, unknown>) => {
    const { internalTrafficPolicy, externalTrafficPolicy } = okValue(decodeService(service(spec)));
    return [internalTrafficPolicy, externalTrafficPolicy];
  };
  assert.deepEqual(policiesOf({}), [undefined, undefined]);
  assert.deepEqual(policiesOf({ internalTrafficPolicy: null, externalTrafficPolicy: '' }), [undefined, undefined]);
  assert.deepEqual(policiesOf({ internalTrafficPolicy: 'Cluster', externalTrafficPolicy: 'Cluster' }), [
    undefined,
    undefined,
  ]);
  assert.deepEqual(policiesOf({ internalTrafficPolicy: 'Local' }), ['Local', undefined]);
  assert.deepEqual(policiesOf({ externalTrafficPolicy: 'Local' }), [undefined, 'Local']);
});

test('source ranges are read with blanks around them; bad ones are named, and never let everyone in', () => {
  const decode = (loadBalancerSourceRanges: unknown) => decodeService(service({ loadBalancerSourceRanges }));
  const rangesOf = (ranges: unknown) =>
    okValue(decode(ranges)).loadBalancerSourceRanges?.map(({ network, prefixLength }) => `${network}/${prefixLength}`);
  assert.equal(rangesOf(undefined), undefined);
  assert.equal(rangesOf([]), undefined);
  assert.deepEqual(rangesOf([' 192.0.2.7/24\t', 'FD00::/8']), ['192.0.2.0/24', 'fd00::/8']);
  const bad = ['192.0.2.1', '10.0.0.0/33', '', '0.0.0.0/0 -j ACCEPT', 7, null];
  assert.deepEqual(rangesOf(bad), []);
  assert.deepEqual(
    warningsOf(decode([...bad, '192.0.2.0/24'])).map(({ field }) => field),
    bad.map((_, index) => `spec.loadBalancerSourceRanges[${index}]`),
  );
  assert.deepEqual(rangesOf([...bad, '192.0.2.0/24']), ['192.0.2.0/24']);
});

test('there is a health check for load balancers under the policy Local only', () => {
  const portOf = (spec: Record<string, unknown>) =>
    okValue(decodeService(service({ type: 'LoadBalancer', healthCheckNodePort: 32_000, ...spec }))).healthCheckNodePort;
  assert.equal(portOf({ externalTrafficPolicy: 'Local' }), 32_000);
  assert.equal(portOf({ externalTrafficPolicy: 'Cluster' }), undefined);
  assert.equal(portOf({ externalTrafficPolicy: 'Local', type: 'NodePort' }), undefined);
  assert.equal(portOf({ externalTrafficPolicy: 'Local', healthCheckNodePort: 0 }), undefined);
  assert.equal(portOf({ externalTrafficPolicy: 'Local', healthCheckNodePort: null }), undefined);
});

test('an ingress address that the load balancer answers on itself is not taken', () => {
  const ingress = [
    { ip: '203.0.113.1', ipMode: 'VIP' },
    { ip: '203.0.113.2', ipMode: 'Proxy' },
    { ip: '203.0.113.3', ipMode: null },
    { ip: '203.0.113.4', ipMode: 'proxy' },
  ];
  const decoded = decodeService({ ...service(), status: { loadBalancer: { ingress } } });
  assert.deepEqual(okValue(decoded).loadBalancerIPs, ['203.0.113.1', '203.0.113.3']);
  assert.deepEqual(warningsOf(decoded), [
    { field: 'status.loadBalancer.ingress[3].ipMode', found: 'is "proxy"', advice: 'expected VIP or Proxy' },
  ]);
});

const bad: Record<string, [spec: Record<string, unknown>, problem: RegExp]> = {
  'a clusterIP that is no address': [{ clusterIP: '10.96.0.1 -j DROP' }, /^spec\.clusterIP is "10\.96\.0\.1 -j DROP"/],
  'a clusterIP with a newline': [{ clusterIP: '10.96.0.1\n' }, /^spec\.clusterIP is "10\.96\.0\.1\\n"/],
  'a special clusterIP': [{ clusterIP: '169.254.169.254' }, /^spec\.clusterIP .*link-local/],
  'an IPv4-mapped clusterIP': [{ clusterIP: '::ffff:10.0.0.1' }, /^spec\.clusterIP .*IPv4-mapped/],
  'an unknown type': [{ type: 'constructor' }, /^spec\.type .*ClusterIP, NodePort, LoadBalancer or ExternalName/],
  'no ports': [{ ports: [] }, /^spec\.ports is empty/],
  'ports that are no list': [{ ports: { port: 80 } }, /^spec\.ports is an object; expected a list/],
  'a port that is no object': [{ ports: ['80'] }, /^spec\.ports\[0\] is "80"; expected an object/],
  'a missing port number': [{ ports: [{}] }, /^spec\.ports\[0\]\.port is missing; expected an integer from 1 to 65535/],
  'port 0': [{ ports: [{ port: 0 }] }, /^spec\.ports\[0\]\.port is 0/],
  'port 65536': [{ ports: [{ port: 65_536 }] }, /^spec\.ports\[0\]\.port is 65536/],
  'a fractional port': [{ ports: [{ port: 80.5 }] }, /^spec\.ports\[0\]\.port is 80\.5/],
  'an infinite port': [{ ports: [{ port: Number.POSITIVE_INFINITY }] }, /^spec\.ports\[0\]\.port is Infinity/],
  'a port in a string': [{ ports: [{ port: '80' }] }, /^spec\.ports\[0\]\.port is "80"/],
  'a node port out of range': [{ ports: [{ port: 80, nodePort: -1 }] }, /^spec\.ports\[0\]\.nodePort is -1/],
  'an unknown protocol': [{ ports: [{ port: 80, protocol: 'tcp' }] }, /protocol is "tcp"; expected TCP, UDP or SCTP/],
  'a port name with a newline': [{ ports: [{ port: 80, name: 'a\nb' }] }, /^spec\.ports\[0\]\.name is "a\\nb"/],
  'a port name with capitals': [{ ports: [{ port: 80, name: 'Http' }] }, /^spec\.ports\[0\]\.name /],
  'a long port name': [{ ports: [{ port: 80, name: 'a'.repeat(64) }] }, /^spec\.ports\[0\]\.name /],
  'an unnamed port among several': [
    { ports: [{ port: 80 }, { port: 81, name: 'b' }] },
    /^spec\.ports\[0\]\.name is miss/,
  ],
  'two ports of one name': [{ ports: [80, 81].map((port) => ({ port, name: 'a' })) }, /^spec\.ports\[1\]\.name is "a"/],
  'one port twice': [{ ports: ['a', 'b'].map((name) => ({ port: 80, name })) }, /^spec\.ports\[1\]\.port is 80/],
  'one node port twice': [
    { ports: ['a', 'b'].map((name, index) => ({ port: 80 + index, name, nodePort: 30_000 })) },
    /^spec\.ports\[1\]\.nodePort is 30000; an earlier port/,
  ],
  'an unknown internal policy': [
    { internalTrafficPolicy: 'local' },
    /^spec\.internalTrafficPolicy is "local"; expected/,
  ],
  'an unknown external policy': [
    { externalTrafficPolicy: 1 },
    /^spec\.externalTrafficPolicy is 1; expected Cluster or/,
  ],
  'a health check port out of range': [{ healthCheckNodePort: 65_536 }, /^spec\.healthCheckNodePort is 65536/],
  'source ranges that are no list': [
    { loadBalancerSourceRanges: '10.0.0.0/8' },
    /^spec\.loadBalancerSourceRanges is "10\.0\.0\.0\/8"; expected a list/,
  ],
  'an unknown affinity': [
    { sessionAffinity: 'Cookie' },
    /^spec\.sessionAffinity is "Cookie"; expected None or ClientIP/,
  ],
};

for (const [what, [spec, problem]] of Object.entries(bad)) {
  test(`${what} makes a Service invalid and is named`, () => {
    assert.match(problemOf(decodeService(service(spec))), problem);
  });
}

test('the same port and node port may serve TCP and UDP', () => {
  const ports = ['TCP', 'UDP'].map((protocol) => ({
    name: protocol.toLowerCase(),
    protocol,
    port: 53,
    nodePort: 30_053,
  }));
  assert.deepEqual(okValue(decodeService(service({ ports }))).ports, ports);
});

test('names are DNS labels; the default namespace is "default"', () => {
  for (const namespace of [undefined, null, '']) {
    assert.equal(okValue(decodeService(service({}, { namespace }))).key, 'default/web');
  }
  for (const name of ['', 'A', '-a', 'a-', 'a.b', 'a b', 'a\n', 'é', '__proto__', 'a'.repeat(64), 7, undefined, {}]) {
    assert.match(problemOf(decodeService(service({}, { name }))), /^metadata\.name is /, String(name));
  }
  assert.match(problemOf(decodeService(service({}, { namespace: 'a/b' }))), /^metadata\.namespace is "a\/b"/);
  assert.equal(okValue(decodeService(service({}, { name: 'constructor' }))).key, 'shop/constructor');
  assert.equal(okValue(decodeService(service({}, { name: `0${'a'.repeat(62)}` }))).key, `shop/0${'a'.repeat(62)}`);
});

test('of very many warnings the first are kept and the rest counted', () => {
  const decoded = decodeService(service({ externalIPs: Array(1000).fill('127.0.0.1') }));
  assert.equal(warningsOf(decoded).length, 9);
  assert.equal(warningsOf(decoded).at(-1)?.found, 'has 992 more parts that are left out');
});
