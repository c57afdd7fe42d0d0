import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Environment, metric, NOBODY, TCP } from '../harness.ts';
import type { ProxyProcess } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

describe('backends that do not answer', () => {
  let environment: Environment;
  let proxy: ProxyProcess;

  before(async () => {
    environment = await Environment.create();
    proxy = await environment.startProxy();
  });

  after(() => environment.remove());

  /** A port on which the first pod drops everything that comes and the others serve. */
  async function blackHole(port: number): Promise<void> {
    const [hole, ...others] = environment.pods;
    for (const pod of others) await pod.serve(port, 'name');
    await hole.serve(port, 'name');
    const rule = ['iptables-nft', '-A', 'INPUT', '-p', 'tcp', '--dport', `${port}`, '-j', 'DROP'];
    await environment.topology.pods[0].output(rule);
  }

  async function failedConnects(service: string, reason: 'refused' | 'timeout'): Promise<number> {
    const name = 'userspace_proxy_connect_failures_total';
    return metric(await environment.metricsText(), name, `service="${service}"`, `reason="${reason}"`);
  }

  test('one that refuses is passed over: every request is answered, at once', async () => {
    const port = 9101;
    await environment.pods[1].serve(port, 'name');
    await environment.pods[2].serve(port, 'name');
    const service = await environment.serve({
      name: 'refusing',
      ports: [{ port: 80, target: port }],
      endpoints: POD_ADDRESSES,
    });
    const { names, failures } = await environment.client.call('requests', { ...service, count: 12 });
    assert.deepEqual(failures, {});
    assert.deepEqual(Object.keys(names).sort(), ['pod-2', 'pod-3']);
    assert.ok((await failedConnects('refusing', 'refused')) > 0);
    assert.equal(await failedConnects('refusing', 'timeout'), 0, 'nobody waited');
  });

  test('a backend that is killed is not missed: the next request succeeds', async () => {
    const port = 9102;
    for (const pod of environment.pods) await pod.serve(port, 'name');
    const service = await environment.serve({
      name: 'killed',
      ports: [{ port: 80, target: port }],
      endpoints: POD_ADDRESSES,
    });
    const load = await environment.client.call('startLoad', { ...service, concurrency: 1 });
    await waitFor('the load flows', async () => {
      return ((await environment.client.call('loadSoFar', { load })).names['pod-3'] ?? 0) > 3;
    });
    await environment.client.call('stopLoad', { load });
    await environment.pods[2].call('unlisten', { port });
    const { names, failures } = await environment.client.call('requests', { ...service, count: 6 });
    assert.deepEqual(failures, {});
    assert.equal(names['pod-3'], undefined);
  });

  test('one that swallows packets costs its own connection a quarter of a second and no other anything', async () => {
    const port = 9103;
    await blackHole(port);
    const service = await environment.serve({
      name: 'swallowing',
      ports: [{ port: 80, target: port }],
      endpoints: POD_ADDRESSES,
    });
    // The first contact with a pod may take an ARP round trip.
    await environment.client.call('requests', { ...service, count: 3 });
    const before = await failedConnects('swallowing', 'timeout');
    const crowd = { count: 60, concurrency: 60 };
    const { failures, ms } = await environment.client.call('requests', { ...service, ...crowd });
    assert.deepEqual(failures, {});
    // A third of them, unless some come so late that retries have taken turns by then.
    const waited = (await failedConnects('swallowing', 'timeout')) - before;
    assert.ok(waited >= 10 && waited <= 40, `${waited} waited`);
    // Half of it: the program takes the time once for all whom it lets in together, and the last of them came later.
    assert.ok(ms.filter((duration) => duration >= 125).length >= waited, JSON.stringify(ms));
    assert.ok(Math.max(...ms) < 250 * waited, `at the same time, not one after another: ${JSON.stringify(ms)}`);
  });

  test('two that swallow packets cost 250 ms and 500 ms', async () => {
    const port = 9104;
    await blackHole(port);
    const rule = ['iptables-nft', '-A', 'INPUT', '-p', 'tcp', '--dport', `${port}`, '-j', 'DROP'];
    await environment.topology.pods[1].output(rule);
    const service = await environment.serve({
      name: 'twice',
      ports: [{ port: 80, target: port }],
      endpoints: POD_ADDRESSES,
    });
    const rounds: { readonly waits: number; readonly ms: number }[] = [];
    for (let round = 0; round < 4; round++) {
      const before = await failedConnects('twice', 'timeout');
      const { name, ms } = await environment.client.call('request', service);
      assert.equal(name, 'pod-3');
      rounds.push({ waits: (await failedConnects('twice', 'timeout')) - before, ms });
    }
    // Where round robin stands decides whether none, one or both come before the third; both do at least once in two.
    const both = rounds.filter(({ waits }) => waits === 2).map(({ ms }) => ms);
    assert.ok(both.length >= 1 && both.every((ms) => ms >= 740), JSON.stringify(rounds));
    assert.ok(Math.min(...both) < 1740, `a third wait would be as long as that: ${JSON.stringify(rounds)}`);
    assert.ok(
      rounds.every(({ waits }) => waits <= 2),
      `none waits a third time: ${JSON.stringify(rounds)}`,
    );
  });

  test('one that accepts and closes at once is a working backend: the client sees a clean end', async () => {
    const service = await environment.serve({
      name: 'closing',
      ports: [{ port: 80, target: TCP.close }],
      endpoints: [POD_ADDRESSES[0]],
    });
    const { connection } = await environment.client.call('open', service);
    const { text, how } = await environment.client.call('finish', { connection });
    assert.equal(text, '');
    assert.match(how, /^(ended|closed)$/);
    const metrics = await environment.metricsText();
    assert.ok(metric(metrics, 'userspace_proxy_connect_retries_total', 'service="closing"') === 0);
  });

  test('when all refuse, the client is closed at once and one warning says so', async () => {
    const service = await environment.serve({
      name: 'dead',
      ports: [{ port: 80, target: NOBODY }],
      endpoints: POD_ADDRESSES,
    });
    for (let round = 0; round < 20; round++) {
      const { connection } = await environment.client.call('open', service);
      const { text } = await environment.client.call('finish', { connection });
      assert.equal(text, '');
    }
    assert.equal(await failedConnects('dead', 'timeout'), 0, 'nobody waited');
    const warnings = () => proxy.lines({ level: 'warn', svc: 'test/dead' });
    await waitFor('a warning', () => warnings().length > 0);
    assert.ok(warnings().length <= 2, JSON.stringify(warnings()));
  });

  test('with no endpoints the client is refused at once, and served once there is one', async () => {
    const service = await environment.serve({ name: 'empty', ports: [{ port: 80, target: NOBODY }], endpoints: [] });
    await assert.rejects(environment.client.call('open', service), /ECONNREFUSED/);
    environment.write({ ...service, ports: [{ port: 80, target: TCP.name }], endpoints: [POD_ADDRESSES[0]] });
    await waitFor('it is served once it has endpoints', () =>
      environment.client.call('request', service).then(
        ({ name }) => name === 'pod-1',
        () => false,
      ),
    );
  });

  test('a single backend that refuses is tried four times before the client is closed', async () => {
    const service = await environment.serve({
      name: 'four',
      ports: [{ port: 80, target: NOBODY }],
      endpoints: [POD_ADDRESSES[0]],
    });
    const { connection } = await environment.client.call('open', service);
    await environment.client.call('finish', { connection });
    const metrics = await environment.metricsText();
    assert.equal(metric(metrics, 'userspace_proxy_connect_retries_total', 'service="four"'), 3);
  });
});
