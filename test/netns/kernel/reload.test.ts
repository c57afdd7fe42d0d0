import assert from 'node:assert/strict';
import { readdirSync, renameSync } from 'node:fs';
import { beforeEach, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { listeningPorts, NAMING, type Served, TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { sliceObject } from '../manifests.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const [FIRST, SECOND, THIRD] = POD_ADDRESSES;

const CHURNED = 40;
/** Each of these Services ends as it began: it is not there. */
const CHANGES = 3 * 4 * CHURNED;
const BETWEEN_CHANGES_MS = 10;
/** Far fewer than there are changes. */
const FEW = 16;

describe(`manifests that change, with iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment('fresh');

  beforeEach(async () => {
    // Bursts are bounded elsewhere; here each step should show at once.
    await environment.startProxy({ args: ['--iptables-min-sync-period', '100ms'] });
  });

  const http = { name: 'http', port: 80, target: TCP.name };
  const steady = (options: { endpoints?: readonly string[] } = {}) =>
    environment.serve({ name: 'steady', ports: [http], endpoints: options.endpoints ?? POD_ADDRESSES });

  const answers = async (target: Served, count = 6) =>
    (await environment.client.call('requests', { ...target, count })).names;

  test('a Service under load loses no connection while others are added, changed and deleted', async () => {
    const service = await steady();
    const load = await environment.client.call('startLoad', { ...service, concurrency: 8 });
    const other = { name: 'other', clusterIP: '10.96.5.1', endpoints: POD_ADDRESSES };

    environment.write({ ...other, ports: [http] });
    await environment.waitForRules('10.96.5.1', 1);
    environment.write({ ...other, ports: [{ ...http, name: 'renamed' }] });
    await waitFor('the rule has the new name', async () =>
      (await environment.iptables.save()).some((rule) => rule.includes('test/other:renamed')),
    );
    environment.write({ ...other, ports: [{ ...http, nodePort: 30_081 }] });
    await waitFor('the NodePort has rules', async () =>
      (await environment.iptables.rules('KUBE-NODEPORT-HOST')).some((rule) => rule.includes('30081')),
    );
    environment.manifests.write('other.yaml', 'apiVersion: v1\nkind: [broken');
    await sleep(300);
    environment.manifests.remove('other.yaml');
    await environment.waitForRules('10.96.5.1', 0);
    // The loaded Service itself: replaced by the same, then its endpoints, then its affinity.
    environment.write(service);
    environment.write({ ...service, endpoints: [FIRST, SECOND] });
    await sleep(300);
    environment.write({ ...service, endpoints: [SECOND, THIRD] });
    await sleep(300);
    environment.write({ ...service, affinitySeconds: 60 });
    await sleep(300);

    const { names, failures } = await environment.client.call('stopLoad', { load });
    assert.deepEqual(failures, {});
    const total = Object.values(names).reduce((sum, count) => sum + count, 0);
    assert.ok(total > 50, `${total} connections`);
  });

  test('the local port stays at every change but of the protocol, and open connections go on', async () => {
    const port = { name: 'main', port: 7, target: TCP.echo };
    const service = await environment.serve({ name: 'kept', ports: [port] });
    const localPort = await environment.localPort('test/kept:main');
    const { connection } = await environment.client.call('open', service);
    const changed = { ...port, port: 8, nodePort: 30_082 };
    environment.write({
      name: 'kept',
      clusterIP: '10.96.5.2',
      externalIPs: ['192.168.50.79'],
      loadBalancerIPs: ['203.0.113.20'],
      affinitySeconds: 30,
      ports: [changed, { name: 'more', port: 9, target: TCP.echo }],
      endpoints: [SECOND],
    });
    await environment.waitForRules('10.96.5.2', 2);
    await environment.waitForRules(service.host, 0);
    assert.equal(await environment.localPort('test/kept:main'), localPort);
    await environment.client.call('write', { connection, text: 'still here' });
    assert.equal(await environment.client.call('read', { connection, bytes: 10 }), 'still here');

    environment.write({
      name: 'kept',
      clusterIP: '10.96.5.2',
      ports: [{ name: 'main', port: 8, target: UDP['udp-name'], protocol: 'UDP' }],
      endpoints: [SECOND],
    });
    await waitFor('the rule is for UDP', async () => {
      const rules = (await environment.iptables.rules('KUBE-PORTALS-HOST')).filter((rule) =>
        rule.includes('10.96.5.2'),
      );
      // In between there is none: only a changed protocol closes a listener before the next one is open.
      return rules.length > 0 && rules.every((rule) => rule.includes('-p udp'));
    });
    assert.deepEqual(await environment.client.call('udpFlows', { host: '10.96.5.2', port: 8, count: 2 }), {
      'pod-2': 2,
    });
  });

  test('one port number may serve TCP and UDP, independently of each other', async () => {
    const tcp = { name: 'tcp', port: 53, target: TCP.name, nodePort: 30_053 };
    const udp = { name: 'udp', port: 53, target: UDP['udp-name'], protocol: 'UDP', nodePort: 30_053 } as const;
    const service = await environment.serve({ name: 'both', ports: [tcp], endpoints: [FIRST] });
    environment.write({ ...service, ports: [tcp, udp] });
    await environment.waitForRules(service.host, 2);
    assert.deepEqual(await answers(service, 1), { 'pod-1': 1 });
    assert.deepEqual(await environment.client.call('udpFlows', { ...service, count: 1 }), { 'pod-1': 1 });
    environment.write({ ...service, ports: [udp] });
    await environment.waitForRules(service.host, 1);
    assert.deepEqual(await environment.client.call('udpFlows', { ...service, count: 1 }), { 'pod-1': 1 });
  });

  test('a renamed port is served with its NodePort', async () => {
    const port = { ...http, nodePort: 30_083 };
    const service = await environment.serve({ name: 'renamed', ports: [port] });
    environment.write({ ...service, ports: [{ ...port, name: 'web' }] });
    await waitFor('the rules have the new name', async () => {
      const rules = await environment.iptables.rules('KUBE-NODEPORT-CONTAINER');
      const ofNodePort = rules.filter((rule) => rule.includes('--dport 30083 '));
      return ofNodePort.length === 1 && ofNodePort[0]!.includes('test/renamed:web');
    });
    assert.deepEqual(await answers(service, 3), { 'pod-1': 1, 'pod-2': 1, 'pod-3': 1 });
    assert.match((await environment.outside.call('request', { host: '192.168.50.10', port: 30_083 })).name, /^pod-/);
  });

  test('a deleted Service leaves no rules and no listener', async () => {
    const service = await steady();
    const localPort = await environment.localPort('test/steady:http');
    environment.manifests.remove('steady.yaml');
    await environment.waitForRules(service.host, 0);
    await waitFor('nobody listens any more', () =>
      environment.node.call('request', { host: '192.168.50.10', port: localPort }).then(
        () => false,
        (error) => error.code === 'ECONNREFUSED',
      ),
    );
  });

  test('endpoints that change 100 times a second cost no connection, and the last change counts', async () => {
    const service = await steady();
    const load = await environment.client.call('startLoad', { ...service, concurrency: 4 });
    for (let i = 0; i < CHANGES; i++) {
      environment.write({ ...service, endpoints: POD_ADDRESSES.filter((_, pod) => (1 + (i % 7)) & (1 << pod)) });
      await sleep(BETWEEN_CHANGES_MS);
    }
    environment.write({ ...service, endpoints: [SECOND] });
    await waitFor('the last one', async () => (await answers(service))['pod-2'] === 6);
    assert.deepEqual((await environment.client.call('stopLoad', { load })).failures, {});
  });

  test('Services that come, change and go 100 times a second leave no chain, port, descriptor or entry behind', async () => {
    const service = await steady();
    await answers(service);
    const { node } = environment.topology;
    const addressOf = (i: number) => `10.96.7.${i + 1}`;
    const left = async () => ({
      // Local ports that wait until conntrack has forgotten them stay known.
      rules: (await environment.captured.ours()).toSorted(),
      ports: (await listeningPorts(node)).toSorted(),
      series: (await environment.metricsText()).split('\n').filter((line) => line.includes('service="')).length,
      entries: (await node.output(['conntrack', '-L', '-p', 'udp']))
        .split('\n')
        .filter((line) => line.includes('=10.96.7.')),
    });
    const descriptors = () => readdirSync(`/proc/${environment.proxy.pid}/fd`).length;
    const before = { ...(await left()), descriptors: descriptors() };

    const load = await environment.client.call('startLoad', { ...service, concurrency: 2 });
    const asked: Promise<unknown>[] = [];
    for (let i = 0; i < CHANGES; i++) {
      const name = `churn-${i % CHURNED}`;
      // Its life: with endpoints and all kinds of addresses, with other ports and protocols, without endpoints, gone.
      const round = Math.floor(i / CHURNED) % 4;
      const clusterIP = addressOf(i % CHURNED);
      const [tcp, udp] = [
        { ...http, nodePort: 30_200 + (i % CHURNED) },
        { ...NAMING[1], port: 53 + round },
      ];
      if (round === 3) environment.manifests.remove(`${name}.yaml`);
      else {
        const endpoints = round === 2 ? [] : POD_ADDRESSES;
        const ports = round === 1 ? [{ ...tcp, port: 81, nodePort: 0 }, udp] : [tcp, udp];
        environment.write({
          name,
          clusterIP,
          ports,
          endpoints,
          ...(round === 0 && { externalIPs: [`203.0.113.${i % CHURNED}`] }),
        });
        if (i % 5 === 0) {
          const flow = { host: clusterIP, port: udp.port, count: 1, timeoutMs: 500 };
          asked.push(environment.client.call('udpFlows', flow).catch(() => {}));
        }
      }
      await sleep(BETWEEN_CHANGES_MS);
    }
    await Promise.all(asked);
    assert.deepEqual((await environment.client.call('stopLoad', { load })).failures, {});
    let now = { ...before };
    await waitFor('all of it to be gone', async () => {
      now = { ...(await left()), descriptors: descriptors() };
      // A few are kept for the next connection, or not.
      return (
        isDeepStrictEqual({ ...now, descriptors: 0 }, { ...before, descriptors: 0 }) &&
        now.descriptors <= before.descriptors + FEW
      );
    }).catch(() => assert.deepEqual(now, before));
    const retired = (await environment.iptables.rules('KUBE-USERSPACE-RETIRED')).map(
      (rule) => / --dport (\d+) /.exec(rule)?.[1],
    );
    // Unless its listener is still being closed.
    assert.ok(new Set(retired).size <= 3 * CHURNED, 'a Service that comes back has its local port again');
  });

  test('a file that does not parse keeps its last good state and is reported once, with its name', async () => {
    const service = await steady();
    const quiet = environment.proxy.log.length;
    environment.manifests.write('steady.yaml', 'apiVersion: v1\nkind: Service\nmetadata: {name: [}\n');
    const complaints = () =>
      environment.proxy.log.slice(quiet).filter((line) => JSON.stringify(line).includes('steady.yaml'));
    await waitFor('the file is reported', () => complaints().length > 0);
    // Unrelated changes make the source look again.
    environment.write({ name: 'unrelated', clusterIP: '10.96.5.9', ports: [http], endpoints: [FIRST] });
    await environment.waitForRules('10.96.5.9', 1);
    await sleep(1200);
    assert.equal(complaints().length, 1, JSON.stringify(complaints()));
    assert.deepEqual(await answers(service, 3), { 'pod-1': 1, 'pod-2': 1, 'pod-3': 1 });
    environment.write({ ...service, endpoints: [SECOND] });
    await waitFor('the fixed file counts', async () => (await answers(service, 2))['pod-2'] === 2);
  });

  test('a folder that is gone removes nothing; one that is emptied does, and a line says how much', async () => {
    const service = await steady({ endpoints: [FIRST] });
    const { directory } = environment.manifests;
    const count = environment.proxy.log.length;
    const said = (start: string) => environment.proxy.log.slice(count).find(({ msg }) => msg.startsWith(start));
    renameSync(directory, `${directory}-away`);
    await waitFor('it to be reported', () => said('Manifests cannot be read; their last good state is kept'));
    assert.deepEqual(await answers(service, 2), { 'pod-1': 2 });
    renameSync(`${directory}-away`, directory);
    await waitFor('it to be back', () => said('Manifests can be read again'));
    for (const file of readdirSync(directory)) environment.manifests.remove(file);
    const line = await waitFor('the removal to be reported', () => said('Most Services have been removed at once'));
    assert.equal(line['left'], 0);
    await environment.waitForRules(service.host, 0);
  });

  test('an EndpointSlice takes the place of Endpoints, and unready addresses get nothing', async () => {
    const service = await steady({ endpoints: [FIRST] });
    const slice = (ready: readonly string[], unready: readonly string[]) => {
      const isReady = (address: string) => ({ address, conditions: { ready: ready.includes(address) } });
      return sliceObject('steady', [http], [...ready, ...unready].map(isReady));
    };
    environment.manifests.write('slice.yaml', [slice([SECOND, THIRD], [FIRST])]);
    await waitFor('the slice counts', async () => (await environment.client.call('request', service)).name !== 'pod-1');
    assert.deepEqual(await answers(service, 4), { 'pod-2': 2, 'pod-3': 2 });
    environment.manifests.write('slice.yaml', [slice([FIRST], [SECOND, THIRD])]);
    await waitFor('only the ready one is left', async () => (await answers(service, 3))['pod-1'] === 3);
    environment.manifests.remove('slice.yaml');
    await waitFor('Endpoints count again', async () => (await answers(service, 3))['pod-1'] === 3);
  });
});
