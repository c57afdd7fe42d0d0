import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Address, familyOf } from '../../../src/model/address.ts';
import { type Endpoint, type EndpointAddress, endpointName } from '../../../src/model/endpoint.ts';
import type { Service, ServiceKey } from '../../../src/model/service.ts';
import type { ServicePort } from '../../../src/model/service-port.ts';
import { listenerId } from '../../../src/model/service-port.ts';
import type { Explanation, Question, ServiceView } from '../../../src/model/view.ts';
import { createExplain, type ExplainSources } from '../../../src/operate/view/explain.ts';
import { DROP_PORT, REJECT_PORT } from '../../../src/rules/chains.ts';
import { ServiceTracker } from '../../../src/services/service-tracker.ts';
import type { Clock } from '../../../src/util/clock.ts';
import { FakeIptables } from '../../fakes/fake-iptables.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { address, cidr, nodeFacts, planText, renderPortals } from '../../rules/fixtures.ts';
import { settle } from '../../support/until.ts';

const NODE = address('192.168.50.10');
const OUTSIDE = address('198.51.100.1');
const POD = address('10.244.1.20');
const LOCAL = [NODE, address('10.244.1.1'), address('127.0.0.1')];
const isLocal = (each: Address) => each.startsWith('127.') || LOCAL.includes(each);
const FACTS = nodeFacts({ clusterCidrs: ['10.244.0.0/16'] });

/** Whose listeners are open: the own set at 40,000 and up, the local one at 41,000 and up, as the Services came. */
class World {
  readonly tracker = new ServiceTracker('IPv4');
  readonly iptables = new FakeIptables();
  /** By name. */
  readonly ports = new Map<string, ServicePort>();
  readonly #numbers = new Map<string, number>();
  /** To which the last dial has failed; none when absent. */
  failing: readonly Address[] = [];
  /** No listener is open. */
  isOpening = false;
  /** As whom the data plane was asked. */
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

  /** What this program knows, without the kernel. */
  learn(): this {
    const { upserted, removed } = this.tracker.takeDelta();
    for (const name of removed) this.ports.delete(name);
    for (const port of upserted) {
      this.ports.set(port.name, port);
      if (!this.#numbers.has(port.name)) this.#numbers.set(port.name, this.#numbers.size);
    }
    return this;
  }

  /** The rules, too; other programs' are restore text. */
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
    iptables: ExplainSources['iptables'] = this.iptables,
    clock: Clock = new ManualClock(),
  ): (question: Question) => Promise<Explanation> {
    return createExplain({
      iptables,
      dataPlane: { nextPick: async (id, client) => this.#pick(id, client) },
      families: () => [
        {
          family: 'IPv4',
          tracker: this.tracker,
          listeners: {
            carried: (name) => this.carried(name),
            ownerOf: (port) => [...this.ports.values()].find(({ name }) => this.#localPorts(name).includes(port))?.name,
          },
        },
      ],
      machine: {
        isLocal,
        departureTo: (each) => ({ source: isLocal(each) ? each : NODE, interfaceName: isLocal(each) ? 'lo' : 'eth0' }),
        interfaceTowards: (client) => (client === OUTSIDE ? 'eth0' : 'cbr0'),
      },
      service: (name) => this.#view(name),
      clock,
    });
  }

  /** The last endpoint for the node itself, the first one for others. */
  #pick(id: string, client: Address): Endpoint | undefined {
    this.askedAs.push(client);
    const port = this.ports.get(id.replace('/local', ''));
    const endpoints = (id.endsWith('/local') ? port?.local : port)?.endpoints;
    return LOCAL.includes(client) ? endpoints?.at(-1) : endpoints?.[0];
  }

  /** What explain looks at of it. */
  #view(name: string): ServiceView | undefined {
    const carried = this.carried(name);
    const viewed = (endpoint: Endpoint, state: 'active' | 'draining') => ({
      ...{ endpoint, state, counters: { active: endpoint.port } },
      ...(this.failing.includes(endpoint.address) && { lastError: { at: 1, err: 'refused' } }),
    });
    const listeners = carried?.listeners.map(({ set, localPort }) => ({
      ...{ set, localPort },
      endpoints: [
        ...carried.servicePort.endpoints.map((endpoint) => viewed(endpoint, 'active')),
        ...(carried.servicePort.draining ?? []).map((endpoint) => viewed(endpoint, 'draining')),
      ],
    }));
    return carried && ({ name, listeners } as unknown as ServiceView);
  }
}

