import assert from 'node:assert/strict';
import { afterEach, before, describe, test } from 'node:test';
import { connectControl } from '../../../src/cli/client.ts';
import { askOne } from '../../../src/cli/shared.ts';
import { endpointName } from '../../../src/model/endpoint.ts';
import type { Explanation, Question } from '../../../src/model/view.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { address } from '../../support/model.ts';
import type { Agent } from '../agent.ts';
import { NOBODY, TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { addIpv6, IPV6 } from '../ipv6.ts';
import { serviceObjects, sliceObject } from '../manifests.ts';
import type { Attempt, Outcome } from '../programs/outcomes.ts';
import { PROGRAM } from '../proxy.ts';
import { CLIENT_ADDRESS, NODE_ADDRESS, OUTSIDE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

const LOAD_BALANCER_IP = '203.0.113.10';
const MANY = 2_000;

/** Who answers at each of these. */
const NAMES = new Map(
  [...POD_ADDRESSES, ...IPV6.pods.map((pod) => `[${pod}]`)].flatMap((pod, index) =>
    [TCP.name, UDP['udp-name']].map((port) => [`${pod}:${port}`, `pod-${(index % 3) + 1}`]),
  ),
);

describe(`what explain says, on iptables-${FLAVOUR}`, { timeout: 900_000 }, () => {
  const environment = testEnvironment();

  before(async () => {
    await addIpv6(environment);
    for (const [index, pod] of environment.pods.entries()) {
      await pod.call('listenTcp', { port: TCP.name, mode: 'name', name: pod.name, host: IPV6.pods[index] as string });
    }
    await environment.startProxy({
      // Rules of others stay where they are put.
      args: ['--cluster-cidr', '10.244.0.0/16', '--hostname-override', 'node-a', '--iptables-sync-period', '1h'],
    });
  });
  afterEach(() => environment.manifests.clear());

  type From = 'node' | 'client' | 'outside';
  const CLIENTS: Readonly<Record<From, readonly [ipv4: string, ipv6: string] | undefined>> = {
    node: undefined,
    client: [CLIENT_ADDRESS, IPV6.client],
    outside: [OUTSIDE_ADDRESS, IPV6.outside],
  };

  async function explain(from: From, { protocol, host, port }: Attempt): Promise<Explanation> {
    const client = CLIENTS[from]?.[host.includes(':') ? 1 : 0];
    const question: Question = {
      address: address(host),
      port,
      protocol: protocol === 'tcp' ? 'TCP' : 'UDP',
      ...(client !== undefined && { client: address(client) }),
    };
    return await askOne(connectControl(environment.proxy.controlSocket, systemClock), 'explain', question);
  }

  /** What a connection does right after that; and that it is what was said. */
  async function compare(from: From, attempt: Attempt): Promise<Explanation> {
    const explanation = await explain(from, attempt);
    const agent: Agent = environment[from];
    const expected = expectedOf(explanation);
    const timeoutMs = expected === 'timeout' ? 500 : PATIENCE_MS;
    const [outcome] = await agent.call('outcomes', { attempts: [attempt], timeoutMs });
    assert.equal(outcome, expected, `${from} to ${JSON.stringify(attempt)}: ${explanation.summary}`);
    return explanation;
  }

  function expectedOf({ served, nextPick, summary }: Explanation): Outcome {
    if (served && nextPick !== undefined)
      return NAMES.get(endpointName(nextPick)) ?? `nobody at ${endpointName(nextPick)}`;
    if (summary.includes(' the client times out')) return 'timeout';
    return summary.includes(' refuses it') || summary.includes('is closed to all') ? 'ECONNREFUSED' : 'timeout';
  }

  const tcp = (host: string, port = 80): Attempt => ({ protocol: 'tcp', host, port });
  const udp = (host: string, port = 53): Attempt => ({ protocol: 'udp', host, port });

  const PORTS = [
    { name: 'tcp', port: 80, target: TCP.name },
    { name: 'udp', port: 53, target: UDP['udp-name'], protocol: 'UDP' },
  ] as const;

  test('is what the next connection gets, from wherever it comes', async () => {
    const [clusterIP, nodePort] = [environment.clusterIP(), environment.nodePort()];
    environment.write({
      name: 'web',
      clusterIP,
      ports: PORTS.map((port) => ({ ...port, nodePort })),
      endpoints: POD_ADDRESSES,
      loadBalancerIPs: [LOAD_BALANCER_IP],
    });
    await environment.waitForRules(clusterIP, 2);
    const answered = new Set<Outcome>();
    for (let round = 0; round < 4; round++) {
      for (const [from, attempt] of [
        ['node', tcp(clusterIP)],
        ['client', tcp(clusterIP)],
        ['outside', tcp(clusterIP)],
        ['node', udp(clusterIP)],
        ['client', udp(clusterIP)],
        ['node', tcp(NODE_ADDRESS, nodePort)],
        ['node', tcp('127.0.0.1', nodePort)],
        ['node', tcp('127.0.0.2', nodePort)],
        ['client', tcp(NODE_ADDRESS, nodePort)],
        ['outside', tcp(NODE_ADDRESS, nodePort)],
        ['outside', udp(NODE_ADDRESS, nodePort)],
        ['outside', tcp(LOAD_BALANCER_IP)],
      ] as const) {
        const explanation = await compare(from, attempt);
        assert.ok(explanation.served, explanation.summary);
        assert.match(explanation.summary, /^test\/web:(tcp|udp) takes it; the next connection goes to /);
        answered.add(expectedOf(explanation));
      }
    }
    assert.deepEqual([...answered].sort(), ['pod-1', 'pod-2', 'pod-3']);
    // Nor does asking take a turn from anybody.
    const picks = await Promise.all([1, 2, 3].map(async () => (await explain('client', tcp(clusterIP))).nextPick));
    assert.equal(new Set(picks.map((pick) => pick && endpointName(pick))).size, 1);
  });

  test('keeps to the endpoint that affinity holds a client at', async () => {
    const [clusterIP, nodePort] = [environment.clusterIP(), environment.nodePort()];
    environment.write({
      name: 'sticky',
      clusterIP,
      ports: [{ ...PORTS[0], nodePort }],
      endpoints: POD_ADDRESSES,
      affinitySeconds: 60,
    });
    await environment.waitForRules(clusterIP, 1);
    const picks = new Map<From, Set<string>>();
    for (const from of ['client', 'outside', 'client', 'node', 'outside', 'client', 'node'] as const) {
      const name = expectedOf(await compare(from, tcp(clusterIP)));
      picks.set(from, (picks.get(from) ?? new Set()).add(name));
    }
    for (const [from, names] of picks) assert.equal(names.size, 1, `${from}: ${[...names]}`);
    // The node sends to all of them from one.
    const loopback = new Set<Outcome>();
    for (const host of ['127.0.0.1', '127.0.0.2', '127.0.0.3', '127.0.0.2']) {
      loopback.add(expectedOf(await compare('node', tcp(host, nodePort))));
    }
    assert.equal(loopback.size, 1, [...loopback].join());
  });

  test('is true over IPv6, too', async () => {
    const clusterIP = 'fd00:96::77';
    environment.write({
      name: 'six',
      clusterIP,
      ports: [{ name: 'tcp', port: 80, target: TCP.name, nodePort: 30_677 }],
      endpoints: IPV6.pods,
    });
    // It is known before its rules are in the kernel.
    const isKnown = async (attempt: Attempt) => (await explain('node', attempt)).service !== undefined;
    await waitFor('its rules', async () => (await isKnown(tcp(clusterIP))) && (await environment.isInSync()));
    for (const [from, attempt] of [
      ['node', tcp(clusterIP)],
      ['client', tcp(clusterIP)],
      ['outside', tcp(clusterIP)],
      ['client', tcp(IPV6.node, 30_677)],
      ['outside', tcp(IPV6.node, 30_677)],
      ['node', tcp('::1', 30_677)],
    ] as const) {
      assert.ok((await compare(from, attempt)).served);
    }
    const ports = PORTS.map((port) => ({ ...port, nodePort: 30_678 }));
    environment.write({ name: 'six-empty', clusterIP: 'fd00:96::78', ports, endpoints: [] });
    await waitFor('its rules', async () => (await isKnown(tcp('::1', 30_678))) && (await environment.isInSync()));
    assert.match(
      (await compare('node', tcp('::1', 30_678))).summary,
      / refuses it, but .* the client times out: it has no endpoints/,
    );
    for (const attempt of [tcp(IPV6.node, 30_678), udp('::1', 30_678)]) {
      assert.match((await compare('node', attempt)).summary, / refuses it: it has no endpoints/);
    }
  });

  test('takes an external IP that no node has for served, to everybody', async () => {
    const [clusterIP, externalIP] = [environment.clusterIP(), '203.0.113.77'];
    const ports = PORTS.slice(0, 1);
    environment.write({ name: 'external', clusterIP, ports, endpoints: POD_ADDRESSES, externalIPs: [externalIP] });
    await environment.waitForRules(clusterIP, 1);
    for (const from of ['client', 'node', 'outside'] as const) {
      assert.ok((await compare(from, tcp(externalIP))).served, from);
    }
  });

  test('says what keeps a Service from its endpoints', async () => {
    const port = PORTS[0];
    const pod = { address: POD_ADDRESSES[0] };
    const misplaced = sliceObject('misplaced', [port], [pod]);
    for (const [name, slices, reason, message] of [
      ['missing', [], 'NoObjects', 'no EndpointSlice or Endpoints object in namespace test is for missing'],
      [
        'misplaced',
        [{ ...misplaced, metadata: { ...misplaced.metadata, namespace: 'b' } }],
        'OtherNamespace',
        'its endpoints are in namespace b, and the Service is in test',
      ],
      [
        'misnamed',
        [sliceObject('misnamed', [{ ...port, name: 'web' }], [pod])],
        'OtherPort',
        'its endpoints have port "web" (TCP), and the Service wants "tcp" (TCP)',
      ],
      [
        'starting',
        [sliceObject('starting', [port], [{ ...pod, conditions: { ready: false, serving: false } }])],
        'NotReady',
        'its only endpoint is not ready',
      ],
    ] as const) {
      const clusterIP = environment.clusterIP();
      const [service] = serviceObjects({ name, clusterIP, ports: [port] });
      environment.manifests.write(`${name}.yaml`, [service as object, ...slices]);
      await environment.waitForRules(clusterIP, 1);
      const { summary, noEndpoints } = await compare('client', tcp(clusterIP));
      assert.deepEqual(noEndpoints, { reason, message });
      assert.equal(summary, `test/${name}:tcp refuses it: ${message}`);
    }
  });

  test('names the clients that are turned away, and why', async () => {
    const [empty, local, ranged, none] = Array.from({ length: 4 }, () => environment.clusterIP()) as [
      string,
      string,
      string,
      string,
    ];
    const [nodePort, emptyNodePort] = [environment.nodePort(), environment.nodePort()];
    environment.write({
      name: 'empty',
      clusterIP: empty,
      ports: PORTS.map((port) => ({ ...port, nodePort: emptyNodePort })),
      endpoints: [],
    });
    const spec = { externalTrafficPolicy: 'Local' };
    const elsewhere = [{ address: POD_ADDRESSES[0], nodeName: 'node-b' }];
    environment.manifests.write('local.yaml', [
      ...serviceObjects({ name: 'local', clusterIP: local, ports: [{ ...PORTS[0], nodePort }], spec }),
      sliceObject('local', [PORTS[0]], elsewhere),
    ]);
    environment.manifests.write('ranged.yaml', [
      ...serviceObjects({
        name: 'ranged',
        clusterIP: ranged,
        ports: [PORTS[0]],
        loadBalancerIPs: [LOAD_BALANCER_IP],
        spec: { loadBalancerSourceRanges: [`${CLIENT_ADDRESS}/32`] },
      }),
      sliceObject('ranged', [PORTS[0]], elsewhere),
    ]);
    await environment.waitForRules(empty, 2);
    await environment.waitForRules(local, 1);
    await environment.waitForRules(ranged, 1);
    const proxyPort = await environment.localPort('test/ranged:tcp');
    for (const [from, attempt, said] of [
      ['client', tcp(empty), /^test\/empty:tcp refuses it: it has no endpoints; check that its selector/],
      ['node', tcp(empty), /^test\/empty:tcp refuses it/],
      ['outside', tcp(NODE_ADDRESS, emptyNodePort), /^test\/empty:tcp refuses it/],
      ['client', udp(empty), /^test\/empty:udp refuses it/],
      ['outside', tcp(NODE_ADDRESS, nodePort), /^test\/local:tcp drops it: its policy is Local, and no endpoint/],
      ['client', tcp(NODE_ADDRESS, nodePort), /^test\/local:tcp takes it/],
      ['node', tcp(NODE_ADDRESS, nodePort), /^test\/local:tcp takes it/],
      [
        'outside',
        tcp(LOAD_BALANCER_IP),
        /^test\/ranged:tcp drops it: 192\.168\.50\.1 is not in its load balancer source/,
      ],
      ['node', tcp(LOAD_BALANCER_IP), /^test\/ranged:tcp drops it: 192\.168\.50\.10 is not in/],
      ['client', tcp(LOAD_BALANCER_IP), /^test\/ranged:tcp takes it/],
      ['outside', tcp(NODE_ADDRESS, proxyPort), /^it is the proxy's own port for test\/ranged:tcp, which is closed/],
      ['node', tcp(NODE_ADDRESS, proxyPort), /^it is the proxy's own port for test\/ranged:tcp, which answers to this/],
    ] as const) {
      assert.match((await compare(from, attempt)).summary, said);
    }
    const endpoint = await explain('node', tcp(POD_ADDRESSES[0], TCP.name));
    assert.match(endpoint.summary, /^no Service is at .*; it is an endpoint of test\/local:tcp, test\/ranged:tcp, and/);
    assert.match((await explain('node', tcp(none))).summary, /^no Service is at .*, so the proxy leaves it alone$/);
  });

  test('takes the source that the route to the destination has, on a node with two networks', async () => {
    const [own, within, apart] = ['192.168.70.5', '192.168.70.100', '192.168.70.101'] as const;
    const { node, outside } = environment.topology;
    await node.ip(
      `link add eth1 type veth peer name eth1 netns ${outside.name}`,
      `addr add ${own}/24 dev eth1`,
      'link set eth1 up',
    );
    await outside.ip('link set eth1 up');
    for (const [name, address, range] of [
      ['within', within, '192.168.70.0/24'],
      ['apart', apart, '192.168.50.0/24'],
    ] as const) {
      const clusterIP = environment.clusterIP();
      environment.write({
        ...{ name, clusterIP, ports: PORTS, endpoints: POD_ADDRESSES, loadBalancerIPs: [address] },
        spec: { loadBalancerSourceRanges: [range] },
      });
      await environment.waitForRules(clusterIP, PORTS.length);
    }
    for (const to of [tcp, udp] as const) {
      const port = to('').port;
      assert.ok((await compare('node', to(within, port))).served);
      const { summary } = await compare('node', to(apart, port));
      assert.match(summary, /^test\/apart:(tcp|udp) drops it: 192\.168\.70\.5 is not in its load balancer source/);
    }
    await node.ip('link del eth1');
  });

  test('finds rules of other programs, and misses rules of ours', async () => {
    const clusterIP = environment.clusterIP();
    environment.write({ name: 'fenced', clusterIP, ports: PORTS.slice(0, 1), endpoints: POD_ADDRESSES });
    await environment.waitForRules(clusterIP, 1);
    const { iptables } = environment;
    // Ahead of ours, as until the next periodic sync. Named by its address, and by the interface that it comes by.
    for (const [rule, from] of [
      [`-t filter -I INPUT -s ${CLIENT_ADDRESS} -p tcp -j DROP`, 'client'],
      ['-t filter -I INPUT -i eth0 -p tcp -j DROP', 'outside'],
    ] as const) {
      await iptables.must(rule);
      assert.match(
        (await compare(from, tcp(clusterIP))).summary,
        /^test\/fenced:tcp would take it, but a rule drops it \(-t filter -A INPUT/,
      );
      assert.ok((await compare('node', tcp(clusterIP))).served);
      await iptables.must(rule.replace('-I', '-D'));
    }
    // On the node's own way out, too, for which the kernel still names the interface that NAT leads it away from.
    const localPort = await environment.localPort('test/fenced:tcp');
    for (const [matches, isServed] of [
      ['', false],
      ['-o eth0 ', false],
      ['-o lo ', true],
    ] as const) {
      const rule = `-t filter -A OUTPUT ${matches}-p tcp -m tcp --dport ${localPort} -j DROP`;
      await iptables.must(rule);
      const { served, summary } = await compare('node', tcp(clusterIP));
      assert.equal(served, isServed, summary);
      if (!isServed)
        assert.match(summary, /^test\/fenced:tcp would take it, but a rule drops it \(-t filter -A OUTPUT/);
      await iptables.must(rule.replace('-A', '-D'));
    }
    await iptables.must(
      `-t nat -I PREROUTING -d ${clusterIP} -p tcp -m tcp --dport 80 -j DNAT --to-destination ${POD_ADDRESSES[2]}:${TCP.name}`,
    );
    const taken = await explain('outside', tcp(clusterIP));
    assert.match(taken.summary, /^a rule of another program sends it to 10\.244\.1\.13:8080 \(-t nat -A PREROUTING/);
    const attempts = [tcp(clusterIP)];
    const [outcome] = await environment.outside.call('outcomes', { attempts, timeoutMs: PATIENCE_MS });
    assert.equal(outcome, 'pod-3');
    await iptables.must(
      `-t nat -D PREROUTING -d ${clusterIP} -p tcp -m tcp --dport 80 -j DNAT --to-destination ${POD_ADDRESSES[2]}:${TCP.name}`,
    );
    const lost = /should take it, but no rule jumps to KUBE-PORTALS-HOST/;
    await waitFor('a look at the rules before the proxy has brought them back', async () => {
      await iptables.must('-t nat -F OUTPUT');
      return lost.test((await explain('node', tcp(clusterIP))).summary);
    });
    await waitFor('the rules to be back', async () => (await explain('node', tcp(clusterIP))).served);
  });

  test('reads comments that iptables prints without quotes', async () => {
    const clusterIP = environment.clusterIP();
    environment.write({ name: 'remarked', clusterIP, ports: PORTS.slice(0, 1), endpoints: POD_ADDRESSES });
    await environment.waitForRules(clusterIP, 1);
    const { iptables } = environment;
    for (const comment of ['-j', '-x', '--comment']) {
      const rule = `-t filter -I INPUT -s ${CLIENT_ADDRESS} -p tcp -m comment --comment ${comment} -j DROP`;
      await iptables.must(rule);
      const { summary } = await compare('client', tcp(clusterIP));
      assert.match(summary, /would take it, but a rule drops it \(-t filter -A INPUT .* -j DROP\)$/);
      await iptables.must(rule.replace('-I', '-D'));
    }
  });

  test('names the rule that leads a single packet through trees of chains', async (t) => {
    const services = Array.from({ length: MANY }, (_, n) => ({
      name: `s${n}`,
      clusterIP: `10.96.${16 + (n >> 8)}.${n & 255}`,
      ports: [{ port: 80, target: TCP.name, ...(n % 4 === 0 && { nodePort: 31_000 + n / 4 }) }],
      endpoints: n % 10 === 1 ? [] : [POD_ADDRESSES[n % 3] as string],
    }));
    environment.manifests.write('many.yaml', services.flatMap(serviceObjects));
    await environment.waitForRules(services.at(-1)?.clusterIP ?? '', 1);
    const ms: number[] = [];
    for (let n = 3; n < MANY; n += 97) {
      const clusterIP = services[n]?.clusterIP ?? '';
      const attempts: [From, Attempt][] = [
        ['node', tcp(clusterIP)],
        ['client', tcp(clusterIP)],
        ...(n % 4 === 0 ? ([['outside', tcp(NODE_ADDRESS, 31_000 + n / 4)]] as [From, Attempt][]) : []),
      ];
      for (const [from, attempt] of attempts) {
        const begun = performance.now();
        const { service, rules } = await compare(from, attempt);
        ms.push(performance.now() - begun);
        assert.equal(service?.name, `test/s${n}`);
        assert.ok(
          rules.some(({ chain }) => chain.startsWith('KUBE-USP-')),
          'by way of a bucket',
        );
      }
    }
    ms.sort((a, b) => a - b);
    t.diagnostic(
      `${ms.length} questions, each with a connection: median ${Math.round(ms[ms.length >> 1] ?? 0)} ms, slowest ${Math.round(ms.at(-1) ?? 0)} ms`,
    );
  });

  test('shows how the last dial to an endpoint failed', async () => {
    const clusterIP = environment.clusterIP();
    const ports = [{ port: 80, target: NOBODY }];
    environment.write({ name: 'dead', clusterIP, ports, endpoints: POD_ADDRESSES.slice(0, 1) });
    await environment.waitForRules(clusterIP, 1);
    const failureOf = async () => (await explain('node', tcp(clusterIP))).candidates[0]?.lastError?.err;
    assert.equal(await failureOf(), undefined);
    await environment.client.call('outcomes', { attempts: [tcp(clusterIP)], timeoutMs: PATIENCE_MS });
    // The engine's thread reports it without waiting for an answer.
    assert.match(await waitFor('the failure to be known', failureOf), /refused/i);
  });

  test('is printed on the command line, by name, and as an exit code', async () => {
    const clusterIP = environment.clusterIP();
    environment.write({ name: 'shown', clusterIP, ports: PORTS.slice(0, 1), endpoints: POD_ADDRESSES });
    await environment.waitForRules(clusterIP, 1);
    const run = (...args: string[]) =>
      environment.topology.node.run([PROGRAM, 'explain', ...args, '--control-socket', environment.proxy.controlSocket]);
    const byName = await run('test/shown:tcp');
    assert.equal(byName.code, 0, byName.stderr);
    assert.match(byName.stdout, /^test\/shown:tcp takes it; the next connection goes to 10\.244\.1\.1[123]:8080\.\n/);
    const { stdout } = await run(`${clusterIP}:80`, '--from', CLIENT_ADDRESS, '-o', 'json');
    assert.equal(JSON.parse(stdout).service.name, 'test/shown:tcp');
    assert.equal((await run(`${clusterIP}:81`)).code, 1);
  });
});
