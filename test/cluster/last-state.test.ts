import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { metric, TCP } from '../netns/harness.ts';
import { Shims } from '../netns/iptables.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { Cluster } from './cluster.ts';

const ALL = ['pod-1', 'pod-2', 'pod-3'] as const;
const web = (name: string) => ({ name, ports: [{ port: 80, target: TCP.name }] });
const echo = { name: 'echo', ports: [{ port: 7, target: TCP.echo }] };
const SERVING = 'The state on disk is served until the API server answers';

describe('a start without the API server', { timeout: 600_000 }, () => {
  test('serves the state on disk; when the server is back, its lists replace that by difference', async () => {
    const cluster = await Cluster.create();
    try {
      const { environment } = cluster;
      const directory = environment.temporary('state');
      const shims = await Shims.create(environment.temporary('shims'));
      const args = ['--state-dir', directory, '--state-wait', '500ms'];
      const start = () => cluster.startProxy({ args, env: { PATH: shims.path } });
      let proxy = await start();
      const stays = await cluster.serve(web('stays'), POD_ADDRESSES);
      const goes = await cluster.serve(web('goes'), POD_ADDRESSES);
      await cluster.serve(echo, POD_ADDRESSES);
      await cluster.isUp(stays, ALL);
      // The node's default route leads there. In the API server's --service-cluster-ip-range, and no Service's.
      const { client, outside, topology } = environment;
      const unassigned = { protocol: 'tcp', host: '10.96.77.7', port: 80 } as const;
      await topology.outside.ip(`addr add ${unassigned.host}/32 dev lo`);
      await outside.call('listenTcp', { port: 80, mode: 'name', name: 'outside' });
      await cluster.becomes('timeout', unassigned, [client]);
      // Connected: neither does it wait, nor does it use what is there.
      assert.equal(await proxy.stop(), 0);
      assert.equal(statSync(join(directory, 'last-state')).mode & 0o777, 0o600);
      proxy = await start();
      assert.deepEqual(proxy.lines({ msg: SERVING }), []);
      assert.equal(await proxy.stop(), 0);

      // What changes while no proxy runs is not in the file.
      await cluster.deleteService('goes');
      const comes = await cluster.create(web('comes'), POD_ADDRESSES);
      await cluster.plane.killApiServer();
      // As after a boot.
      await environment.iptables.flush();
      await cluster.becomes('outside', unassigned, [client]);
      proxy = await start();
      for (const service of [stays, goes]) await cluster.isUp(service, ALL);
      await cluster.becomes('timeout', unassigned, [client]);
      await cluster.isDown(comes);
      const of = /^serving the state of 20\d\d-/;
      const { status, apiServer } = await cluster.healthz();
      assert.equal(status, 200);
      assert.match((apiServer as unknown as { state: string }).state, of);
      const age = async () => metric(await environment.metricsText(), 'userspace_proxy_state_age_seconds');
      const [first, second] = [await age(), await age()];
      assert.ok(first > 0 && second > first, `${first}, ${second}`);
      const [said, ...more] = proxy.lines({ level: 'warn', msg: SERVING });
      assert.match(String(said?.['err']), /has not answered within 0.5 s/);
      assert.deepEqual(more, []);

      const { spec } = JSON.parse(
        readFileSync(join(directory, 'last-state'), 'utf8')
          .split('\n')
          .find((line) => line.includes('"name":"echo"') && line.includes('"Service"')) ?? '',
      ).object;
      const { connection } = await environment.client.call('open', { host: spec.clusterIP, port: 7 });
      const load = await environment.client.call('startLoad', { host: stays.host, port: 80, concurrency: 2 });
      const localPort = await environment.localPort('test/stays');
      await cluster.plane.startApiServer();
      await waitFor('the proxy follows the server', async () => (await cluster.apiState()).connected, 120_000);
      await cluster.isUp(comes, ALL);
      await cluster.isDown(goes);
      await waitFor('the state on disk is served no more', async () => (await age()) === 0);
      assert.deepEqual((await environment.client.call('stopLoad', { load })).failures, {});
      await environment.client.call('write', { connection, text: 'still there' });
      assert.equal(await environment.client.call('read', { connection, bytes: 11 }), 'still there');
      assert.equal(await environment.localPort('test/stays'), localPort);
      assert.equal(await proxy.stop(), 0);

      // A server that says what the file does changes no rule.
      await cluster.plane.killApiServer();
      proxy = await start();
      await cluster.isUp(stays, ALL);
      assert.ok((await age()) > 0);
      shims.forget();
      await cluster.plane.startApiServer();
      await waitFor('the state on disk is served no more', async () => (await age()) === 0, 120_000);
      await waitFor('no sync is due', async () => {
        const text = await environment.metricsText();
        const at = (what: string) => metric(text, `kubeproxy_sync_proxy_rules_last_${what}timestamp_seconds`, 'IPv4');
        return at('queued_') <= at('');
      });
      assert.deepEqual(shims.writes(), []);
      await cluster.isUp(stays, ALL);
      assert.equal(await environment.localPort('test/stays'), localPort);
      assert.equal(await proxy.stop(), 0);
    } finally {
      await cluster.remove();
    }
  });
});