const [ONE, TWO] = [address('10.244.1.11'), address('10.244.1.12')];

function both(): Pick<EndpointAddress, 'address'>[] {
  return [{ address: ONE }, { address: TWO }];
}

function web(fields: Parameters<World['service']>[1] = {}): World {
  return new World().service('web', { clusterIPs: [address('10.96.0.1')], ...fields });
}

async function summary(world: World, to: string, client?: Address): Promise<string> {
  return (await world.ask(to, client)).summary;
}

describe('a connection that is carried', () => {
  test('is followed from the rules over the listener to the next endpoint', async () => {
    const world = await web().endpoints('web', { address: ONE, zone: 'a' }, { address: TWO, ready: false }).sync();
    const explanation = await world.ask('10.96.0.1:80');
    assert.equal(explanation.summary, 'default/web:http takes it; the next connection goes to 10.244.1.11:8080');
    assert.ok(explanation.served);
    assert.deepEqual(
      explanation.rules.map(({ table, chain }) => `${table} ${chain}`),
      ['nat OUTPUT', 'nat KUBE-PORTALS-HOST', 'filter INPUT', 'filter INPUT', 'filter KUBE-NODEPORT-NON-LOCAL'],
    );
    assert.equal(explanation.service?.name, 'default/web:http');
    assert.equal(explanation.listener?.localPort, 40_000);
    assert.equal(endpointName(explanation.nextPick ?? { address: '', port: 0 }), '10.244.1.11:8080');
    const lastError = { at: 1, err: 'refused' };
    world.failing = [ONE, TWO];
    assert.deepEqual((await world.ask('10.96.0.1:80')).candidates, [
      { endpoint: { address: ONE, port: 8080 }, nodeName: 'n1', zone: 'a', chosen: true, active: 8080, lastError },
      {
        endpoint: { address: TWO, port: 8080 },
        nodeName: 'n1',
        chosen: false,
        reason: 'not ready',
        active: 8080,
        lastError,
      },
    ]);
  });

  test('is said to go where connections have failed, and what else there is', async () => {
    const [only, two] = [web().endpoints('web', { address: ONE }), web().endpoints('web', ...both())];
    await Promise.all([only.sync(), two.sync()]);
    const said = async (world: World, ...failing: readonly Address[]) => {
      world.failing = failing;
      return (await summary(world, '10.96.0.1:80', OUTSIDE)).replace(/^.* goes to 10\.244\.1\.11:8080/, '');
    };
    const failed = 'connections to it have failed lately: refused';
    assert.equal(await said(only, ONE), `, its only endpoint; ${failed}`);
    assert.equal(await said(two, ONE), `; ${failed}`);
    assert.equal(await said(two, TWO), '');
  });

  test('is asked for as the client that is named, and as this node when none is', async () => {
    const world = await web().endpoints('web', { address: ONE }, { address: TWO }).sync();
    assert.match(await summary(world, '10.96.0.1:80'), / 10\.244\.1\.12:8080$/);
    assert.match(await summary(world, '10.96.0.1:80', NODE), / 10\.244\.1\.12:8080$/);
    assert.equal((await world.ask('10.96.0.1:80', NODE)).rules[0]?.chain, 'OUTPUT');
    const { rules, summary: told } = await world.ask('10.96.0.1:80', OUTSIDE);
    assert.match(told, / 10\.244\.1\.11:8080$/);
    assert.equal(rules[0]?.chain, 'PREROUTING');
  });

  test('is found by NodePort, and goes to the set that its client is for', async () => {
    const world = await web({ nodePort: 30_080, externalTrafficPolicy: 'Local' })
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
    assert.deepEqual(
      world.askedAs.slice(0, 3),
      [POD, OUTSIDE, '127.0.0.1'],
      'to itself, the node sends from the same address',
    );
  });

  test("is one to the proxy's own port, from this node", async () => {
    const world = await web().endpoints('web', { address: ONE }).sync();
    assert.equal(
      await summary(world, '192.168.50.10:40000'),
      "it is the proxy's own port for default/web:http, which answers to this node itself; the next connection goes to 10.244.1.11:8080",
    );
    assert.deepEqual(
      [await summary(world, '192.168.50.10:40000', OUTSIDE), (await world.ask('192.168.50.10:40000', OUTSIDE)).served],
      ["it is the proxy's own port for default/web:http, which is closed to all but this node itself", false],
    );
  });

  test("is none to the proxy's own port from elsewhere, be it that nothing closes that", async () => {
    const world = web().endpoints('web', { address: ONE }).learn();
    assert.match(await summary(world, '192.168.50.10:40000'), /answers to this node itself/);
    assert.match(await summary(world, '192.168.50.10:40000', OUTSIDE), /^no Service is at/);
  });

  test('may find the endpoint gone', async () => {
    const world = await web().endpoints('web', { address: ONE }).sync();
    world.endpoints('web').learn();
    const explanation = await world.ask('10.96.0.1:80');
    assert.equal(explanation.summary, 'default/web:http takes it, but it has no endpoint at this moment');
    assert.equal(explanation.served, false);
  });
});

