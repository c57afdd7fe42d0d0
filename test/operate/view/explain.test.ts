import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { follow } from '../../../src/capture/iptables/follow.ts';
import type { Iptables, Table } from '../../../src/capture/iptables/iptables.ts';
import { DROP_PORT, REJECT_PORT } from '../../../src/capture/portal.ts';
import type { Address } from '../../../src/model/address.ts';
import type { Endpoint, EndpointAddress } from '../../../src/model/endpoint.ts';
import type { Service, ServiceKey, ServiceOptions } from '../../../src/model/service.ts';
import type { ServicePort } from '../../../src/model/service-port.ts';
import { listenerId } from '../../../src/model/service-port.ts';
import type { Explanation, Question, ServiceView } from '../../../src/model/view.ts';
import { createExplain } from '../../../src/operate/view/explain.ts';
import { ServiceTracker } from '../../../src/services/service-tracker.ts';
import type { Clock } from '../../../src/util/clock.ts';
import { nodeFacts, planText, renderPortals } from '../../capture/fixtures.ts';
import { FakeIptables } from '../../fakes/fake-iptables.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { address, cidr } from '../../support/model.ts';
import { settle } from '../../support/until.ts';

const NODE = address('192.168.50.10');
const OUTSIDE = address('198.51.100.1');
const POD = address('10.244.1.20');
const LOCAL = [NODE, address('10.244.1.1'), address('127.0.0.1')];
const isLocal = (each: Address) => each.startsWith('127.') || LOCAL.includes(each);
const FACTS = nodeFacts({ clusterCidrs: ['10.244.0.0/16'] });

/** Its listeners are open, in the order of the Services: own sets from 40,000, local ones from 41,000. */
class World {
  /** A program of the node listens at these ports. */
  readonly listening = new Set<number>();
  readonly tracker = new ServiceTracker('IPv4', { isListening: (_, port) => this.listening.has(port) });
  readonly iptables = new FakeIptables();
  /** By name. */
  readonly ports = new Map<string, ServicePort>();
  readonly #numbers = new Map<string, number>();
  /** The last dial to these has failed. */
  failing: readonly Address[] = [];
  isDown = false;
  /** All endpoints have as many connections as they may have. */
  isFull = false;
  /** So many clients. */
  waiting = 0;
  ejected: readonly Address[] = [];
  /** No listener is open. */
  isOpening = false;
  /** Why. */
  failure: string | undefined;
  /** The clients of the questions to the data plane. */
  readonly askedAs: Address[] = [];

  constructor() {
    this.tracker.setTopology({ nodeName: 'n1' });
    this.tracker.setNodeAddresses(LOCAL);
  }

  service(name: string, fields: Partial<Service> & { readonly nodePort?: number } = {}): this {
    const key = `default/${name}` as ServiceKey;
    const { nodePort = 0, ...rest } = fields;
    const value: Service = {
      key,
      clusterIPs: [],
      externalIPs: [],
      loadBalancerIPs: [],
      ports: [{ name: 'http', protocol: 'TCP', port: 80, nodePort }],
      affinity: { type: 'None' },
      ...rest,
    };
    this.tracker.apply([{ kind: 'Service', key, value }]);
    return this;
  }

  endpoints(name: string, ...addresses: readonly (Partial<EndpointAddress> & { readonly address: Address })[]): this {
    const key = `default/${name}` as ServiceKey;
    const states = addresses.map((each) => ({
      ready: true,
      serving: true,
      terminating: false,
      nodeName: 'n1',
      ...each,
    }));
    const groups = [{ addresses: states, ports: [{ name: 'http', protocol: 'TCP' as const, port: 8080 }] }];
    this.tracker.apply([{ kind: 'Endpoints', key, value: { key, groups } }]);
    return this;
  }

