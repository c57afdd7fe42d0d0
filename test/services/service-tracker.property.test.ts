import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IpFamily } from '../../src/model/address.ts';
import { type EndpointAddress, type EndpointGroup, endpointName, type SetWeight } from '../../src/model/endpoint.ts';
import type { Service, ServiceKey, TrafficPolicy } from '../../src/model/service.ts';
import { type EndpointSet, type ServicePort, type SnapshotDelta, verdictOf } from '../../src/model/service-port.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import type { EndpointVerdict } from '../../src/services/derive-service-ports.ts';
import { ServiceTracker } from '../../src/services/service-tracker.ts';
import { Draws } from '../support/draws.ts';
import { address } from '../support/model.ts';

/** Few of everything, so that Services, endpoints and the node get in each other's way. */
const ADDRESSES = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '192.0.2.1', 'fd00::1', 'fd00::2', '2001:db8::1'].map(address);
const V4 = ADDRESSES.filter((one) => !one.includes(':'));
const V6 = ADDRESSES.filter((one) => one.includes(':'));
const PORTS = [80, 81, 30_080];
const SERVICES: readonly ServiceKey[] = ['a/one', 'a/two', 'b/three'];
const SLICES: readonly ServiceKey[] = ['a/s1', 'a/s2', 'b/s3'];
const NAMES = ['n1', 'n2'];
const FAMILIES = ['IPv4', 'IPv6'] as const;

class World extends Draws {
  readonly events = new Map<string, SourceEvent>();
  readonly proxyPorts = new Set<number>();
  readonly programs = new Set<number>();
  topology = {};
  weights: SetWeight[] = [];
  nodeAddresses = ADDRESSES.slice(0, 0);

  some<T>(items: readonly T[]): T[] {
    return items.filter(() => this.below(3) === 0);
  }

  shuffled<T>(items: Iterable<T>): T[] {
    return [...items]
      .map((item) => ({ item, at: this.below(1 << 30) }))
      .sort((a, b) => a.at - b.at)
      .map(({ item }) => item);
  }

  tracker(family: IpFamily): ServiceTracker {
    const tracker = new ServiceTracker(family, {
      servedFamilies: () => FAMILIES,
      isListening: (_, port) => this.programs.has(port),
      // Otherwise a program that came after a NodePort would matter only to what changes later.
      holds: () => true,
    });
    tracker.addresses.proxyPorts = { TCP: this.proxyPorts, UDP: this.proxyPorts };
    return tracker;
  }

  /** Changes one thing in every tracker. */
  change(trackers: readonly ServiceTracker[]): void {
    switch (this.below(9)) {
      case 0:
        this.topology = { nodeName: this.pick(NAMES), zone: this.pick(NAMES) };
        for (const tracker of trackers) tracker.setTopology(this.topology);
        break;
      case 1:
        this.nodeAddresses = this.some(ADDRESSES);
        for (const tracker of trackers) tracker.setNodeAddresses(this.nodeAddresses);
        break;
      case 3:
        this.weights = this.some(ADDRESSES).map((one) => {
          return { address: one, port: this.pick(PORTS), weight: this.pick([0, 0, 1, 5]) };
        });
        for (const tracker of trackers) tracker.setWeights(this.weights);
        break;
      case 2:
        for (const ports of [this.proxyPorts, this.programs]) {
          const port = this.pick(PORTS);
          if (!ports.delete(port)) ports.add(port);
        }
        for (const tracker of trackers) tracker.listeningChanged();
        break;
      default: {
        const event = this.#event();
        this.events.set(`${event.kind} ${event.key}`, event);
        for (const tracker of trackers) tracker.apply([event]);
      }
    }
  }

