import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { endpointName, type NamedEndpoint, type WeightedEndpoint } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { waitFor } from '../../netns/wait.ts';
import { ask, connectTcp, refusal, refusingEndpoint, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, endpointAt, endpointsOf, type Rig, type RigFactory, SETTLED_MS } from './harness.ts';
import { BLACK_HOLE, drop } from './network.ts';

const AFTER = 3;
/** Longer than any test. */
const FOR_EVER = { ejectAfter: AFTER, ejectTimeMs: 60_000 };

/** Connects until this many endpoints are ejected. */
async function eject(rig: Rig, { name, port }: { name: ServicePortName; port: number }, count = 1): Promise<void> {
  await waitFor(`${count} ejected`, async () => {
    await ask(port).catch(() => 'none answered');
    return rig.counters(name).ejected === count;
  });
}

function namedServers(t: TestContext, ...names: readonly string[]): Promise<TcpBackend[]> {
  return Promise.all(names.map((name) => TcpBackend.named(t, name)));
}

function ejectedOf(rig: Rig, name: ServicePortName, wanted: NamedEndpoint): number | undefined {
  const stats = [...rig.plane.stats()].find((each) => each.name === name);
  return stats?.endpoints?.find(({ endpoint }) => endpointName(endpoint) === endpointName(wanted))?.counters.ejected;
}