  /** Updates what this program knows, but not the rules. */
  learn(): this {
    const { upserted, removed } = this.tracker.takeDelta();
    for (const name of removed) this.ports.delete(name);
    for (const port of upserted) {
      this.ports.set(port.name, port);
      if (!this.#numbers.has(port.name)) this.#numbers.set(port.name, this.#numbers.size);
    }
    return this;
  }

  /** Updates the rules, too. `others`: restore text of other programs. */
  async sync(...others: readonly string[]): Promise<this> {
    this.learn();
    const portals = [...this.ports.values()].map((servicePort) => {
      const [localPort, localSetPort] = this.#localPorts(servicePort.name);
      return { servicePort, localPort, ...(servicePort.local && { localSetPort }) };
    });
    for (const table of ['nat', 'filter'] as const) {
      const text = planText(table, await this.iptables.save('IPv4', table), renderPortals(portals, FACTS).rules);
      if (text !== undefined) await this.iptables.restore('IPv4', text);
    }
    if (others.length > 0) await this.iptables.restore('IPv4', `${others.join('\n')}\n`);
    return this;
  }

  #localPorts(name: string): readonly [own: number, local: number] {
    const number = this.#numbers.get(name) ?? 0;
    return [40_000 + number, 41_000 + number];
  }

  carried(name: string) {
    const servicePort = this.ports.get(name);
    if (servicePort === undefined) return undefined;
    const ports = this.#localPorts(name);
    const sets = servicePort.local === undefined ? (['own'] as const) : (['own', 'local'] as const);
    const listeners = sets.map((set, index) => ({
      id: listenerId(servicePort.name, 'IPv4', set),
      set,
      localPort: this.isOpening ? undefined : ports[index],
      ...(this.failure !== undefined && { failure: this.failure }),
    }));
    return { servicePort, listeners };
  }

  /** "10.96.0.1:80" */
  async ask(to: string, client?: Address): Promise<Explanation> {
    const [host = '', port] = to.split(':');
    return await this.explain({
      address: address(host),
      port: Number(port),
      protocol: 'TCP',
      ...(client !== undefined && { client }),
    });
  }

  explain(question: Question): Promise<Explanation> {
    return this.explainer()(question);
  }

  explainer(
    iptables: Pick<Iptables, 'list'> = this.iptables,
    clock: Clock = new ManualClock(),
  ): (question: Question) => Promise<Explanation> {
    const list = (table: Table, chain: string) => iptables.list('IPv4', table, chain);
    return createExplain({
      dataPlane: { nextPick: async (id, client) => this.#pick(id, client) },
      families: () => [
        {
          family: 'IPv4',
          capture: { follow: (packet) => follow(packet, { list, isLocal, clock }) },
          tracker: this.tracker,
          listeners: {
            carried: (name) => this.carried(name),
            ownerOf: (port) => [...this.ports.values()].find(({ name }) => this.#localPorts(name).includes(port))?.name,
          },
        },
      ],
      machine: {
        isLocal,
        departureTo: async (each) => ({
          source: isLocal(each) ? each : NODE,
          interfaceName: isLocal(each) ? 'lo' : 'eth0',
        }),
        interfaceTowards: (client) => (client === OUTSIDE ? 'eth0' : 'cbr0'),
      },
      service: (name) => this.#view(name),
      clientAddresses: {
        policy: { clientAddress: 'preserve', masqueradeAll: false },
        facts: () => ({ nodeAddresses: LOCAL, families: ['IPv4'] }),
      },
      clock,
    });
  }

  /** The last endpoint for the node itself, the first one for others. */
  #pick(id: string, client: Address): Endpoint | undefined {
    this.askedAs.push(client);
    if (this.isFull) return undefined;
    const port = this.ports.get(id.replace('/local', ''));
    const endpoints = (id.endsWith('/local') ? port?.local : port)?.endpoints;
    return LOCAL.includes(client) ? endpoints?.at(-1) : endpoints?.[0];
  }

  #view(name: string): ServiceView | undefined {
    const carried = this.carried(name);
    const viewed = (endpoint: Endpoint, shown: 'active' | 'draining') => ({
      ...{ endpoint, state: this.ejected.includes(endpoint.address) ? 'ejected' : shown },
      counters: { active: endpoint.port },
      ...(this.failing.includes(endpoint.address) && { lastError: { at: 1, err: 'refused' } }),
    });
    const listeners = carried?.listeners.map(({ set, localPort }) => ({
      ...{ set, localPort },
      endpoints: [
        ...carried.servicePort.endpoints.map((endpoint) => viewed(endpoint, 'active')),
        ...(carried.servicePort.draining ?? []).map((endpoint) => viewed(endpoint, 'draining')),
      ],
    }));
    const state = this.isDown ? 'down' : 'ok';
    const counters = { waiting: this.waiting };
    return carried && ({ name, listeners, state, counters } as unknown as ServiceView);
  }
}