describe('a connection that is turned away', () => {
  test('for want of endpoints, says what is the matter with them', async () => {
    assert.equal(await summary(await web().sync(), '10.96.0.1:80'), 'default/web:http refuses it: it has no endpoints');
    const world = web().endpoints(
      'web',
      { address: ONE },
      { address: TWO, ready: false },
      { address: POD, ready: false },
    );
    world.tracker.setDrained([{ address: ONE, port: 8080 }]);
    const explanation = await (await world.sync()).ask('10.96.0.1:80', OUTSIDE);
    assert.equal(
      explanation.summary,
      'default/web:http refuses it: none of its 3 endpoints may serve: 1 drained by an operator, 2 not ready',
    );
    assert.deepEqual([explanation.served, explanation.nextPick, explanation.listener], [false, undefined, undefined]);
    assert.equal(explanation.candidates.length, 3);
    assert.equal(explanation.service?.name, 'default/web:http');
  });

  test('for the policy Local', async () => {
    const world = await web({ nodePort: 30_080, externalTrafficPolicy: 'Local' })
      .endpoints('web', { address: ONE, nodeName: 'n2' })
      .sync();
    const explanation = await world.ask('192.168.50.10:30080', OUTSIDE);
    assert.equal(
      explanation.summary,
      'default/web:http drops it: its policy is Local, and no endpoint on this node may serve',
    );
    assert.deepEqual(
      explanation.candidates.map(({ reason }) => reason),
      ['on another node, and the policy is Local'],
    );
    assert.ok((await world.ask('192.168.50.10:30080', POD)).served);
  });

  test('for its source', async () => {
    const world = await web({
      loadBalancerIPs: [address('203.0.113.1')],
      loadBalancerSourceRanges: [cidr('10.244.0.0/16')],
    })
      .endpoints('web', { address: ONE })
      .sync();
    assert.equal(
      await summary(world, '203.0.113.1:80', OUTSIDE),
      'default/web:http drops it: 198.51.100.1 is not in its load balancer source ranges',
    );
    assert.match(await summary(world, '203.0.113.1:80'), /192\.168\.50\.10 is not in its load balancer source ranges/);
    assert.ok((await world.ask('203.0.113.1:80', POD)).served);
    const both = await web({
      nodePort: 30_080,
      externalTrafficPolicy: 'Local',
      loadBalancerIPs: [address('203.0.113.1')],
      loadBalancerSourceRanges: [cidr('10.244.0.0/16')],
    })
      .endpoints('web', { address: ONE, nodeName: 'n2' })
      .sync();
    assert.match(await summary(both, '192.168.50.10:30080', OUTSIDE), /drops it: its policy is Local/);
  });

  test("by another program's firewall", async () => {
    const world = await web()
      .endpoints('web', { address: ONE })
      .sync('*filter', '-I INPUT 1 -p tcp -j DROP', '-I INPUT 1 -i cbr0 -j ACCEPT', 'COMMIT');
    const explanation = await world.ask('10.96.0.1:80', OUTSIDE);
    assert.equal(
      explanation.summary,
      'default/web:http would take it, but a rule drops it: filter INPUT -p tcp -j DROP',
    );
    assert.equal(explanation.served, false);
    assert.equal(explanation.rules.at(-1)?.rule, '-p tcp -j DROP');
    assert.ok((await world.ask('10.96.0.1:80', POD)).served);
    const rules = world.iptables.list.bind(world.iptables);
    world.iptables.list = async (family, table, chain) =>
      (await rules(family, table, chain))
        .replace('-P INPUT ACCEPT', '-P INPUT DROP')
        .replace('-A INPUT -p tcp -j DROP\n', '')
        .replace(/-A INPUT .* -j KUBE-NODEPORT-NON-LOCAL\n/, '');
    assert.equal(
      await summary(world, '10.96.0.1:80', OUTSIDE),
      'default/web:http would take it, but the policy of filter INPUT drops it',
    );
  });
});

