import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { TCP, testEnvironment } from '../harness.ts';
import { FLAVOUR, IptablesShims } from '../iptables.ts';
import { serviceObjects } from '../manifests.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

describe(`carrying changes into iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment('fresh');
  let shims: IptablesShims;

  before(async () => {
    shims = await IptablesShims.create(environment.temporary('shims'));
  });

  test('200 changes in a row are written in few transactions, bounded by the minimal sync period', async () => {
    await environment.startProxy({
      args: ['--iptables-min-sync-period', '1s'],
      env: { PATH: shims.path },
    });
    shims.forget();
    const begun = performance.now();
    for (let number = 1; number <= 200; number++) {
      environment.write({
        name: `burst-${number}`,
        clusterIP: `10.96.2.${number}`,
        ports: [{ port: 80, target: TCP.name }],
        endpoints: POD_ADDRESSES,
      });
      await sleep(10);
    }
    const rules = () => environment.iptables.rules('KUBE-PORTALS-CONTAINER');
    await waitFor('all of them have rules', async () => (await rules()).length === 200);
    const seconds = (performance.now() - begun) / 1000;
    // Two syncs at once, then one a second, each of the tables nat and filter.
    const limit = 2 * (2 + Math.ceil(seconds));
    assert.ok(shims.restores().length <= limit, `${shims.restores().length} transactions in ${seconds} s`);
  });

  test('one Service that cannot be accepted keeps none of the others out, and is named once', async () => {
    await environment.startProxy({ args: ['--iptables-sync-period', '1s'] });
    const port = { port: 80, target: TCP.name };
    const bad: Record<string, object> = {
      newline: { name: 'x\n-A PREROUTING -j DROP', clusterIP: '10.96.4.1', ports: [port] },
      quote: { name: 'x" -j DROP', clusterIP: '10.96.4.2', ports: [port] },
      port: { name: 'bad-port', clusterIP: '10.96.4.3', ports: [{ port: 99_999, target: 80 }] },
      address: { name: 'bad-address', clusterIP: '10.96.4.4; reboot', ports: [port] },
      type: { name: 'bad-type', clusterIP: 42, ports: 'none' },
      loopback: { name: 'loopback', clusterIP: '127.0.0.1', ports: [port] },
    };
    const good = (name: string, clusterIP: string) =>
      serviceObjects({ name, clusterIP, ports: [port], endpoints: POD_ADDRESSES });
    const badObjects = Object.values(bad).map((options) => {
      const { name, clusterIP, ports } = options as { name: string; clusterIP: string; ports: object[] };
      return {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name, namespace: 'test' },
        spec: { clusterIP, ports },
      };
    });
    environment.manifests.write('mixed.yaml', [
      ...good('first', '10.96.4.101'),
      ...badObjects,
      ...good('last', '10.96.4.102'),
    ]);
    await environment.waitForRules('10.96.4.101', 1);
    await environment.waitForRules('10.96.4.102', 1);
    for (const host of ['10.96.4.101', '10.96.4.102']) {
      const { names } = await environment.client.call('requests', { host, port: 80, count: 3 });
      assert.deepEqual(names, { 'pod-1': 1, 'pod-2': 1, 'pod-3': 1 });
    }
    const rules = await environment.iptables.save();
    assert.ok(!rules.some((rule) => rule.includes('DROP') || rule.includes('127.0.0.1')));
    const reported = () => environment.proxy.log.filter((line) => JSON.stringify(line).includes('mixed.yaml'));
    const syncs = await environment.lastSync();
    await waitFor('two more syncs', async () => (await environment.lastSync()) >= syncs + 2);
    const complaints = reported().filter((line) => line.level === 'warn' || line.level === 'error');
    assert.ok(complaints.length >= badObjects.length, `${complaints.length} complaints`);
    assert.equal(
      new Set(complaints.map((line) => JSON.stringify({ ...line, timestamp: 0, ts: 0 }))).size,
      complaints.length,
    );
  });

  test('the proxy survives an iptables that fails from the start, and installs the rules once it works', async () => {
    shims.fail(true);
    const clusterIP = environment.clusterIP();
    environment.write({
      name: 'patient',
      clusterIP,
      ports: [{ port: 80, target: TCP.name }],
      endpoints: POD_ADDRESSES,
    });
    const started = await environment.startProxy({
      args: ['--iptables-sync-period', '1s'],
      env: { PATH: shims.path },
      ready: async () => true,
    });
    await waitFor('the failure is in the log', () => started.lines({ level: 'error' }).length > 0);
    shims.fail(false);
    await environment.waitForRules(clusterIP, 1);
    assert.match((await environment.client.call('request', { host: clusterIP, port: 80 })).name, /^pod-/);
  });
});