const [ONE, TWO] = [address('10.244.1.11'), address('10.244.1.12')];

function web(fields: Parameters<World['service']>[1] = {}): World {
  return new World().service('web', { clusterIPs: [address('10.96.0.1')], ...fields });
}

async function summary(world: World, to: string, client?: Address): Promise<string> {
  return (await world.ask(to, client)).summary;
}

/** With one endpoint. */
function served(fields: Parameters<World['service']>[1] = {}): World {
  return web(fields).endpoints('web', { address: ONE });
}

const LOCAL_ELSEWHERE = { nodePort: 30_080, externalTrafficPolicy: 'Local' } as const;
const RANGED = {
  loadBalancerIPs: [address('203.0.113.1')],
  loadBalancerSourceRanges: [cidr('10.244.0.0/16')],
} as const;
const CORRECTED = '(the next sync of the rules corrects that)';

describe('a client for whom there is no endpoint now', () => {
  const asleep = (options: ServiceOptions) =>
    web({ options }).endpoints('web', { address: ONE, ready: false, serving: false }).sync();

  test('would wait for one, until too many do', async () => {
    const world = await asleep({ waitForEndpointsMs: 30_000, maxWaiting: 5 });
    const { summary: text, served: isServed, wouldWaitMs, noEndpoints } = await world.ask('10.96.0.1:80');
    const takes = 'default/web:http takes it';
    assert.equal(text, `${takes}; the client would wait up to 30s: its only endpoint is not ready`);
    assert.deepEqual([isServed, wouldWaitMs, noEndpoints?.reason], [false, 30_000, 'NotReady']);
    world.waiting = 5;
    const full = await world.ask('10.96.0.1:80');
    const why = 'as 5 clients wait already: its only endpoint is not ready';
    assert.deepEqual([full.summary, full.wouldWaitMs], [`${takes}, but refuses it, ${why}`, undefined]);
  });

  test('would queue while all endpoints are full, unless the Service lets nobody', async () => {
    const full = 'each of its endpoints has 10 connections, the most that it may have';
    for (const [options, expected] of [
      [{ maxConnections: 10 }, `; the client would wait up to 5s: ${full}`],
      [{ maxConnections: 10, queueTimeoutMs: 0 }, `, but ${full}`],
    ] as const) {
      const world = await web({ options }).endpoints('web', { address: ONE }).sync();
      world.isFull = true;
      assert.equal(await summary(world, '10.96.0.1:80'), `default/web:http takes it${expected}`);
    }
  });
});