export function ejectingTests(makeRig: RigFactory): void {
  test('after three clients have waited for a silent endpoint nobody waits for it any more', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const hole = endpointAt(BLACK_HOLE, 80);
    const alive = await namedServers(t, 'a', 'b', 'c');
    const service = await rig.open('TCP', [hole, ...endpointsOf(alive)]);
    const { name, port } = service;
    await eject(rig, service);
    const { failedTimeout } = rig.counters(name);
    assert.ok(failedTimeout === AFTER || rig.dialsBeginAnew, `${failedTimeout} clients have waited`);
    const [event] = await rig.reported('ejected', 1);
    assert.deepEqual({ ...event, err: '' }, { name, backend: endpointName(hole), failures: AFTER, err: '' });
    assert.match(event?.err ?? '', /no answer within/);
    const before = alive.map(({ peers }) => peers.length);
    for (let i = 0; i < 60; i++) await ask(port);
    assert.equal(rig.counters(name).failedTimeout, failedTimeout);
    assert.deepEqual(
      alive.map(({ peers }, i) => peers.length - (before[i] as number)),
      [20, 20, 20],
      'the others take turns',
    );
    assert.equal(rig.counters(name).ejections, 1);
    assert.ok([1, undefined].includes(ejectedOf(rig, name, hole)));
  });

  test('a doubtful endpoint gets no client while others answer, and all of its share once it has answered', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const [here, there] = (await namedServers(t, 'here', 'there')) as [TcpBackend, TcpBackend];
    const doubted: WeightedEndpoint = { ...here.endpoint, isDoubtful: true };
    const { name, port } = await rig.open('TCP', [doubted, there.endpoint]);
    for (let i = 0; i < 20; i++) assert.equal(await ask(port), 'there');
    await rig.update(name, backends([doubted]));
    assert.equal(await ask(port), 'here');
    await rig.update(name, backends([doubted, there.endpoint]));
    const asked = [];
    for (let i = 0; i < 20; i++) asked.push(await ask(port));
    assert.equal(asked.filter((each) => each === 'here').length, 10);
  });

  test('a doubtful endpoint that is silent costs a client little time, however many there are', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const holes = [1, 2, 3].map((port): WeightedEndpoint => ({ ...endpointAt(BLACK_HOLE, port), isDoubtful: true }));
    const { name, port } = await rig.open('TCP', holes);
    await refusal(port);
    // A doubt is not handed over: the next process has what the API server says.
    if (rig.dialsBeginAnew) return;
    // 250 ms each, and not 250 ms, 500 ms and 1 s.
    await waitFor('the failures', () => rig.events.dialFailed.length >= holes.length);
    assert.deepEqual([...new Set(rig.events.dialFailed.map(({ err }) => err))], ['no answer within 250 ms']);
    assert.equal(rig.counters(name).ejected, holes.length);
  });

  test('an endpoint that is back answers one client, and is readmitted', async (t) => {
    const rig = await makeRig(t, { ejectAfter: AFTER, ejectTimeMs: 100 });
    const [back, alive] = (await namedServers(t, 'back', 'alive')) as [TcpBackend, TcpBackend];
    const service = await rig.open('TCP', endpointsOf([back, alive]));
    const { name, port } = service;
    const admit = drop(t, 'OUTPUT', '-p', 'tcp', '--dport', String(back.endpoint.port));
    await eject(rig, service);
    admit();
    await waitFor('its readmission', async () => {
      await ask(port);
      return rig.counters(name).ejected === 0;
    });
    assert.deepEqual(await rig.reported('readmitted', 1), [{ name, backend: endpointName(back.endpoint) }]);
    assert.ok([0, undefined].includes(ejectedOf(rig, name, back.endpoint)));
    const served = new Set([await ask(port), await ask(port)]);
    assert.deepEqual([...served].toSorted(), ['alive', 'back']);
  });

  test('all endpoints that refuse are ejected, and all that are silent while another one answers', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const [alive] = (await namedServers(t, 'alive')) as [TcpBackend];
    const refusing = Array.from({ length: 3 }, () => refusingEndpoint(t));
    const refused = await rig.open('TCP', [...refusing, alive.endpoint]);
    await eject(rig, refused, 3);
    const { failedRefused } = rig.counters(refused.name);
    for (let i = 0; i < 12; i++) assert.equal(await ask(refused.port), 'alive');
    assert.equal(rig.counters(refused.name).failedRefused, failedRefused);
    const holes = [81, 82, 83].map((port) => endpointAt(BLACK_HOLE, port));
    const silent = await rig.open('TCP', [...holes, alive.endpoint]);
    await eject(rig, silent, 3);
    const { failedTimeout } = rig.counters(silent.name);
    for (let i = 0; i < 12; i++) assert.equal(await ask(silent.port), 'alive');
    assert.equal(rig.counters(silent.name).failedTimeout, failedTimeout, 'nobody waits any more');
  });

  test('where no endpoint answers, the fault may be this node’s: at most half are ejected for silence', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const { name, port } = await rig.open(
      'TCP',
      [81, 82, 83].map((each) => endpointAt(BLACK_HOLE, each)),
    );
    const clients = await Promise.all(Array.from({ length: 4 * AFTER }, () => connectTcp(port)));
    // Each of them has been dialled far more often than it would take.
    await waitFor('many failures', () => rig.counters(name).failedTimeout >= 12 * AFTER);
    assert.equal(rig.counters(name).ejected, 1);
    for (const client of clients) client.reset();
  });

  test('when all are ejected all are tried, as without', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const dead = [refusingEndpoint(t), refusingEndpoint(t)];
    const service = await rig.open('TCP', dead);
    const { name, port } = service;
    await eject(rig, service, 2);
    const { failedRefused, exhausted } = rig.counters(name);
    assert.equal(await refusal(port), 'ECONNRESET');
    await waitFor('it to be turned away', () => rig.counters(name).exhausted === exhausted + 1);
    assert.equal(rig.counters(name).failedRefused, failedRefused + 4);
  });

  test('an ejected endpoint is tried when no other one answers', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const [back] = (await namedServers(t, 'back')) as [TcpBackend];
    const other = await TcpBackend.named(t, 'other');
    const service = await rig.open('TCP', endpointsOf([back, other]));
    const admit = drop(t, 'OUTPUT', '-p', 'tcp', '--dport', String(back.endpoint.port));
    await eject(rig, service);
    admit();
    await rig.update(service.name, backends([back.endpoint, refusingEndpoint(t)]));
    assert.equal(await ask(service.port), 'back');
    await waitFor('its readmission', () => rig.counters(service.name).ejected === 0);
  });

  test('an ejected endpoint that goes is not counted any more', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const dead = refusingEndpoint(t);
    const alive = await TcpBackend.named(t, 'alive');
    const service = await rig.open('TCP', [dead, alive.endpoint]);
    await eject(rig, service);
    await rig.update(service.name, { ...backends([alive.endpoint]), draining: [dead] });
    await waitFor('none to be ejected', () => rig.counters(service.name).ejected === 0);
    await waitFor('it to be no more', () => [0, undefined].includes(ejectedOf(rig, service.name, dead)));
    assert.equal(rig.counters(service.name).ejections, 1);
  });

  test('two Service ports judge the same endpoint apart', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const endpoints = [refusingEndpoint(t), (await TcpBackend.named(t, 'alive')).endpoint];
    const [one, two] = [await rig.open('TCP', endpoints), await rig.open('TCP', endpoints)];
    await eject(rig, one);
    assert.equal(rig.counters(two.name).ejected, 0);
  });

  test('where it is turned off nothing is ejected', async (t) => {
    const rig = await makeRig(t, { ejectAfter: 0, ejectTimeMs: 60_000 });
    const [dead, alive] = [refusingEndpoint(t), await TcpBackend.named(t, 'alive')];
    const { name, port } = await rig.open('TCP', [dead, alive.endpoint]);
    for (let i = 0; i < 20; i++) assert.equal(await ask(port), 'alive');
    const { failedRefused, ejected, ejections } = rig.counters(name);
    assert.ok(failedRefused > 2 * AFTER);
    assert.deepEqual([ejected, ejections], [0, 0]);
  });

  test('a UDP endpoint that refuses is ejected, and one that answers is not', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const [dead, alive] = [await UdpBackend.start(t), await UdpBackend.named(t, 'alive')];
    await dead.stop();
    const { name, port } = await rig.open('UDP', endpointsOf([dead, alive]));
    await waitFor('its ejection', async () => {
      await (await UdpClient.connect(t, port)).ask('?');
      return rig.counters(name).ejected === 1;
    });
    const { failedRefused } = rig.counters(name);
    for (let i = 0; i < 6; i++) assert.equal(await (await UdpClient.connect(t, port)).ask('?'), 'alive');
    assert.equal(rig.counters(name).failedRefused, failedRefused);
  });

  test('a UDP endpoint that is silent is not ejected: many answer nothing', async (t) => {
    const rig = await makeRig(t, FOR_EVER);
    const [silent, alive] = [await UdpBackend.start(t), await UdpBackend.named(t, 'alive')];
    const { name, port } = await rig.open('UDP', endpointsOf([silent, alive]));
    await rig.update(name, { ...backends(endpointsOf([silent, alive])), udpReplayMs: 20 });
    for (let i = 0; i < 12; i++) await (await UdpClient.connect(t, port)).ask('?');
    await new Promise((resolve) => setTimeout(resolve, SETTLED_MS));
    assert.ok(silent.arrivals.length > 0);
    assert.equal(rig.counters(name).ejections, 0);
  });
}
