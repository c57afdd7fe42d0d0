import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { Agent } from '../agent.ts';
import { isFast, listeningPorts, metric, NAMING, TCP, testEnvironment, UDP } from '../harness.ts';
import { CAPTURE, FLAVOUR, METHOD } from '../iptables.ts';
import { addIpv6, IPV6 } from '../ipv6.ts';
import { serviceObjects, sliceObject } from '../manifests.ts';
import type { Outcome } from '../programs/outcomes.ts';
import type { ProxyProcess } from '../proxy.ts';
import { NODE_ADDRESS, OUTSIDE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

const CLUSTER_IPS = ['10.96.2.10', 'fd00:96::10'] as const;
const NODE_PORT = 30_090;

const SLICES = [
  sliceObject('web', NAMING, [{ address: POD_ADDRESSES[0], nodeName: 'node-a' }]),
  sliceObject('web', NAMING, [{ address: IPV6.pods[1], nodeName: 'node-a' }], 'IPv6'),
];

function service(clusterIPs: readonly [string, ...string[]], more: object = {}): object {
  const ports = NAMING.map((port) => ({ ...port, nodePort: NODE_PORT }));
  const spec = { type: 'LoadBalancer', clusterIPs, ...more };
  return serviceObjects({ name: 'web', clusterIP: clusterIPs[0], ports, spec })[0] as object;
}

describe(`both address families, on ${METHOD}`, { timeout: 900_000 }, () => {
  const environment = testEnvironment('fresh');
  let unnumbered: Agent;

  before(async () => {
    await addIpv6(environment);
    unnumbered = new Agent(await environment.topology.addUnnumberedPod(), 'unnumbered');
    await environment.topology.node.refuseAtAnyRate();
    for (const [index, pod] of environment.pods.entries()) {
      const [host, name] = [IPV6.pods[index] as string, `${pod.name}/6`];
      await pod.call('listenTcp', { port: TCP.name, mode: 'name', name, host });
      await pod.call('listenUdp', { port: UDP['udp-name'], mode: 'udp-name', name, host });
    }
  });
  const OVER_IPV4 = ['pod-1'];
  const OVER_IPV6 = ['pod-2/6'];
  const REFUSED = ['ECONNREFUSED'];

  for (const bindAddress of ['0.0.0.0', '::']) {
    test(`a Service of both families is served in both, from everywhere, bound to ${bindAddress}`, async () => {
      await environment.startProxy({ args: ['--bind-address', bindAddress, '--hostname-override', 'node-a'] });
      environment.manifests.write('web.yaml', [service(CLUSTER_IPS, { healthCheckNodePort: 30_091 }), ...SLICES]);
      const { client, node, outside } = environment;
      await environment.until(client, CLUSTER_IPS[0], 80, OVER_IPV4);
      await environment.until(client, CLUSTER_IPS[1], 80, OVER_IPV6);
      for (const from of [client, node, outside, unnumbered]) {
        assert.deepEqual(await environment.outcomes(from, CLUSTER_IPS[0], 80), OVER_IPV4, from.name);
        assert.deepEqual(await environment.outcomes(from, NODE_ADDRESS, NODE_PORT), OVER_IPV4, from.name);
        assert.deepEqual(await environment.outcomes(from, CLUSTER_IPS[1], 80), OVER_IPV6, from.name);
        assert.deepEqual(await environment.outcomes(from, IPV6.node, NODE_PORT), OVER_IPV6, from.name);
      }
      for (const address of [NODE_ADDRESS, `[${IPV6.node}]`]) {
        const { status } = await outside.call('httpGet', { url: `http://${address}:10256/healthz` });
        assert.equal(status, 200, `as a kubelet asks at ${address}`);
      }
      for (const family of ['IPv4', 'IPv6']) {
        // The kernel has the rules a moment before the program knows that it has them.
        await waitFor(`a sync of ${family}`, async () => {
          const metrics = await environment.metricsText();
          return metric(metrics, 'kubeproxy_sync_proxy_rules_last_timestamp_seconds', `ip_family="${family}"`) > 0;
        });
      }
      const metrics = await environment.metricsText();
      const series = metrics.split('\n').filter((line) => line.startsWith('userspace_proxy_connections_total{'));
      assert.equal(series.length, NAMING.length, 'one for each Service port');
      assert.deepEqual(environment.proxy.lines({ level: 'error' }), []);
    });
  }

  test('local ports of both families stay through a crash', async () => {
    await environment.startProxy();
    environment.manifests.write('web.yaml', [service(CLUSTER_IPS), ...SLICES]);
    const { client } = environment;
    await environment.until(client, CLUSTER_IPS[0], 80, OVER_IPV4);
    await environment.until(client, CLUSTER_IPS[1], 80, OVER_IPV6);
    const rules = async () => [await environment.captured.ours(4), await environment.captured.ours(6)];
    const before = await rules();
    environment.proxy.kill('SIGKILL');
    await environment.proxy.exited();
    await environment.startProxy();
    await environment.until(client, CLUSTER_IPS[1], 80, OVER_IPV6);
    assert.deepEqual(await rules(), before);
  });

  test('connections and both endpoint sets go through an upgrade', { skip: !isFast }, async () => {
    const old = await environment.startProxy({ args: ['--hostname-override', 'node-a'] });
    const policy = { internalTrafficPolicy: 'Local' };
    environment.manifests.write('web.yaml', [service(CLUSTER_IPS, policy), ...SLICES]);
    const { client } = environment;
    await environment.until(client, CLUSTER_IPS[0], 80, OVER_IPV4);
    await environment.until(client, CLUSTER_IPS[1], 80, OVER_IPV6);
    const opened = await Promise.all(CLUSTER_IPS.map((host) => client.call('open', { host, port: 80 })));
    const list = opened.map(({ connection }) => connection);
    const listening = async () => (await listeningPorts(environment.topology.node)).toSorted();
    const before = await listening();
    old.kill('SIGHUP');
    const handedOver = () => old.lines({ msg: 'Handed over to the successor' })[0];
    const { pid } = await waitFor('the upgrade', handedOver).catch((error: Error) => {
      throw new Error(`${error.message}\n${old.tail()}`);
    });
    const synced = () => old.log.findLastIndex(({ msg }) => msg === 'Rules are in sync');
    const tookOver = () => old.log.findLastIndex(({ msg }) => msg === 'Took over from the predecessor');
    const hasSynced = () => tookOver() >= 0 && synced() > tookOver();
    await waitFor('the first sync of the new one', hasSynced).finally(() => {
      // It has the standard streams of the old one, whose end is waited for.
      if (!hasSynced()) process.kill(Number(pid), 'SIGKILL');
    });
    const states = await client.call('states', { list });
    const outcomes = await environment.outcomes(client, CLUSTER_IPS[1], 80);
    const after = await listening();
    process.kill(Number(pid), 'SIGTERM');
    assert.deepEqual(states, ['open', 'open']);
    assert.deepEqual(outcomes, OVER_IPV6);
    assert.deepEqual(after, before);
  });

  test('a Service of IPv6 alone is refused while it has no endpoint', async () => {
    await environment.startProxy();
    environment.manifests.write('web.yaml', [service([CLUSTER_IPS[1]])]);
    await environment.until(environment.client, CLUSTER_IPS[1], 80, REFUSED);
    assert.deepEqual(await environment.outcomes(environment.outside, IPV6.node, NODE_PORT), REFUSED);
    environment.manifests.write('web.yaml', [service([CLUSTER_IPS[1]]), ...SLICES]);
    await environment.until(environment.client, CLUSTER_IPS[1], 80, OVER_IPV6);
    assert.deepEqual(await environment.outcomes(environment.outside, IPV6.node, NODE_PORT), OVER_IPV6);
    assert.deepEqual(
      await environment.outcomes(environment.outside, NODE_ADDRESS, NODE_PORT),
      REFUSED,
      'not of its families',
    );
  });

  test('clients learn over UDP that the only endpoint refuses, at every address of both families', async () => {
    await environment.startProxy({ args: ['--hostname-override', 'node-a'] });
    const [clusterIP, clusterIPv6] = ['10.96.2.11', 'fd00:96::11'];
    const port = { name: 'dead', port: 53, target: 9053, protocol: 'UDP', nodePort: 30_053 } as const;
    const [dead] = environment.topology.pods;
    await dead.refuseAtAnyRate();
    const spec = { clusterIPs: [clusterIP, clusterIPv6] };
    environment.manifests.write('dead.yaml', [
      ...serviceObjects({ name: 'dead', clusterIP, ports: [port], spec }),
      sliceObject('dead', [port], [{ address: POD_ADDRESSES[0] }]),
      sliceObject('dead', [port], [{ address: IPV6.pods[0] }], 'IPv6'),
    ]);
    const { client, node, outside } = environment;
    const { nodePort } = port;
    const fromAll = [
      { host: clusterIP, port: 53 },
      { host: clusterIPv6, port: 53 },
      { host: NODE_ADDRESS, port: nodePort },
      { host: IPV6.node, port: nodePort },
    ];
    const onNode = [...fromAll, { host: '127.0.0.1', port: nodePort }];
    for (const family of [4, 6] as const) {
      const isThere = async () =>
        (await environment.captured.portals(family)).some((portal) => portal.name.startsWith('test/dead'));
      await waitFor(`rules of IPv${family}`, isThere);
    }
    const refusals = async () =>
      metric(
        await environment.metricsText(),
        'userspace_proxy_turned_away_total',
        'service="dead"',
        'reason="exhausted"',
      );
    for (const [from, targets] of [
      [client, fromAll],
      [unnumbered, fromAll],
      [outside, fromAll],
      [node, onNode],
    ] as const) {
      for (const target of targets) {
        const attempts = [{ protocol: 'udp', ...target }] as const;
        const outcome = await from.call('outcomes', { attempts, timeoutMs: PATIENCE_MS });
        assert.deepEqual(outcome, REFUSED, `${from.name} at ${target.host}:${target.port}`);
      }
    }
    // By the proxy, not by a rule.
    await waitFor('all to be counted', async () => (await refusals()) >= 3 * fromAll.length + onNode.length);
    environment.manifests.remove('dead.yaml');
  });

  test('one address of the node is for its family alone, and leads there by DNAT', async () => {
    await environment.startProxy({ args: ['--bind-address', IPV6.node] });
    environment.manifests.write('web.yaml', [service(CLUSTER_IPS), ...SLICES]);
    await environment.until(environment.client, CLUSTER_IPS[1], 80, OVER_IPV6);
    // No other address of the node, such as that of the interface by which the client comes, would have answered.
    const { localPort } = (await environment.captured.portals(6))[0]!;
    const listening = await listeningPorts(environment.topology.node);
    assert.deepEqual(
      listening.filter((each) => each.startsWith('tcp') && each.endsWith(`:${localPort}`)),
      [`tcp [${IPV6.node}]:${localPort}`],
    );
    assert.deepEqual(await environment.captured.portals(4), []);
  });

  test('a node of IPv6 alone is served', async () => {
    await environment.topology.node.ip('addr flush dev eth0 scope global', 'addr flush dev cbr0 scope global');
    await environment.topology.node.ip(
      `addr add ${IPV6.bridge}/64 dev cbr0 nodad`,
      `addr add ${IPV6.node}/64 dev eth0 nodad`,
      `route replace default via ${IPV6.outside}`,
    );
    const served = await environment.startProxy();
    await waitFor('a word about it', () => served.lines({ msg: 'Only IPv6 is served' }).length === 1);
    environment.manifests.write('web.yaml', [service(CLUSTER_IPS), ...SLICES]);
    await environment.until(environment.client, CLUSTER_IPS[1], 80, OVER_IPV6);
  });
});

describe(`a node that changes, on ${METHOD}`, { timeout: 300_000 }, () => {
  const OTHER_ADDRESS = '192.168.50.77';

  const environment = testEnvironment();
  let start: (...args: readonly string[]) => Promise<ProxyProcess>;
  /** While it is there, the kernel seems to have no NAT for IPv6. */
  let withoutNat: string;

  before(async () => {
    // What the tools of a node without that part of the kernel say. It is asked whether there are rules, too.
    const tools = environment.temporary('tools');
    withoutNat = environment.temporary('without-nat');
    mkdirSync(tools);
    const programs = CAPTURE === 'nft' ? ['nft'] : [`ip6tables-${FLAVOUR}-restore`, 'ip6tables-restore'];
    for (const program of programs) {
      const real = (await environment.topology.node.output(['sh', '-c', `command -v ${program}`])).trim();
      const script = [
        '#!/bin/sh',
        `[ -e ${withoutNat} ] && [ "$1" != --version ] || exec ${real} "$@"`,
        // nft has one program for both families.
        `text=$(cat); case "$text" in *"table ip "*) echo "$text" | ${real} "$@"; exit ;; esac`,
        `echo "unable to initialize table 'nat'" >&2; exit 3`,
      ];
      writeFileSync(join(tools, program), `${script.join('\n')}\n`, { mode: 0o755 });
    }
    start = (...args) => environment.startProxy({ args, env: { PATH: `${tools}:${process.env['PATH']}` } });
    // What follows a change of the address is no sync that was due in any case.
    await start('--nodeport-addresses', 'primary', '--iptables-sync-period', '1h');
    environment.manifests.write('web.yaml', [service(CLUSTER_IPS), ...SLICES]);
    await answers(environment.node, CLUSTER_IPS[0], 'pod-1');
    await answers(environment.node, NODE_ADDRESS, 'pod-1', NODE_PORT);
  });

  async function answers(from: Agent, host: string, outcome: Outcome, port = 80): Promise<void> {
    let seen: readonly Outcome[] = [];
    const isSo = async () => {
      seen = await from.call('outcomes', { attempts: [{ protocol: 'tcp', host, port }], timeoutMs: 1_000 });
      return seen[0] === outcome;
    };
    await waitFor(`${outcome} at ${host}`, isSo).catch((error: Error) => {
      throw new Error(`${error.message}; last seen ${seen}\n${environment.proxy.tail()}`);
    });
  }

  test('its own programs have Services, and NodePorts their address, soon after its address changes', async () => {
    assert.equal(environment.proxy.lines({ msg: 'Only IPv4 is served' }).length, 1);
    const { node, outside, topology } = environment;
    await topology.node.ip(
      `addr del ${NODE_ADDRESS}/24 dev eth0`,
      `addr add ${OTHER_ADDRESS}/24 dev eth0`,
      `route replace default via ${OUTSIDE_ADDRESS}`,
    );
    await answers(node, CLUSTER_IPS[0], 'pod-1');
    await answers(outside, OTHER_ADDRESS, 'pod-1', NODE_PORT);
  });

  test('IPv6 that it cannot serve costs nothing, and is served when it can be', async () => {
    const { client, node, topology } = environment;
    const onlyIpv4 = (reason: RegExp) =>
      waitFor(`the reason ${reason}`, () =>
        environment.proxy.lines({ msg: 'Only IPv4 is served' }).some((line) => reason.test(String(line['reason']))),
      );
    writeFileSync(withoutNat, '');
    await addIpv6(environment);
    await environment.proxy.stop();
    await start('--iptables-sync-period', '1s');
    const [host, name] = [IPV6.pods[1], 'pod-2 over IPv6'];
    await environment.pods[1].call('listenTcp', { port: TCP.name, mode: 'name', name, host });
    await onlyIpv4(/unable to initialize/);
    // What waits for more than two sync periods turns it red.
    const since = await environment.lastSync();
    await waitFor('syncs for more than three seconds', async () => (await environment.lastSync()) > since + 3);
    assert.equal((await node.call('httpGet', { url: 'http://127.0.0.1:10256/livez' })).status, 200);
    assert.deepEqual(environment.proxy.lines({ level: 'error' }), []);
    assert.doesNotMatch(await environment.metricsText(), /ip_family="IPv6"/);
    assert.deepEqual(await environment.captured.ours(6), []);

    rmSync(withoutNat);
    // It is tried again each minute, and at once when there is an address again.
    const addresses = [`${IPV6.node}/64 dev eth0`, `${IPV6.bridge}/64 dev cbr0`];
    await topology.node.ip(...addresses.map((address) => `addr del ${address}`));
    await waitFor('what it says now', () => {
      const [last] = environment.proxy.lines({ msg: 'Only IPv4 is served' }).slice(-1);
      return last?.['reason'] === 'this node has no other address';
    });
    await topology.node.ip(
      ...addresses.map((address) => `addr add ${address} nodad`),
      `route replace default via ${IPV6.outside}`,
    );
    for (const from of [client, node]) await answers(from, CLUSTER_IPS[1], name);
    assert.equal(environment.proxy.lines({ msg: 'IPv4 and IPv6 are served now' }).length, 1);
    assert.match(await environment.metricsText(), /ip_family="IPv6"/);

    const rules = await environment.captured.ours(6);
    await topology.node.ip(...addresses.map((address) => `addr del ${address}`));
    const lost = await environment.lastSync();
    await waitFor('syncs without an address', async () => (await environment.lastSync()) > lost + 3);
    assert.deepEqual(await environment.captured.ours(6), rules, 'the address may come back');
    assert.equal((await node.call('httpGet', { url: 'http://127.0.0.1:10256/livez' })).status, 200);
    assert.deepEqual(environment.proxy.lines({ level: 'error' }), []);
  });
});