describe("a connection that this node's own rules stop on its way out", () => {
  const fenced = (world: World, port: number) =>
    world.sync('*filter', `-A OUTPUT -p tcp -m tcp --dport ${port} -j DROP`, 'COMMIT');
  const stop = (port: number) => `but a rule drops it: filter OUTPUT -p tcp -m tcp --dport ${port} -j DROP`;

  test('is not served, and others are', async () => {
    const world = await fenced(web().endpoints('web', { address: ONE }), 40_000);
    const explanation = await world.ask('10.96.0.1:80');
    assert.equal(explanation.summary, `default/web:http would take it, ${stop(40_000)}`);
    assert.deepEqual([explanation.served, explanation.nextPick], [false, undefined]);
    assert.equal(explanation.rules.at(-1)?.chain, 'OUTPUT');
    assert.ok((await world.ask('10.96.0.1:80', OUTSIDE)).served);
  });

  test('does not come to a door', async () => {
    assert.equal(
      await summary(await fenced(web(), REJECT_PORT), '10.96.0.1:80'),
      `default/web:http would refuse it, ${stop(REJECT_PORT)}`,
    );
    const local = web({ internalTrafficPolicy: 'Local' }).endpoints('web', { address: ONE, nodeName: 'n2' });
    assert.equal(
      await summary(await fenced(local, DROP_PORT), '10.96.0.1:80'),
      `default/web:http would drop it, ${stop(DROP_PORT)}`,
    );
  });

  test("does not come to the proxy's own port either, nor past INPUT", async () => {
    const world = await fenced(web().endpoints('web', { address: ONE }), 40_000);
    const own = "it is the proxy's own port for default/web:http, which answers to this node itself";
    const explanation = await world.ask('192.168.50.10:40000');
    assert.deepEqual([explanation.summary, explanation.served], [`${own}, ${stop(40_000)}`, false]);
    const inside = await web().endpoints('web', { address: ONE }).sync('*filter', '-A INPUT -i lo -j REJECT', 'COMMIT');
    assert.equal(
      await summary(inside, '192.168.50.10:40000'),
      `${own}, but a rule rejects it: filter INPUT -i lo -j REJECT`,
    );
  });
});