describe('a connection that is carried', () => {
  test('is explained by the rules, the listener and the next endpoint', async () => {
    const world = await web().endpoints('web', { address: ONE, zone: 'a' }, { address: TWO, ready: false }).sync();
    const explanation = await world.ask('10.96.0.1:80');
    assert.equal(explanation.summary, 'default/web:http takes it; the next connection goes to 10.244.1.11:8080');
    assert.ok(explanation.served);
    assert.deepEqual(
      explanation.rules.map(({ table, chain }) => `${table} ${chain}`),
      ['nat OUTPUT', 'nat KUBE-PORTALS-HOST', 'filter INPUT', 'filter INPUT', 'filter KUBE-NODEPORT-NON-LOCAL'],
    );
    assert.deepEqual([explanation.service?.name, explanation.listener?.localPort], ['default/web:http', 40_000]);
    assert.deepEqual(explanation.nextPick, { address: ONE, port: 8080 });
    world.failing = [ONE, TWO];
    const common = { nodeName: 'n1', active: 8080, lastError: { at: 1, err: 'refused' } };
    assert.deepEqual((await world.ask('10.96.0.1:80')).candidates, [
      { ...common, endpoint: { address: ONE, port: 8080 }, zone: 'a', chosen: true, weight: 1 },
      { ...common, endpoint: { address: TWO, port: 8080 }, chosen: false, weight: 1, reason: 'not ready' },
    ]);
  });

  test('names nothing that is amiss', async () => {
    assert.equal((await (await served().sync()).ask('10.96.0.1:80')).noEndpoints, undefined);
    assert.equal((await (await new World().sync()).ask('10.96.0.1:80')).noEndpoints, undefined);
    const message = 'its only endpoint is not ready';
    const { noEndpoints, summary: text } = await (
      await web().endpoints('web', { address: ONE, ready: false, serving: false }).sync()
    ).ask('10.96.0.1:80');
    assert.deepEqual(noEndpoints, { reason: 'NotReady', message });
    assert.ok(text.endsWith(message), text);
  });

  test('names the PROXY protocol header that the endpoint gets', async () => {
    const [without, asking] = [await served().sync(), await served({ options: { proxyProtocol: 'v1' } }).sync()];
    assert.equal((await without.ask('10.96.0.1:80')).proxyProtocol, undefined);
    assert.equal((await asking.ask('10.96.0.1:80')).proxyProtocol, 'v1');
  });

  test('says when connections to its endpoint have failed', async () => {
    const [only, two] = [served(), web().endpoints('web', { address: ONE }, { address: TWO })];
    await Promise.all([only.sync(), two.sync()]);
    const ending = async (world: World, failing: Address) => {
      world.failing = [failing];
      return (await summary(world, '10.96.0.1:80', OUTSIDE)).replace(/^.* goes to 10\.244\.1\.11:8080/, '');
    };
    assert.equal(await ending(only, ONE), ', its only endpoint; connections to it have failed lately: refused');
    assert.equal(await ending(two, ONE), '; connections to it have failed lately: refused');
    assert.equal(await ending(two, TWO), '');
  });

  test('is not expected to succeed where the Service is down', async () => {
    const world = await web().endpoints('web', { address: ONE }, { address: TWO }).sync();
    world.isDown = true;
    assert.equal((await world.ask('10.96.0.1:80', OUTSIDE)).served, true, 'another endpoint set of it is down');
    world.ejected = [ONE, TWO];
    const { summary: text, served: isServed } = await world.ask('10.96.0.1:80', OUTSIDE);
    assert.match(
      text,
      /^default\/web:http takes it, but no endpoint answers; the next connection goes to 10\.244\.1\.11:8080/,
    );
    assert.equal(isServed, false);
  });

  test('says which endpoints are ejected', async () => {
    const world = await web().endpoints('web', { address: ONE }, { address: TWO }).sync();
    world.ejected = [ONE];
    const { summary: text, candidates } = await world.ask('10.96.0.1:80', OUTSIDE);
    assert.match(text, / goes to 10\.244\.1\.11:8080, which is ejected$/);
    assert.deepEqual(
      candidates.map(({ chosen, ejected }) => [chosen, ejected]),
      [
        [true, true],
        [true, undefined],
      ],
    );
  });

  test('comes from the named client, or from this node', async () => {
    const world = await web().endpoints('web', { address: ONE }, { address: TWO }).sync();
    assert.match(await summary(world, '10.96.0.1:80'), / 10\.244\.1\.12:8080$/);
    assert.equal((await world.ask('10.96.0.1:80', NODE)).rules[0]?.chain, 'OUTPUT');
    const { rules, summary: sentence } = await world.ask('10.96.0.1:80', OUTSIDE);
    assert.match(sentence, / 10\.244\.1\.11:8080$/);
    assert.equal(rules[0]?.chain, 'PREROUTING');
  });

  test('goes to the endpoint set that its client is for', async () => {
    const world = await web(LOCAL_ELSEWHERE)
      .endpoints('web', { address: ONE, nodeName: 'n2' }, { address: TWO })
      .sync();
    const inside = await world.ask('192.168.50.10:30080', POD);
    assert.equal(inside.listener?.set, 'own');
    assert.ok(inside.candidates.every(({ chosen }) => chosen));
    const outside = await world.ask('192.168.50.10:30080', OUTSIDE);
    assert.equal(outside.listener?.set, 'local');
    assert.match(outside.summary, / 10\.244\.1\.12:8080$/);
    assert.deepEqual(
      outside.candidates.map(({ reason }) => reason),
      ['on another node, and the policy is Local', undefined],
    );
    for (const loopback of ['127.0.0.1', '127.0.0.2', '127.255.255.254']) {
      assert.match(await summary(world, `${loopback}:30080`), /^default\/web:http takes it; /);
    }
    assert.deepEqual(world.askedAs.slice(0, 3), [POD, OUTSIDE, '127.0.0.1'], 'the node answers itself from loopback');
  });
});

