import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { metric, NOBODY, TCP, testEnvironment, UDP } from '../harness.ts';
import { type ServiceOptions, serviceObjects, sliceObject, weightedSliceObject } from '../manifests.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const PREFIX = 'kube-userspace-proxy';
const EVERY_MS = 10;
/** How long each step of a rollout lasts, so that some thirty clients meet it. */
const STEP_MS = 300;
const KIB = 1 << 10;

describe('clients of a Service without endpoints', () => {
  const environment = testEnvironment({});
  const [one, two] = POD_ADDRESSES;
  const annotations = { [`${PREFIX}/wait-for-endpoints`]: '60s' };

  const of = async (name: string, service: string) =>
    metric(await environment.metricsText(), `userspace_proxy_${name}`, `service="${service}"`);
  const waiting = (service: string, count: number) =>
    waitFor(`${count} to wait`, async () => (await of('clients_waiting', service)) === count);

  test('are neither refused nor lost while its one replica is replaced', async (t) => {
    const { client } = environment;
    const echo = { name: 'recreate', annotations, ports: [{ port: 80, target: TCP.echo }] };
    const service = await environment.serve({ ...echo, endpoints: [one] });
    const crowd = await client.call('gather', { ...service, everyMs: EVERY_MS });
    // What the node learns in turn: the pod has gone; or it is listed, and dead already; none; the next one.
    const steps: readonly Partial<ServiceOptions>[] = [
      { endpoints: [] },
      { endpoints: [two] },
      { endpoints: [one], ports: [{ port: 80, target: NOBODY }] },
      { endpoints: [] },
      { endpoints: [one] },
    ];
    for (const step of steps) {
      await sleep(STEP_MS);
      environment.write({ ...service, ...step });
    }
    await sleep(STEP_MS);
    const { fates, slowestMs } = await client.call('disperse', { crowd });
    t.diagnostic(`${fates['answered']} answered, the slowest after ${Math.round(slowestMs)} ms`);
    assert.deepEqual(Object.keys(fates), ['answered']);
    assert.ok((fates['answered'] ?? 0) > 30);
    assert.ok((await of('turned_away_total', 'recreate')) === 0);
  });

  test('are served whenever it wakes from zero, over TCP, UDP, and half-closed', async () => {
    const { client } = environment;
    const service = await environment.serve({
      name: 'zero',
      annotations,
      ports: [
        { name: 'name', port: 80, target: TCP.name },
        { name: 'sink', port: 81, target: TCP.sink },
        { name: 'udp', port: 53, target: UDP['udp-name'], protocol: 'UDP' },
      ],
      endpoints: [],
    });
    const { host } = service;
    for (let round = 0; round < 2; round++) {
      const answers = Promise.all([
        client.call('requests', { host, port: 80, count: 10, concurrency: 10 }),
        client.call('upload', { host, port: 81, bytes: 300 * KIB }),
        client.call('outcomes', { attempts: [{ protocol: 'udp', host, port: 53 }], timeoutMs: 30_000 }),
      ]);
      await waiting('zero', 12);
      environment.write({ ...service, endpoints: [one] });
      const [{ names, failures }, { intact }, outcomes] = await answers;
      assert.deepEqual([names, failures, intact, outcomes], [{ 'pod-1': 10 }, {}, true, ['pod-1']]);
      assert.equal(await of('clients_waiting', 'zero'), 0);
      environment.write({ ...service, endpoints: [] });
      // Else the next round would find the endpoint. It resets: one that only ends would be served.
      await waitFor('it to go', async () => {
        const { connection } = await client.call('open', { host, port: 80 });
        const waits = (await of('clients_waiting', 'zero')) === 1;
        await client.call('reset', { connection });
        return waits;
      });
      await waiting('zero', 0);
    }
  });

  test('wait whatever the reason why no endpoint may serve', async () => {
    const { client, outside } = environment;
    const ports = [{ port: 80, target: TCP.name }];
    const at = (name: string, more: object) => [sliceObject(name, ports, [{ address: one, ...more }])];
    const elsewhere = (name: string) => at(name, { nodeName: 'another' });
    const here = (name: string) => at(name, { nodeName: hostname() });
    const unready = { conditions: { ready: false } };
    const weighted = (name: string, weight: number) => [weightedSliceObject(name, ports, one, weight)];
    const reasons = [
      { name: 'unlisted', asleep: () => [], awake: (name: string) => at(name, {}) },
      { name: 'unready', asleep: (name: string) => at(name, unready), awake: (name: string) => at(name, {}) },
      { name: 'elsewhere', spec: { internalTrafficPolicy: 'Local' }, asleep: elsewhere, awake: here },
      {
        name: 'elsewhere-for-outside',
        spec: { externalTrafficPolicy: 'Local' },
        nodePort: environment.nodePort(),
        asleep: elsewhere,
        awake: here,
      },
      {
        name: 'weightless',
        asleep: (name: string) => weighted(name, 0),
        awake: (name: string) => weighted(name, 1),
      },
    ];
    for (const { name, asleep, awake, nodePort, ...more } of reasons) {
      const host = environment.clusterIP();
      const ofService = ports.map((port) => ({ ...port, ...(nodePort && { nodePort }) }));
      const service = serviceObjects({ name, clusterIP: host, ports: ofService, annotations, ...more });
      environment.manifests.write(`${name}.yaml`, [...service, ...asleep(name)]);
      await environment.waitForRules(host, 1);
      const [from, to] = nodePort ? [outside, { host: NODE_ADDRESS, port: nodePort }] : [client, { host, port: 80 }];
      const answer = from.call('request', { ...to, timeoutMs: 60_000 });
      await waiting(name, 1);
      environment.manifests.write(`${name}.yaml`, [...service, ...awake(name)]);
      assert.equal((await answer).name, 'pod-1', name);
    }
  });

  test('wait in bounds, and for an endpoint that takes no more', async () => {
    const { client } = environment;
    const service = await environment.serve({
      name: 'bounds',
      annotations: { ...annotations, [`${PREFIX}/max-waiting`]: '2', [`${PREFIX}/max-connections`]: '1' },
      ports: [{ port: 80, target: TCP.echo }],
      endpoints: [],
    });
    const two = await client.call('openMany', { ...service, count: 2 });
    await waiting('bounds', 2);
    const third = async () => {
      const list = await client.call('openMany', { ...service, count: 1 });
      await waitFor('its reset', async () => (await client.call('states', { list }))[0] === 'ECONNRESET');
    };
    // It may come before the client sees that it is connected.
    await third().catch((err: unknown) => assert.match(String(err), /connect ECONNRESET/));
    environment.write({ ...service, endpoints: [one] });
    await waiting('bounds', 1);
    for (const connection of two) {
      await client.call('write', { connection, text: '.' });
      assert.equal(await client.call('read', { connection, bytes: 1 }), '.');
      await client.call('reset', { connection });
    }
    await waiting('bounds', 0);
  });
});