describe('a connection that is not for us', () => {
  test('is told from one to an endpoint, which does not pass through here', async () => {
    const world = web().endpoints('web', { address: ONE });
    for (const name of ['a', 'b', 'c']) world.service(name, {}).endpoints(name, { address: ONE });
    // While it moves from one slice to another, it is in both.
    for (const name of ['c-1', 'c-2']) {
      const key = `default/${name}` as ServiceKey;
      const state = { address: ONE, ready: true, serving: true, terminating: false };
      const group = { addresses: [state], ports: [{ name: 'http', protocol: 'TCP' as const, port: 8080 }] };
      world.tracker.apply([{ kind: 'EndpointSlice', key, value: { key, service: 'default/c', group } }]);
    }
    await world.service('d', { clusterIPs: [address('10.96.0.2')] }).sync();
    assert.equal(
      await summary(world, '10.244.1.11:8080'),
      'no Service is at 10.244.1.11:8080/TCP; it is an endpoint of default/web:http, default/a:http, default/b:http and 1 more, and its connections do not pass through the proxy',
    );
    const nobody = await world.ask('10.96.0.1:81');
    assert.equal(nobody.summary, 'no Service is at 10.96.0.1:81/TCP, so the proxy leaves it alone');
    assert.deepEqual([nobody.service, nobody.candidates, nobody.served], [undefined, [], false]);
  });

  test('may be taken away by a rule of another program', async () => {
    const dnat = '-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.17.0.2:8080';
    const world = await new World().sync('*nat', dnat, 'COMMIT');
    assert.equal(
      await summary(world, '192.168.50.10:80', OUTSIDE),
      'a rule that is not ours sends it to 172.17.0.2:8080: nat PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.17.0.2:8080',
    );
    const unclear = await new World().sync(
      '*nat',
      '-A OUTPUT -m owner --uid-owner 5 -j REDIRECT --to-ports 1',
      'COMMIT',
    );
    assert.equal(
      await summary(unclear, '10.96.0.1:80'),
      'a rule decides whose effect is not known: nat OUTPUT -m owner --uid-owner 5 -j REDIRECT --to-ports 1',
    );
  });

  test('of a family that is not served is said to be so', async () => {
    const world = await web().sync();
    const fd = { address: address('fd00::1'), port: 80, protocol: 'TCP' } as const;
    assert.match((await world.explain(fd)).summary, /^IPv6 is not served on this node; the log says why/);
    await assert.rejects(
      world.explain({ address: NODE, port: 80, protocol: 'TCP', client: address('fd00::1') }),
      /^Error: fd00::1 cannot connect to 192\.168\.50\.10: they are of different address families$/,
    );
    assert.equal(familyOf(fd.address), 'IPv6');
  });
});