const OWN_PORT = "it is the proxy's own port for default/web:http, which";
const ENDPOINTS_CAME = `though endpoints have come since ${CORRECTED}`;

const SENTENCES: readonly (readonly [
  world: () => World | Promise<World>,
  to: string,
  from: Address | undefined,
  says: string | RegExp,
])[] = [
  // The proxy's own port.
  [
    () => served().sync(),
    '192.168.50.10:40000',
    undefined,
    new RegExp(`^${OWN_PORT} answers to this node itself; the next`),
  ],
  [() => served().sync(), '192.168.50.10:40000', OUTSIDE, `${OWN_PORT} is closed to all but this node itself`],
  [() => served().learn(), '192.168.50.10:40000', OUTSIDE, /^no Service is at/],
  // No endpoint may serve.
  [
    () => web().sync(),
    '10.96.0.1:80',
    undefined,
    'default/web:http refuses it: no EndpointSlice or Endpoints object in namespace default is for web',
  ],
  [
    () =>
      web({ ports: [{ name: '', protocol: 'TCP', port: 80, nodePort: 0 }] })
        .endpoints('web', { address: ONE })
        .sync(),
    '10.96.0.1:80',
    undefined,
    'default/web refuses it: its endpoints have port "http" (TCP), and the Service wants "" (TCP)',
  ],
  [
    async () => (await served().sync()).endpoints('web').learn(),
    '10.96.0.1:80',
    undefined,
    'default/web:http takes it, but it has no endpoints; check that its selector matches the labels of Pods',
  ],
  [
    () => web(LOCAL_ELSEWHERE).endpoints('web', { address: ONE, nodeName: 'n2' }).sync(),
    '192.168.50.10:30080',
    OUTSIDE,
    'default/web:http drops it: its policy is Local, and no endpoint on this node may serve',
  ],
  [
    () =>
      web({ ...LOCAL_ELSEWHERE, ...RANGED })
        .endpoints('web', { address: ONE, nodeName: 'n2' })
        .sync(),
    '192.168.50.10:30080',
    OUTSIDE,
    /drops it: its policy is Local/,
  ],
  // Source ranges.
  [
    () => served(RANGED).sync(),
    '203.0.113.1:80',
    OUTSIDE,
    'default/web:http drops it: 198.51.100.1 is not in its load balancer source ranges',
  ],
  [() => served(RANGED).sync(), '203.0.113.1:80', undefined, /192\.168\.50\.10 is not in its load balancer source/],
  [() => served(RANGED).sync(), '203.0.113.1:80', POD, /takes it/],
  // Firewalls.
  [
    () => served().sync('*filter', '-I INPUT 1 -p tcp -j DROP', '-I INPUT 1 -i cbr0 -j ACCEPT', 'COMMIT'),
    '10.96.0.1:80',
    OUTSIDE,
    'default/web:http would take it, but a rule drops it (-t filter -A INPUT -p tcp -j DROP)',
  ],
  [() => served().sync('*filter', '-I INPUT 1 -i eth0 -j DROP', 'COMMIT'), '10.96.0.1:80', POD, /takes it/],
  ...(
    [
      [served(), '10.96.0.1:80', 40_000, 'default/web:http would take it'],
      [web(), '10.96.0.1:80', REJECT_PORT, 'default/web:http would refuse it'],
      [
        web({ internalTrafficPolicy: 'Local' }).endpoints('web', { address: ONE, nodeName: 'n2' }),
        '10.96.0.1:80',
        DROP_PORT,
        'default/web:http would drop it',
      ],
      [served(), '192.168.50.10:40000', 40_000, `${OWN_PORT} answers to this node itself`],
    ] as const
  ).map(([world, to, port, would]) => {
    const rule = `-p tcp -m tcp --dport ${port} -j DROP`;
    const fenced = () => world.sync('*filter', `-A OUTPUT ${rule}`, 'COMMIT');
    return [fenced, to, undefined, `${would}, but a rule drops it (-t filter -A OUTPUT ${rule})`] as const;
  }),
  [
    () => served().sync('*filter', '-A INPUT -i lo -j REJECT', 'COMMIT'),
    '192.168.50.10:40000',
    undefined,
    `${OWN_PORT} answers to this node itself, but a rule rejects it (-t filter -A INPUT -i lo -j REJECT)`,
  ],
  // Other programs.
  [
    () => new World().sync('*nat', '-A PREROUTING -p tcp -j DNAT --to-destination 172.17.0.2:8080', 'COMMIT'),
    '192.168.50.10:80',
    OUTSIDE,
    'a rule of another program sends it to 172.17.0.2:8080 (-t nat -A PREROUTING -p tcp -j DNAT --to-destination 172.17.0.2:8080)',
  ],
  [
    () => new World().sync('*nat', '-A OUTPUT -m owner --uid-owner 5 -j REDIRECT --to-ports 1', 'COMMIT'),
    '10.96.0.1:80',
    undefined,
    'a rule decides whose effect is not known (-t nat -A OUTPUT -m owner --uid-owner 5 -j REDIRECT --to-ports 1)',
  ],
  // Rules are missing or old.
  [
    () => served().learn(),
    '10.96.0.1:80',
    undefined,
    `default/web:http should take it, but no rule jumps to KUBE-PORTALS-HOST ${CORRECTED}`,
  ],
  [() => web({ nodePort: 30_080 }).learn(), '127.0.0.2:30080', undefined, /no rule jumps to KUBE-PORTALS-HOST/],
  ...(
    [
      [
        '192.168.50.10:22',
        { nodePort: 22 },
        /^default\/web:http goes without NodePort 22\/TCP: a program on this node/,
      ],
      [
        '192.168.50.10:80',
        { clusterIPs: [NODE] },
        /^default\/web:http goes without cluster IP 192.168.50.10:80: a prog/,
      ],
    ] as const
  ).map(([to, fields, says]): (typeof SENTENCES)[number] => [
    () => {
      const world = new World();
      world.listening.add(22).add(80);
      return world.service('web', { clusterIPs: [address('10.96.0.1')], ...fields }).learn();
    },
    to,
    undefined,
    says,
  ]),
  [
    () => Object.assign(served().learn(), { isOpening: true }),
    '10.96.0.1:80',
    undefined,
    'default/web:http should take it, but its listener is not open yet',
  ],
  [
    () => Object.assign(served().learn(), { isOpening: true, failure: 'no local port is free' }),
    '10.96.0.1:80',
    undefined,
    'default/web:http should take it, but no local port is free',
  ],
  [
    async () => (await new World().sync()).service('web', { clusterIPs: [address('10.96.0.1')] }).learn(),
    '10.96.0.1:80',
    undefined,
    `default/web:http should take it, but no rule does ${CORRECTED}`,
  ],
  [
    async () => (await new World().sync()).service('web', { clusterIPs: [TWO], nodePort: 30_080 }).learn(),
    '192.168.50.10:30080',
    undefined,
    /has this NodePort, but no rule takes it at this address; if --nodeport-addresses allows it/,
  ],
  [
    async () => (await served().sync()).service('web', { clusterIPs: [address('10.96.0.2')] }).learn(),
    '10.96.0.1:80',
    undefined,
    /^default\/web:http takes it, though it no longer has this address \(the next sync of the rules corrects that\); the next/,
  ],
  [
    async () => {
      const world = await served().sync();
      const rule = '-A KUBE-PORTALS-HOST -m comment --comment "default/web:http" -j REDIRECT --to-ports 7';
      await world.iptables.restore('IPv4', `*nat\n:KUBE-PORTALS-HOST - [0:0]\n${rule}\nCOMMIT\n`);
      return world;
    },
    '10.96.0.1:80',
    undefined,
    `a rule sends it to local port 7, which default/web:http does not have any more ${CORRECTED}`,
  ],
  [
    async () => {
      const world = await served().sync();
      world.tracker.apply([{ kind: 'Service', key: 'default/web', value: undefined }]);
      return world.learn();
    },
    '10.96.0.1:80',
    undefined,
    `a rule sends it to default/web:http, which is not served any more ${CORRECTED}`,
  ],
  // The tracker knows more than the rules: it alone, then the listeners, too.
  [
    async () => (await web().sync()).endpoints('web', { address: ONE }, { address: TWO, ready: false }),
    '10.96.0.1:80',
    undefined,
    `default/web:http refuses it, ${ENDPOINTS_CAME}`,
  ],
  [
    async () => (await web().sync()).endpoints('web', { address: ONE }).learn(),
    '10.96.0.1:80',
    undefined,
    `default/web:http refuses it, ${ENDPOINTS_CAME}`,
  ],
  ...[false, true].map((isOpening) => {
    const world = web({ internalTrafficPolicy: 'Local' }).endpoints('web', { address: ONE, nodeName: 'n2' });
    const come = async () =>
      Object.assign((await world.sync()).endpoints('web', { address: ONE }).learn(), { isOpening });
    const why = isOpening ? ' until its listener is open' : `, ${ENDPOINTS_CAME}`;
    return [come, '10.96.0.1:80', undefined, `default/web:http drops it${why}`] as const;
  }),
  // No Service.
  [
    () => served().sync(),
    '10.96.0.1:81',
    undefined,
    'no Service is at 10.96.0.1:81/TCP, but this address has 80/TCP of default/web:http',
  ],
];