  #event(): SourceEvent {
    const isGone = this.below(4) === 0;
    switch (this.below(3)) {
      case 0: {
        const key = this.pick(SERVICES);
        return { kind: 'Service', key, value: isGone ? undefined : this.#service(key) };
      }
      case 1: {
        const key = this.pick(SERVICES);
        return { kind: 'Endpoints', key, value: isGone ? undefined : { key, groups: [this.#group(), this.#group()] } };
      }
      default: {
        const key = this.pick(SLICES);
        const value = { key, service: this.pick(SERVICES), group: this.#group() };
        return { kind: 'EndpointSlice', key, value: isGone ? undefined : value };
      }
    }
  }

  #service(key: ServiceKey): Service {
    const policy = (): TrafficPolicy => this.pick(['Cluster', 'Local']);
    return {
      key,
      clusterIPs: this.pick([[this.pick(V4)], [this.pick(V6)], [this.pick(V4), this.pick(V6)]]),
      externalIPs: this.some(ADDRESSES),
      loadBalancerIPs: this.some(ADDRESSES),
      ports: ['', 'x'].map((name, i) => ({
        name,
        protocol: this.pick(['TCP', 'TCP', 'UDP', 'SCTP']),
        port: PORTS[i] as number,
        nodePort: this.pick([0, 0, 30_080]),
      })),
      affinity: { type: 'None' },
      internalTrafficPolicy: policy(),
      externalTrafficPolicy: policy(),
      ...(this.below(2) === 0 && { healthCheckNodePort: 32_000 }),
    };
  }

  #group(): EndpointGroup {
    const state = (): boolean => this.below(2) === 0;
    return {
      addresses: this.some(ADDRESSES).map((one): EndpointAddress => {
        const hints = this.some(NAMES);
        return {
          address: one,
          ready: state(),
          serving: state(),
          terminating: state(),
          nodeName: this.pick(NAMES),
          ...(hints.length > 0 && { zoneHints: hints }),
        };
      }),
      ports: this.some(['', 'x']).map((name) => ({
        name,
        protocol: this.pick(['TCP', 'TCP', 'UDP']),
        port: this.pick(PORTS),
      })),
    };
  }
}

/** The state of a consumer that has applied every delta. */
class Follower {
  readonly #ports = new Map<string, SnapshotDelta['upserted'][number]>();
  readonly #checks = new Map<string, unknown>();

  take({ upserted, removed, healthChecks }: SnapshotDelta): void {
    for (const name of removed) assert.ok(this.#ports.delete(name), `${name} was not there`);
    for (const port of upserted) this.#ports.set(port.name, port);
    for (const [service, check] of healthChecks) {
      if (check === undefined) assert.ok(this.#checks.delete(service), `${service} had no health check`);
      else this.#checks.set(service, check);
    }
  }

  get view() {
    const sorted = <T>(map: ReadonlyMap<string, T>) => [...map].sort(([a], [b]) => (a < b ? -1 : 1));
    return { ports: sorted(this.#ports), checks: sorted(this.#checks) };
  }
}

/** The state of a tracker that got everything at once, in another order. */
function freshView(world: World, family: IpFamily): Follower['view'] {
  const tracker = world.tracker(family);
  tracker.apply(world.shuffled(world.events.values()));
  tracker.setNodeAddresses(world.nodeAddresses);
  tracker.setTopology(world.topology);
  tracker.setWeights(world.weights);
  const follower = new Follower();
  follower.take(tracker.takeDelta());
  return follower.view;
}

/** Reasons are given to those that were not chosen, and to no others. */
function compareVerdicts(tracker: ServiceTracker, port: ServicePort, { weights }: World): void {
  const isDrained = new Set(weights.filter(({ weight }) => weight === 0).map(endpointName));
  for (const [set, { endpoints, draining = [] }] of [['own', port] as const, ['local', port.local ?? port] as const]) {
    const verdicts = tracker.candidates(port.name, port.local === undefined ? 'own' : set);
    const names = (isWanted: (verdict: EndpointVerdict) => boolean) =>
      verdicts.filter(isWanted).map(({ endpoint }) => endpointName(endpoint));
    assert.deepEqual(
      names(({ reason }) => reason === undefined),
      endpoints.map(endpointName),
    );
    const isLoop = ({ reason = '' }) => reason.startsWith('it is ');
    assert.deepEqual(
      names((one) => one.reason !== undefined && !isLoop(one)),
      draining.map(endpointName),
    );
    assert.ok(!verdicts.some(({ reason }) => /undefined|for (node|zone) $/.test(reason ?? '')));
    assert.equal(
      endpoints.some((one) => isDrained.has(endpointName(one))),
      false,
      'drained ones serve nobody',
    );
    for (const { endpoint } of verdicts) {
      const having = [...tracker.withEndpoint(endpoint)].flat();
      assert.ok(having.includes(port.name));
      for (const name of having) {
        const known = tracker.candidates(name, 'own').map((each) => endpointName(each.endpoint));
        // None is told of one with SCTP.
        assert.ok(known.length === 0 || known.includes(endpointName(endpoint)), name);
      }
    }
  }
}

/** Changes a world, follows it in random steps, and compares the end. */
function compare(seed: number): Follower['view'][] {
  const world = new World(seed);
  const trackers = FAMILIES.map((family) => ({ family, tracker: world.tracker(family), follower: new Follower() }));
  for (let round = 0; round < 60; round += 1) {
    world.change(trackers.map(({ tracker }) => tracker));
    const services = world.below(3);
    for (const { tracker, follower } of trackers) follower.take(tracker.takeDelta(services));
  }
  return trackers.map(({ family, tracker, follower }) => {
    follower.take(tracker.takeDelta());
    assert.equal(tracker.pendingServices, 0);
    assert.deepEqual(follower.view, freshView(world, family), `seed ${seed}, ${family}`);
    for (const [, port] of follower.view.ports) compareVerdicts(tracker, port, world);
    return follower.view;
  });
}

test('what is served depends on what is known, not on the order in which it came', () => {
  const views = Array.from({ length: 200 }, (_, seed) => compare(seed)).flat();
  const ports = views.flatMap((view) => view.ports.map(([, port]) => port));
  const sets: EndpointSet[] = ports.flatMap(({ local, ...own }) => (local ? [own, local] : [own]));
  for (const { endpoints, draining = [], onlyElsewhere } of sets) {
    const names = [...endpoints, ...draining].map(endpointName);
    assert.equal(new Set(names).size, names.length, 'an endpoint is chosen or draining, once');
    if (onlyElsewhere) assert.equal(endpoints.length, 0);
  }
  // All of it has come up.
  assert.ok(views.filter(({ checks }) => checks.length > 0).length > 10);
  assert.ok(ports.filter(({ local }) => local !== undefined).length > 10);
  for (const verdict of ['proxy', 'drop', 'reject']) {
    assert.ok(sets.filter((set) => verdictOf(set, 'own') === verdict).length > 10, verdict);
  }
});

test('when everything is gone, nothing is remembered', () => {
  const world = new World(7);
  const tracker = world.tracker('IPv4');
  const follower = new Follower();
  for (let round = 0; round < 200; round += 1) world.change([tracker]);
  follower.take(tracker.takeDelta());
  for (const { kind, key } of world.events.values()) tracker.apply([{ kind, key, value: undefined }]);
  follower.take(tracker.takeDelta());
  assert.deepEqual(follower.view, { ports: [], checks: [] });
  // Whoever is still known would be looked at again.
  tracker.setNodeAddresses([address('198.51.100.1')]);
  tracker.setTopology({ nodeName: 'another' });
  tracker.setNodeAddresses(ADDRESSES);
  tracker.setWeights(ADDRESSES.map((one) => ({ address: one, port: 80, weight: 0 })));
  tracker.listeningChanged();
  assert.equal(tracker.pendingServices, 0);
});
