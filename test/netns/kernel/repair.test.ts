import assert from 'node:assert/strict';
import { before, beforeEach, describe, test } from 'node:test';
import { metric, type Served, TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR, IptablesShims } from '../iptables.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

const SYNC_PERIOD_MS = 500;

describe(`repairing rules in iptables-${FLAVOUR} within the sync period`, () => {
  const environment = testEnvironment();
  let shims: IptablesShims;
  let service: Served;
  /** Both tables as they should be. */
  let intact: string[];

  before(async () => {
    shims = await IptablesShims.create(environment.temporary('shims'));
    await environment.startProxy({
      args: ['--iptables-sync-period', `${SYNC_PERIOD_MS}ms`, '--iptables-min-sync-period', '100ms'],
      env: { PATH: shims.path },
    });
    service = await environment.serve({
      name: 'web',
      ports: [{ name: 'http', port: 80, target: TCP.name, nodePort: 30_080 }],
    });
    await waitFor('the NodePort is open', async () =>
      (await rules()).some((rule) => rule.includes('NON-LOCAL -p tcp')),
    );
    intact = await rules();
  });

  beforeEach(() => restored());

  async function rules(): Promise<string[]> {
    // It remembers the local ports of Services that a test took away, which is not what is repaired here.
    return (await environment.iptables.dump()).filter((line) => !line.includes('KUBE-USERSPACE-RETIRED'));
  }

  async function restored(expected: readonly string[] = intact): Promise<void> {
    let actual: string[] = [];
    const same = async () => {
      actual = await rules();
      return actual.join('\n') === expected.join('\n');
    };
    await waitFor('the rules are restored', same).catch(() => {});
    assert.deepEqual(actual, expected);
  }

  async function assertServed(): Promise<void> {
    for (const [agent, host, port] of [
      [environment.client, service.host, 80],
      [environment.node, service.host, 80],
      [environment.outside, NODE_ADDRESS, 30_080],
    ] as const) {
      assert.match((await agent.call('request', { host, port })).name, /^pod-/);
    }
  }

  test('a rule deleted from each chain, and our jumps deleted from each built-in chain, come back', async () => {
    for (const chain of ['PORTALS-CONTAINER', 'PORTALS-HOST', 'NODEPORT-CONTAINER', 'NODEPORT-HOST', 'LOCAL-PORTS']) {
      await environment.iptables.must(`-t nat -D KUBE-${chain} 1`);
    }
    for (const chain of ['KUBE-NODEPORT-NON-LOCAL', 'KUBE-DOORS']) await environment.iptables.must(`-D ${chain} 1`);
    await restored();
    for (const chain of ['PREROUTING', 'OUTPUT']) await environment.iptables.must(`-t nat -F ${chain}`);
    await environment.iptables.must('-F INPUT');
    await restored();
    await assertServed();
  });

  test('an open connection survives flush and repair', async () => {
    const echo = await environment.serve({ name: 'echo', ports: [{ port: 7, target: TCP.echo }] });
    const { connection } = await environment.client.call('open', echo);
    await environment.client.call('write', { connection, text: 'before' });
    assert.equal(await environment.client.call('read', { connection, bytes: 6 }), 'before');
    await environment.iptables.flush();
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
    shims.holdRestores(true);
    try {
      await environment.iptables.must('-t nat -F');
      const request = client.call('request', { host: service.host, port: 80, timeoutMs: PATIENCE_MS });
      assert.equal(await answer(), undefined);
      const entries = () => topology.node.output(['conntrack', '-L']);
      await waitFor('both pass the rules by', async () => {
        const lines = (await entries()).split('\n').filter((line) => line.includes('[UNREPLIED]'));
        return [service.host, host].every((each) => lines.some((line) => line.includes(` src=${each} `)));
      });
      shims.holdRestores(false);
      assert.match((await request).name, /^pod-/);
      await waitFor('an answer', async () => (await answer()) !== undefined);
    } finally {
      shims.holdRestores(false);
    }
    environment.manifests.remove('dns.yaml');
    await restored();
  });

  const onlyNft = FLAVOUR === 'nft' ? false : 'there are no such rules in legacy tables';
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
      await assertServed();
    } finally {
      await native('flush chain ip nat PREROUTING');
      await native('flush chain ip filter INPUT');
    }
    await restored();
  });

  test('nothing is written while nothing has changed, however often it is checked', async () => {
    shims.forget();
    const checks = () => shims.commands().filter((command) => command.includes('-save')).length;
    await waitFor('three checks of both tables', () => checks() >= 6);
    assert.deepEqual(shims.restores(), []);
  });

  test('a change of endpoints reaches new connections without any iptables program', async () => {
    const moving = await environment.serve({ name: 'moving', endpoints: [POD_ADDRESSES[0]] });
    shims.forget();
    environment.write({ ...moving, endpoints: [POD_ADDRESSES[1]] });
    await waitFor('pod-2 answers', async () => (await environment.client.call('request', moving)).name === 'pod-2');
    assert.deepEqual(shims.restores(), []);
    environment.manifests.remove('moving.yaml');
    await restored();
  });

  test('failing iptables turns /healthz red and it recovers; traffic flows throughout', async () => {
    const healthz = async () =>
      (await environment.node.call('httpGet', { url: 'http://127.0.0.1:10256/healthz' })).status;
    await waitFor('/healthz says 200', async () => (await healthz()) === 200);
    const failuresBefore = metric(
      await environment.metricsText(),
      'kubeproxy_sync_proxy_rules_iptables_restore_failures_total',
    );
    shims.fail(true);
    environment.write({ name: 'late', clusterIP: '10.96.3.1', ports: [{ port: 80, target: TCP.name }], endpoints: [] });
    await waitFor('/healthz says 503', async () => (await healthz()) === 503);
    await assertServed();
    shims.fail(false);
    await waitFor('/healthz says 200', async () => (await healthz()) === 200);
    await environment.waitForRules('10.96.3.1', 1);
    const failures = metric(
      await environment.metricsText(),
      'kubeproxy_sync_proxy_rules_iptables_restore_failures_total',
    );
    assert.ok(failures >= failuresBefore);
    environment.manifests.remove('late.yaml');
    await restored();
  });
});
