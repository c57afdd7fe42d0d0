import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { SocketPort } from '../../src/check/machine.ts';
import { checkListenAddresses, checkLocalPorts, checkNodePorts } from '../../src/check/ports.ts';
import type { PortRange } from '../../src/model/address.ts';
import type { Service } from '../../src/model/service.ts';
import { address, service as anyService } from '../support/model.ts';
import { fakeMachine, linesOf, troubles } from './fake-machine.ts';

const NODE = address('192.168.50.10');

function service(key: Service['key'], more: Partial<Service> = {}): Service {
  return anyService({ key, clusterIPs: [], ports: [], ...more });
}

function ports(...nodePorts: readonly number[]): Pick<Service, 'ports'> {
  return { ports: nodePorts.map((nodePort) => ({ name: '', protocol: 'TCP', port: 80, nodePort })) };
}

describe('addresses of the HTTP servers', () => {
  const check = async (err: string | undefined, { isServed = false, isHard = false, owner = '' } = {}) => {
    const config = { healthzAddress: { address: NODE, port: 10_256 }, metricsAddress: undefined };
    const servingProxy = async () => (isServed ? { pid: 7, uid: 0 } : undefined);
    const ownersOf = () => new Map<SocketPort, string>(owner === '' ? [] : [['10256/TCP', owner]]);
    const machine = fakeMachine({ tryToBind: async () => err, servingProxy, ownersOf });
    return linesOf(await checkListenAddresses(machine, { ...config, bindAddressHardFail: isHard }))[0]!;
  };

  test('are free, or served by a proxy of this program that runs already', async () => {
    assert.equal(await check(undefined), 'ok: the healthz address 192.168.50.10:10256 is free');
    assert.match(await check('EADDRINUSE', { isServed: true }), /^ok: .* and a proxy of this program runs here$/);
  });

  test('that others have are a warning, or a failure with --bind-address-hard-fail', async () => {
    assert.match(await check('EADDRINUSE'), /^warn: .* is taken by another program → .*ss -lntp/);
    assert.match(
      await check('EADDRINUSE', { isHard: true, owner: 'nginx (7)' }),
      /^fail: .* is taken by nginx \(7\) → /,
    );
    assert.match(await check('EADDRNOTAVAIL', { isServed: true }), /^warn: .* cannot be listened on: EADDRNOTAVAIL → /);
  });
});

describe('local ports', () => {
  const range = (first: number, last: number): PortRange => ({ first, last });
  const check = async (
    proxyPortRange?: PortRange,
    { taken = [] as readonly number[], reserved = '', servicePorts = 0, isServed = false, kernel = '32768 60999' } = {},
  ) => {
    const machine = fakeMachine({
      files: {
        '/proc/sys/net/ipv4/ip_local_port_range': `${kernel}\n`,
        '/proc/sys/net/ipv4/ip_local_reserved_ports': reserved,
      },
      listeners: () => new Set(taken.map((port): SocketPort => `${port}/UDP`)),
      servingProxy: async () => (isServed ? { pid: 7, uid: 0 } : undefined),
    });
    const known = [service('a/b', ports(...Array.from({ length: servicePorts }, () => 0)))];
    return await checkLocalPorts(machine, { proxyPortRange }, known);
  };

  test('are those of the kernel without the reserved and taken ones', async () => {
    assert.deepEqual(linesOf(await check(undefined, { taken: [40_000, 80], reserved: '40001' })), [
      'ok: local ports 32768-60999 (net.ipv4.ip_local_port_range): 28230 of 28232 are free, for 0 Service ports',
    ]);
    assert.deepEqual(troubles(await check(undefined, { kernel: '1024 60999' })), []);
  });

  test('too few for the Services that are known are a failure, nearly none a warning', async () => {
    const few = range(20_000, 20_009);
    const taken = (count: number) => Array.from({ length: count }, (_, i) => 20_000 + i);
    assert.match(troubles(await check(few, { servicePorts: 11 }))[0]!, /^fail: .*: 10 of 10 are free, for 11 Service/);
    assert.deepEqual(troubles(await check(few, { servicePorts: 10 })), []);
    assert.match(troubles(await check(few, { taken: taken(10) }))[0]!, /^fail: .*: 0 of 10 are free.* → widen/);
    assert.match(
      troubles(await check(range(20_000, 20_099), { taken: taken(91) }))[0]!,
      /^warn: .*: 9 of 100 are free/,
    );
  });

  test('that a running proxy holds do not count', async () => {
    const running = await check(range(20_000, 20_001), { isServed: true, servicePorts: 9 });
    assert.match(linesOf(running)[0]!, /^ok: .*a proxy that runs here has its own/);
  });

  test('in a chosen range are for the proxy alone', async () => {
    assert.match(
      troubles(await check(range(32_000, 32_100)))[0]!,
      /^warn: --proxy-port-range shares 32000-32100 with NodePorts/,
    );
    const chosen = range(40_000, 40_001);
    const outgoing = troubles(await check(chosen))[0]!;
    assert.match(outgoing, /^warn: the kernel uses 40000-40001 of .* → .*ip_local_reserved_ports=40000-40001/);
    assert.deepEqual(troubles(await check(chosen, { reserved: '40000-40001' })), []);
  });
});