test('one sentence says what becomes of a connection', async () => {
  for (const [world, to, from, says] of SENTENCES) {
    const { summary: said, served: isServed, listener, nextPick } = await (await world()).ask(to, from);
    if (typeof says === 'string') assert.equal(said, says);
    else assert.match(said, says);
    const isTaken = / goes to /.test(said);
    assert.deepEqual([isServed, nextPick !== undefined], [isTaken, isTaken], said);
    if (!isTaken && !/ takes it/.test(said)) assert.equal(listener, undefined);
  }
});

describe('the explanation', () => {
  test('shows for each endpoint why it may not serve', async () => {
    const [drained, ...unready] = [ONE, TWO, POD].map((each) => ({ address: each, ready: each === ONE }));
    const world = web().endpoints('web', drained!, ...unready);
    world.tracker.setWeights([{ address: ONE, port: 8080, weight: 0 }]);
    const { summary: said, candidates, service } = await (await world.sync()).ask('10.96.0.1:80', OUTSIDE);
    assert.match(said, /refuses it: none of its 3 endpoints may serve: drained by an operator \(1\), not ready \(2\)$/);
    assert.deepEqual(
      candidates.map(({ reason }) => reason),
      ['drained by an operator', 'not ready', 'not ready'],
    );
    assert.equal(service?.name, 'default/web:http');
  });

  test('lists the rules up to the one that stops it; the policy of a chain is not one', async () => {
    const world = await served().sync('*filter', '-I INPUT 1 -p tcp -j DROP', 'COMMIT');
    assert.equal((await world.ask('10.96.0.1:80', OUTSIDE)).rules.at(-1)?.rule, '-p tcp -j DROP');
    const list = world.iptables.list.bind(world.iptables);
    world.iptables.list = async (family, table, chain) =>
      (await list(family, table, chain))
        .replace('-P INPUT ACCEPT', '-P INPUT DROP')
        .replace('-A INPUT -p tcp -j DROP\n', '')
        .replace(/-A INPUT .* -j KUBE-NODEPORT-NON-LOCAL\n/, '');
    const { summary: said, rules } = await world.ask('10.96.0.1:80', OUTSIDE);
    assert.equal(said, 'default/web:http would take it, but the policy of filter INPUT drops it');
    assert.ok(!rules.some(({ rule }) => rule.startsWith('-P')));
  });

  test('names some of the Services that share an endpoint', async () => {
    const world = served();
    for (const name of ['a', 'b', 'c']) world.service(name, {}).endpoints(name, { address: ONE });
    // An endpoint that moves from one slice to another is in both.
    for (const name of ['c-1', 'c-2']) {
      const key = `default/${name}` as ServiceKey;
      const state = { address: ONE, ready: true, serving: true, terminating: false };
      const group = { addresses: [state], ports: [{ name: 'http', protocol: 'TCP' as const, port: 8080 }] };
      world.tracker.apply([{ kind: 'EndpointSlice', key, value: { key, service: 'default/c', group } }]);
    }
    assert.equal(
      await summary(await world.sync(), '10.244.1.11:8080'),
      'no Service is at 10.244.1.11:8080/TCP; it is an endpoint of default/web:http, default/a:http, default/b:http and 1 more, and its connections do not pass through the proxy',
    );
  });

  test('has a sentence for a family that is not served; two families are an error', async () => {
    const world = await web().sync();
    const fd = { address: address('fd00::1'), port: 80, protocol: 'TCP' } as const;
    assert.match((await world.explain(fd)).summary, /^IPv6 is not served on this node; the log says why/);
    await assert.rejects(
      world.explain({ address: NODE, port: 80, protocol: 'TCP', client: address('fd00::1') }),
      /^Error: fd00::1 cannot connect to 192\.168\.50\.10: they are of different address families$/,
    );
  });
});

