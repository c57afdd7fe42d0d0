import assert from 'node:assert/strict';
import { before, beforeEach, describe, test } from 'node:test';
import { metric, type Served, TCP, testEnvironment, UDP } from '../harness.ts';
import { CAPTURE, FLAVOUR, METHOD, Shims } from '../iptables.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

const SYNC_PERIOD_MS = 500;

describe(`repairing ${METHOD} within the sync period`, () => {
  const environment = testEnvironment();
  let shims: Shims;
  let service: Served;
  /** All of it as it should be. */
  let intact: readonly string[];

  before(async () => {
    shims = await Shims.create(environment.temporary('shims'));
    await environment.startProxy({
      args: ['--iptables-sync-period', `${SYNC_PERIOD_MS}ms`, '--iptables-min-sync-period', '100ms'],
      env: { PATH: shims.path },
    });
    service = await environment.serve({
      name: 'web',
      ports: [{ name: 'http', port: 80, target: TCP.name, nodePort: 30_080 }],
    });
    await waitFor('it is in sync', () => environment.isInSync());
    intact = await environment.captured.ours();
  });

  beforeEach(() => restored());

  async function restored(expected: readonly string[] = intact): Promise<void> {
    let actual: readonly string[] = [];
    const same = async () => {
      actual = await environment.captured.ours();
      return actual.join('\n') === expected.join('\n');
    };
    await waitFor('the rules are restored', same).catch(() => {});
    assert.deepEqual(actual, expected);
  }

  if (CAPTURE === 'iptables') {
    test('a rule deleted from each chain, and our jumps deleted from each built-in chain, come back', async () => {
      const { iptables } = environment;
      for (const chain of ['PORTALS-CONTAINER', 'PORTALS-HOST', 'NODEPORT-CONTAINER', 'NODEPORT-HOST', 'LOCAL-PORTS']) {
        await iptables.must(`-t nat -D KUBE-${chain} 1`);
      }
      for (const chain of ['KUBE-NODEPORT-NON-LOCAL', 'KUBE-DOORS']) await iptables.must(`-D ${chain} 1`);
      await restored();
      for (const chain of ['PREROUTING', 'OUTPUT']) await iptables.must(`-t nat -F ${chain}`);
      await iptables.must('-F INPUT');
      await restored();
      await environment.assertServed(service);
    });
  } else {
    test('the rules of each chain and the elements of each map and set come back', async () => {
      for (const kind of ['chain', 'map', 'set']) {
        const names = intact.flatMap((line) => new RegExp(`^${kind} (\\S+) \\{`).exec(line)?.[1] ?? []);
        assert.ok(names.length > 1, kind);
        for (const name of names) await environment.nft.must(`flush ${kind} ip kube-userspace-proxy ${name}`);
        await restored();
      }
      await environment.assertServed(service);
    });
  }

  test('an open connection survives flush and repair', async () => {
    const echo = await environment.serve({ name: 'echo', ports: [{ port: 7, target: TCP.echo }] });
    const { connection } = await environment.client.call('open', echo);
    await environment.client.call('write', { connection, text: 'before' });
    assert.equal(await environment.client.call('read', { connection, bytes: 6 }), 'before');
    await environment.captured.flush();
    await environment.waitForRules(echo.host, 1);
    await environment.client.call('write', { connection, text: 'after!' });
    assert.equal(await environment.client.call('read', { connection, bytes: 6 }), 'after!');
    environment.manifests.remove('echo.yaml');
    await restored();
  });

  test('clients that came while the rules were gone are served once they are back', async () => {
    const { client, topology } = environment;
    const dns = { name: 'dns', ports: [{ port: 53, target: UDP['udp-name'], protocol: 'UDP' }] } as const;
    const { host } = await environment.serve(dns);
    const { socket } = await client.call('udpOpen', {});
    const answer = async () => await client.call('udpAsk', { socket, host, port: 53, text: 'who', timeoutMs: 200 });
    shims.holdWrites(true);
    try {
      // Without any rule about connections, nft would not even track them.
      if (CAPTURE === 'nft') await environment.nft.must('flush chain ip kube-userspace-proxy portals-in');
      else await environment.iptables.must('-t nat -F');
      const request = client.call('request', { host: service.host, port: 80, timeoutMs: PATIENCE_MS });
      assert.equal(await answer(), undefined);
      const entries = () => topology.node.output(['conntrack', '-L']);
      await waitFor('both pass the rules by', async () => {
        const lines = (await entries()).split('\n').filter((line) => line.includes('[UNREPLIED]'));
        return [service.host, host].every((each) => lines.some((line) => line.includes(` src=${each} `)));
      });
      shims.holdWrites(false);
      assert.match((await request).name, /^pod-/);
      await waitFor('an answer', async () => (await answer()) !== undefined);
    } finally {
      shims.holdWrites(false);
    }
    environment.manifests.remove('dns.yaml');
    await restored();
  });

  const onlyNft = CAPTURE === 'iptables' && FLAVOUR === 'nft' ? false : 'no other tables have such rules';
  test('beside rules that only nft can make, jumps are kept once and in their places', { skip: onlyNft }, async () => {
    const native = (command: string) => environment.topology.node.output(['nft', ...command.split(' ')]);
    const shown = async () =>
      (await native('list chain ip nat PREROUTING'))
        .split('\n')
        .flatMap((line) => / jump (\S+)$|(ct mark)$/.exec(line)?.slice(1).join('') ?? []);
    const syncs = async () =>
      metric(await environment.metricsText(), 'kubeproxy_sync_proxy_rules_duration_seconds_count', 'IPv4');
    try {
      await native('insert rule ip nat PREROUTING meta mark set ct mark');
      await native('add rule ip nat PREROUTING meta mark set ct mark');
      await native('add rule ip filter INPUT meta mark set ct mark');
      const before = await syncs();
      await waitFor('some syncs', async () => (await syncs()) > before + 5);
      await environment.iptables.must('-t nat -D KUBE-PORTALS-HOST 1');
      await waitFor('a rule is back', async () =>
        (await native('list chain ip nat KUBE-PORTALS-HOST')).includes('mark'),
      );
      assert.deepEqual(await shown(), ['KUBE-PORTALS-CONTAINER', 'ct mark', 'ct mark', 'KUBE-NODEPORT-CONTAINER']);
      await environment.assertServed(service);
    } finally {
      await native('flush chain ip nat PREROUTING');
      await native('flush chain ip filter INPUT');
    }
    await restored();
  });

  test('nothing is written while nothing has changed, however often it is checked', async () => {
    const of = async (name: string) => metric(await environment.metricsText(), `kubeproxy_sync_${name}`, 'IPv4');
    const checks = () => of('full_proxy_rules_duration_seconds_count');
    const before = await checks();
    shims.forget();
    await waitFor('three checks', async () => (await checks()) > before + 3);
    assert.deepEqual(shims.writes(), []);
    assert.equal(await of('proxy_rules_iptables_last'), 0);
  });

  test('a change of endpoints reaches new connections without any program', async () => {
    const moving = await environment.serve({ name: 'moving', endpoints: [POD_ADDRESSES[0]] });
    shims.forget();
    environment.write({ ...moving, endpoints: [POD_ADDRESSES[1]] });
    await waitFor('pod-2 answers', async () => (await environment.client.call('request', moving)).name === 'pod-2');
    assert.deepEqual(shims.writes(), []);
    environment.manifests.remove('moving.yaml');
    await restored();
  });

  test('programs that fail turn /healthz red and it recovers; traffic flows throughout', async () => {
    const healthz = async () =>
      (await environment.node.call('httpGet', { url: 'http://127.0.0.1:10256/healthz' })).status;
    await waitFor('/healthz says 200', async () => (await healthz()) === 200);
    shims.fail(true);
    // Elements are written by no program, and rules only where they differ. This chain serves nobody here.
    if (CAPTURE === 'nft') await environment.nft.must('flush chain ip kube-userspace-proxy to-drop');
    environment.write({ name: 'late', clusterIP: '10.96.3.1', ports: [{ port: 80, target: TCP.name }], endpoints: [] });
    await waitFor('/healthz says 503', async () => (await healthz()) === 503);
    await environment.assertServed(service);
    shims.fail(false);
    await waitFor('/healthz says 200', async () => (await healthz()) === 200);
    await environment.waitForRules('10.96.3.1', 1);
    environment.manifests.remove('late.yaml');
    await restored();
  });
});