describe('when kernel and program differ', () => {
  test('rules that are missing are missed', async () => {
    const world = web().endpoints('web', { address: ONE }).learn();
    const missing =
      'default/web:http is to take it, but no rule leads to KUBE-PORTALS-HOST (the next sync of the rules corrects that)';
    const explanation = await world.ask('10.96.0.1:80');
    assert.equal(explanation.summary, missing);
    assert.equal(explanation.candidates.length, 1);
    const nodePort = web({ nodePort: 30_080 }).learn();
    for (const at of ['192.168.50.10', '127.0.0.2']) assert.equal(await summary(nodePort, `${at}:30080`), missing);
    world.isOpening = true;
    assert.equal(
      await summary(world, '10.96.0.1:80'),
      'default/web:http is to take it, but its listener is not open yet',
    );
    world.isOpening = false;
    const later = await new World().service('other', { clusterIPs: [address('10.96.0.9')] }).sync();
    later.service('web', { clusterIPs: [address('10.96.0.1')] }).learn();
    assert.equal(
      await summary(later, '10.96.0.1:80'),
      'default/web:http is to take it, but no rule does (the next sync of the rules corrects that)',
    );
  });

  test('an external IP is for everybody, a NodePort for some addresses', async () => {
    const world = await web({ externalIPs: [address('203.0.113.9')], nodePort: 30_080 })
      .endpoints('web', { address: ONE })
      .sync();
    for (const client of [undefined, POD, OUTSIDE]) assert.ok((await world.ask('203.0.113.9:80', client)).served);
    await world.iptables.restore('IPv4', '*nat\n:KUBE-NODEPORT-HOST - [0:0]\nCOMMIT\n');
    assert.match(
      await summary(world, '192.168.50.10:30080'),
      /has this NodePort, but no rule takes it at this address/,
    );
  });

  test('rules that are old are told from those that are right', async () => {
    const world = await web().endpoints('web', { address: ONE }).sync();
    world.service('web', { clusterIPs: [address('10.96.0.2')] }).learn();
    assert.match(
      await summary(world, '10.96.0.1:80'),
      /^default\/web:http takes it, though it is gone \(the next sync of the rules corrects that\); the next/,
    );
    const moved = web().service('first', {});
    await moved.endpoints('web', { address: ONE }).sync();
    await moved.iptables.restore(
      'IPv4',
      '*nat\n:KUBE-PORTALS-HOST - [0:0]\n-A KUBE-PORTALS-HOST -m comment --comment "default/web:http" -j REDIRECT --to-ports 7\nCOMMIT\n',
    );
    assert.equal(
      await summary(moved, '10.96.0.1:80'),
      'a rule leads it to local port 7, which default/web:http does not have any more (the next sync of the rules corrects that)',
    );
    world.tracker.apply([{ kind: 'Service', key: 'default/web', value: undefined }]);
    world.learn();
    assert.equal(
      await summary(world, '10.96.0.1:80'),
      'a rule leads it to default/web:http, which is not served any more (the next sync of the rules corrects that)',
    );
  });

  test('doors that should be open by now are told of', async () => {
    const world = await web().sync();
    // Known to the tracker, and not told yet to whoever makes the rules; then told, too.
    world.endpoints('web', { address: ONE }, { address: TWO, ready: false });
    const come =
      'default/web:http refuses it, though endpoints have come since (the next sync of the rules corrects that)';
    const explanation = await world.ask('10.96.0.1:80');
    assert.equal(explanation.summary, come);
    assert.deepEqual(
      explanation.candidates.map(({ reason }) => reason),
      [undefined, 'not ready'],
    );
    world.learn();
    assert.equal(await summary(world, '10.96.0.1:80'), come);
    const local = await web({ internalTrafficPolicy: 'Local' })
      .endpoints('web', { address: ONE, nodeName: 'n2' })
      .sync();
    assert.match(await summary(local, '10.96.0.1:80'), /drops it: its policy is Local/);
    local.endpoints('web', { address: ONE });
    assert.match(await summary(local, '10.96.0.1:80'), /drops it, though endpoints have come since/, 'known, not told');
    local.learn();
    assert.match(await summary(local, '10.96.0.1:80'), /drops it, though endpoints have come since/);
    local.isOpening = true;
    assert.match(await summary(local, '10.96.0.1:80'), /drops it until its listener is open/);
  });
});

test('an endpoint that many have holds nothing up', async () => {
  const world = new World();
  const names = Array.from({ length: 1_000 }, (_, i) => `s${i}`);
  for (const name of names) world.service(name).endpoints(name, { address: ONE });
  let readings = 0;
  let turns = 0;
  // To which everything seems to take a millisecond.
  const clock = {
    now: () => ++readings,
    wallNow: () => 0,
    after: (_: number, callback: () => void) => {
      turns++;
      setImmediate(callback);
      return { cancel: () => {} };
    },
  };
  const { summary: told } = await world.explainer(world.iptables, clock)({ address: ONE, port: 8080, protocol: 'TCP' });
  assert.match(told, / an endpoint of default\/s0:http, default\/s1:http, default\/s2:http and 997 more, and its conn/);
  assert.ok(turns > names.length / 10, `${turns} turns of the event loop`);
});

test('questions take turns at iptables, and one that fails is in nobody’s way', async () => {
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