describe('ports of Services on this node', () => {
  /** Programs listen at 192.168.50.10, at the ports 30080 to 30099 and 80 of TCP. */
  const check = async (
    services: readonly Service[],
    { nodePorts = [NODE], isServed = false, http = [] as number[] } = {},
  ) => {
    const taken: SocketPort[] = ['80/TCP', ...Array.from({ length: 20 }, (_, i): SocketPort => `${30_080 + i}/TCP`)];
    const machine = fakeMachine({
      isListening: (at, port, protocol) => {
        // With thousands of Services and addresses, asking for each pair would mean millions of questions.
        assert.ok(taken.includes(`${port}/${protocol}`), `nobody listens at ${port}/${protocol}`);
        return at === NODE;
      },
      listeners: () => new Set(taken),
      ownersOf: (ports) => new Map(ports.has('30080/TCP') ? [['30080/TCP', 'nginx (7)']] : []),
      servingProxy: async () => (isServed ? { pid: 7, uid: 0 } : undefined),
    });
    return linesOf(
      await checkNodePorts(machine, { all: [address('127.0.0.1'), NODE], nodePorts, http: new Set(http) }, services),
    );
  };
  const FINE = 'ok: no other program listens at 1 port of Services';

  test('a program that listens at a NodePort keeps its clients', async () => {
    assert.deepEqual(await check([service('shop/web', ports(30_080))]), [
      'warn: nginx (7) listens at 30080/TCP, the NodePort of shop/web: it keeps its clients, and the Service is not ' +
        'served there → give one of the two another port',
    ]);
    const [held] = await check([service('shop/web', ports(30_080))], { isServed: true });
    assert.match(held!, /not served there, unless the Service had the port first → /);
    assert.deepEqual(await check([service('shop/web', ports(30_070))]), [FINE]);
    const elsewhere = { nodePorts: [address('127.0.0.1')] };
    assert.deepEqual(await check([service('shop/web', ports(30_080))], elsewhere), [FINE]);
    assert.deepEqual(await check([service('shop/web', ports(0))]), []);
  });

  test("a NodePort that is an HTTP port of the proxy's own is not served, whether the proxy runs or not", async () => {
    for (const isServed of [false, true]) {
      assert.deepEqual(await check([service('shop/web', ports(30_080))], { http: [30_080], isServed }), [
        "warn: 30080/TCP, the NodePort of shop/web, is an HTTP port of the proxy's own, so the Service is not served " +
          'there → choose another port',
      ]);
    }
  });

  test('health check node ports are for the proxy, which may hold them already', async () => {
    const services = [service('shop/web', { ...ports(0), healthCheckNodePort: 30_080 })];
    assert.match(
      (await check(services))[0]!,
      /^warn: nginx \(7\) listens at 30080\/TCP, the health check node port of/,
    );
    assert.deepEqual(await check(services, { isServed: true }), [FINE]);
  });

  test('load balancer IPs of this node take clients away, external IPs are not served', async () => {
    const addresses = [address('192.0.2.1'), NODE];
    const [balanced] = await check([service('shop/web', { ...ports(0), loadBalancerIPs: addresses })]);
    assert.match(balanced!, /at 80\/TCP of 192\.168\.50\.10, a load balancer IP of shop\/web: the rules take/);
    const [shared, own] = await check([service('shop/web', { ...ports(0), clusterIPs: addresses })]);
    assert.match(shared!, /^warn: cluster IPs are addresses of this node \(192\.168\.50\.10 of shop\/web\): a program/);
    assert.match(own!, /at 80\/TCP of 192\.168\.50\.10, the cluster IP of shop\/web: it keeps its clients/);
    const [external] = await check([service('shop/web', { ...ports(0), externalIPs: addresses })]);
    assert.match(external!, /at 80\/TCP of 192\.168\.50\.10, an external IP of shop\/web: it keeps its clients/);
  });

  test('the first ten clashes are listed, the others counted', async () => {
    const findings = await check(Array.from({ length: 18 }, (_, i) => service('shop/web', ports(30_082 + i))));
    assert.equal(findings.length, 11);
    assert.match(findings[10]!, /^warn: programs listen at 8 more ports of Services → /);
  });
});
