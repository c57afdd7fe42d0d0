import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { MemoryCgroup } from '../../support/cgroup.ts';
import { TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { waitFor } from '../wait.ts';

const MIB = 1 << 20;

describe(`memory that is short, with iptables-${FLAVOUR}`, () => {
  const environment = testEnvironment();
  let group: MemoryCgroup | undefined;

  after(() => {
    const made = group;
    return made && waitFor('it is empty', () => made.remove());
  });

  test('is enough for a thousand clients; out of memory is a crash, after which the rules are right', async (t) => {
    const { client } = environment;
    const { pid } = await environment.startProxy();
    const web = await environment.serve({
      name: 'web',
      ports: [
        { name: 'http', port: 80, target: TCP.name },
        { name: 'echo', port: 7, target: TCP.echo },
        { name: 'dns', port: 53, target: UDP['udp-name'], protocol: 'UDP' },
      ],
    });
    assert.deepEqual((await client.call('requests', { ...web, count: 200, concurrency: 8 })).failures, {});
    const rules = await environment.captured.ours();
    group = new MemoryCgroup(environment.topology.node.name);
    group.limit(64 * MIB);
    group.add(pid);
    const idle = await client.call('openMany', { host: web.host, port: 7, count: 1_000 });
    assert.deepEqual((await client.call('udpFlows', { host: web.host, port: 53, count: 500 }))['none'], undefined);
    assert.deepEqual((await client.call('requests', { ...web, count: 2_000, concurrency: 8 })).failures, {});
    assert.deepEqual(new Set(await client.call('states', { list: idle })), new Set(['open']));
    t.diagnostic(`${(group.peak() / MIB).toFixed(1)} MiB more`);

    group.limit(group.peak());
    await waitFor('it is killed', async () => {
      await client.call('openMany', { host: web.host, port: 7, count: 500 }).catch(() => {});
      return !environment.proxy.running;
    });
    assert.deepEqual(await environment.proxy.exited(), { code: null, signal: 'SIGKILL' });
    await environment.startProxy();
    assert.deepEqual((await client.call('requests', { ...web, count: 50 })).failures, {});
    assert.deepEqual(await environment.captured.ours(), rules);
  });
});