test('an endpoint of many Services does not block the event loop', async () => {
  const world = new World();
  const names = Array.from({ length: 1_000 }, (_, i) => `s${i}`);
  for (const name of names) world.service(name).endpoints(name, { address: ONE });
  let readings = 0;
  let turns = 0;
  // Each reading takes a millisecond.
  const clock = {
    now: () => ++readings,
    wallNow: () => 0,
    after: (_: number, callback: () => void) => {
      turns++;
      setImmediate(callback);
      return { cancel: () => {} };
    },
  };
  const { summary: said } = await world.explainer(world.iptables, clock)({ address: ONE, port: 8080, protocol: 'TCP' });
  assert.match(said, / an endpoint of default\/s0:http, default\/s1:http, default\/s2:http and 997 more, and its conn/);
  assert.ok(turns > names.length / 10, `${turns} turns of the event loop`);
});

test('only one question at a time runs iptables, and the others go on after one fails', async () => {
  const world = await web().endpoints('web', { address: ONE }).sync();
  let asked = 0;
  let underWay = 0;
  const explain = world.explainer({
    list: async (...chain) => {
      asked++;
      underWay++;
      assert.equal(underWay, 1);
      await settle();
      underWay--;
      if (asked === 1) throw new Error('iptables is gone');
      return await world.iptables.list(...chain);
    },
  });
  const question: Question = { address: address('10.96.0.1'), port: 80, protocol: 'TCP' };
  const [first, ...others] = await Promise.allSettled([explain(question), explain(question), explain(question)]);
  assert.match(String(first.status === 'rejected' && first.reason), /iptables is gone/);
  for (const other of others) assert.ok(other.status === 'fulfilled' && other.value.served);
});