describe('5,000 clients that wait in one namespace', () => {
  /** So few that they are more than its share. */
  const environment = testEnvironment({ through: ['prlimit', '--nofile=5000:5000'] });
  const CROWD = 5_000;
  const SHARE = 3_000;

  test('harm no Service of another, and are all served in the end', async (t) => {
    const { client, pods } = environment;
    const of = async (name: string, service: string) =>
      metric(await environment.metricsText(), `userspace_proxy_${name}`, `service="${service}"`);
    const hog = await environment.serve({
      name: 'hog',
      namespace: 'hog',
      annotations: { [`${PREFIX}/wait-for-endpoints`]: '5m', [`${PREFIX}/max-waiting`]: '10000' },
      ports: [{ port: 80, target: TCP.echo }],
      endpoints: [],
    });
    const other = await environment.serve({ name: 'other', ports: [{ port: 80, target: TCP.echo }] });
    const crowd = await pods[2].call('gather', { ...hog, count: CROWD });
    await waitFor('the hog to have its share', async () => (await of('accept_pauses_total', 'hog')) > 0);
    const held = await of('clients_waiting', 'hog');
    assert.ok(held > SHARE && held < CROWD, `${held} wait`);

    const busy = await client.call('gather', { ...other, count: 1_000 });
    const { fates, slowestMs } = await client.call('disperse', { crowd: busy });
    t.diagnostic(`beside ${held} that wait, the slowest of 1,000 others took ${Math.round(slowestMs)} ms`);
    assert.deepEqual(fates, { answered: 1_000 });

    const began = performance.now();
    environment.write({ ...hog, endpoints: [POD_ADDRESSES[0]] });
    const served = await pods[2].call('disperse', { crowd });
    t.diagnostic(`all served within ${Math.round(performance.now() - began)} ms`);
    assert.deepEqual(served.fates, { answered: CROWD });
    assert.equal(await of('turned_away_total', 'hog'), 0);
  });
});