test('a refusal does not reach ::1 over TCP, and what the capture does not see is passed on', async () => {
  const tracker = new ServiceTracker('IPv6');
  const key = 'default/six' as ServiceKey;
  const ports = [{ name: '', protocol: 'TCP' as const, port: 80, nodePort: 30_080 }];
  const addresses = { clusterIPs: [address('fd00:96::1')], externalIPs: [], loadBalancerIPs: [] };
  tracker.apply([{ kind: 'Service', key, value: { key, ...addresses, ports, affinity: { type: 'None' } } }]);
  const [servicePort] = tracker.takeDelta().upserted;
  assert.ok(servicePort);
  const nat = { kind: 'reject', name: servicePort.name } as const;
  const explain = createExplain({
    dataPlane: { nextPick: async () => undefined },
    families: () => [
      {
        family: 'IPv6',
        capture: { follow: async () => ({ rules: [], nat, caveat: 'Some is not seen.' }) },
        tracker,
        listeners: { carried: () => ({ servicePort, listeners: [] }), ownerOf: () => undefined },
      },
    ],
    machine: {
      isLocal: () => true,
      departureTo: async (source) => ({ source, interfaceName: 'lo' }),
      interfaceTowards: () => undefined,
    },
    service: () => undefined,
    clientAddresses: {
      policy: { clientAddress: 'preserve', masqueradeAll: false },
      facts: () => ({ nodeAddresses: [], families: ['IPv6'] }),
    },
    clock: new ManualClock(),
  });
  const silence = / refuses it, but the kernel sends no reset to ::1, so the client times out: no EndpointSlice /;
  const ask = (host: string, protocol: 'TCP' | 'UDP') => explain({ address: address(host), port: 30_080, protocol });
  const { summary, caveat } = await ask('::1', 'TCP');
  assert.match(summary, silence);
  assert.equal(caveat, 'Some is not seen.');
  assert.doesNotMatch((await ask('::1', 'UDP')).summary, silence);
  assert.doesNotMatch((await ask('fd00:50::10', 'TCP')).summary, silence);
});
