import assert from 'node:assert/strict';
import { mkdirSync, symlinkSync } from 'node:fs';
import { before, describe, test } from 'node:test';
import { isFast, metric, NAMING, type Served, TCP, testEnvironment, UDP } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import { addIpv6 } from '../ipv6.ts';
import { PROGRAM } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

/** What is promised is 2 s and the time of a sync; a machine that does much else is slower. */
const RESTORED_WITHIN_MS = 20_000;

/** Hides the kernel's modules, and becomes the program behind it. */
const WITHOUT_MODULES = [
  'unshare',
  '--mount',
  'sh',
  '-c',
  'for dir in /lib/modules /usr/lib/modules; do [ ! -d $dir ] || mount -t tmpfs none $dir; done; exec "$@"',
  'sh',
];

describe('a node without iptables, whose proxy captures by an nft table', () => {
  const environment = testEnvironment(undefined, FLAVOUR, 'nft');
  let service: Served;
  let path: string;

  before(async () => {
    await addIpv6(environment);
    // Some ask again and again, until all are refused at once.
    await environment.topology.node.refuseAtAnyRate();
    path = environment.temporary('bin');
    mkdirSync(path);
    // Of all programs, the proxy gets nft alone.
    for (const name of ['nft']) symlinkSync(await which(name), `${path}/${name}`);
  });

  async function which(name: string): Promise<string> {
    const found = await environment.topology.node.output(['sh', '-c', `command -v ${name}`]);
    return found.trim();
  }

  const start = () =>
    environment.startProxy({
      // An hour until the next verification: what is repaired before was noticed.
      args: ['--iptables-sync-period', '1h'],
      through: [...WITHOUT_MODULES, 'env', `PATH=${path}`],
    });

  const portals = () => environment.captured.ours();

  test('serves Services from its start on', async () => {
    await start();
    service = await environment.serve({
      name: 'web',
      ports: [
        { name: 'http', port: 80, target: TCP.name, nodePort: 30_080 },
        { name: 'dns', port: 53, target: UDP['udp-name'], protocol: 'UDP', nodePort: 30_053 },
      ],
    });
    await environment.assertServed(service);
  });

  test('takes up changes: a Service without endpoints is refused, and one that has gone is no more', async () => {
    const other = await environment.serve({ name: 'other', ports: NAMING });
    await environment.until(environment.client, other.host, 80, ['pod-1', 'pod-2', 'pod-3']);
    environment.write({ ...other, endpoints: [] });
    await environment.until(environment.client, other.host, 80, ['ECONNREFUSED']);
    environment.manifests.remove('other.yaml');
    await environment.waitForRules(other.host, 0);
    await environment.assertServed(service);
  });

  test('writes nothing when a Service whose clients wait loses its endpoints and gets others', async () => {
    const annotations = { 'kube-userspace-proxy/wait-for-endpoints': '1m' };
    const waiting = await environment.serve({ name: 'waiting', annotations });
    const syncs = async () => {
      const name = 'kubeproxy_sync_proxy_rules_duration_seconds_count';
      return metric(await environment.metricsText(), name, 'ip_family="IPv4"');
    };
    const waits = async () => metric(await environment.metricsText(), 'userspace_proxy_clients_waiting');
    const list = [PROGRAM, 'list', 'test/waiting', '-o', 'json', `--control-socket=${environment.proxy.controlSocket}`];
    const state = async () => JSON.parse(await environment.topology.node.output(list)).services[0].state;
    const before = await syncs();
    environment.write({ ...waiting, endpoints: [] });
    await waitFor('it sleeps', async () => (await state()) === 'idle');
    const answer = environment.client.call('request', { ...waiting, timeoutMs: 60_000 });
    await waitFor('the client waits', async () => (await waits()) === 1);
    assert.equal(await state(), 'waiting');
    environment.write({ ...waiting, endpoints: POD_ADDRESSES.slice(1, 2) });
    assert.equal((await answer).name, 'pod-2');
    assert.equal(await syncs(), before);
    environment.manifests.remove('waiting.yaml');
    await environment.waitForRules(waiting.host, 0);
  });

  test('has its table back soon after all tables were flushed, and idle connections go on', async (t) => {
    const echo = await environment.serve({ name: 'echo', ports: [{ port: 7, target: TCP.echo }] });
    const { connection } = await environment.client.call('open', echo);
    const before = await portals();
    const begun = performance.now();
    await environment.nft.flush();
    await waitFor('the elements are back', async () => (await portals()).join() === before.join());
    const ms = performance.now() - begun;
    t.diagnostic(`after ${ms.toFixed(0)} ms`);
    assert.ok(ms < RESTORED_WITHIN_MS, `${ms} ms`);
    await environment.client.call('write', { connection, text: 'after!' });
    assert.equal(await environment.client.call('read', { connection, bytes: 6 }), 'after!');
    await environment.assertServed(service);
  });

  const { skip } = isFast ? { skip: false } : { skip: 'only the fast engine hands connections over' };
  test('is upgraded without a gap', { skip }, async () => {
    const echo = await environment.serve({ name: 'echo', ports: [{ port: 7, target: TCP.echo }] });
    const { connection } = await environment.client.call('open', echo);
    const before = await portals();
    const requests = environment.client.call('requests', { ...service, count: 200 });
    environment.proxy.kill('SIGHUP');
    const begun = () => environment.proxy.lines({ msg: 'Starting a successor' })[0];
    const successor = Number((await waitFor('a successor', begun))['pid']);
    await waitFor('it to serve', () => environment.proxy.lines({ msg: 'Handed over to the successor' })[0]);
    assert.deepEqual((await requests).failures, {});
    assert.deepEqual(await portals(), before);
    await environment.client.call('write', { connection, text: 'after!' });
    assert.equal(await environment.client.call('read', { connection, bytes: 6 }), 'after!');
    process.kill(successor, 'SIGKILL');
    await environment.proxy.exited();
  });

  test('after a crash, Services keep their local ports, and no element is written anew', async () => {
    await start();
    const before = await portals();
    environment.proxy.kill('SIGKILL');
    await environment.proxy.exited();
    assert.deepEqual(await portals(), before, 'the table stays');
    await start();
    assert.deepEqual(await portals(), before);
    await environment.assertServed(service);
  });

  test('names the table that does not hold when somebody asks about a client', async () => {
    const explained = await environment.topology.node.run([
      PROGRAM,
      'explain',
      `${service.host}:80`,
      `--control-socket=${environment.proxy.controlSocket}`,
    ]);
    assert.match(explained.stdout, /takes it; the next connection goes to/, explained.stdout + explained.stderr);
    assert.match(explained.stdout, /ip kube-userspace-proxy/);
    assert.match(explained.stdout, /^Rules of other programs are not looked at/m);
  });

  test('passes a table of another program that drops by the line of the documents, and a check names its chain', async (t) => {
    const firewall = [
      'table inet filter {',
      'chain input { type filter hook input priority 0; policy drop; iif lo accept; ct state established,related accept; }',
      '}',
    ];
    const { node } = environment.topology;
    await node.output(['nft', '-f', '-'], { input: `${firewall.join('\n')}\n` });
    t.after(() => node.output(['nft', 'delete', 'table', 'inet', 'filter']));
    const ask = { host: service.host, port: 80, timeoutMs: 500 };
    await assert.rejects(environment.client.call('request', ask));
    const check = ['check', '--capture', 'nft', '--manifests', environment.manifests.directory];
    const checked = async () => (await node.run(['env', `PATH=${path}:/usr/bin`, PROGRAM, ...check])).stdout;
    const [, insert] =
      /inet filter input drops connections to Services and .* → (nft insert .*), also/.exec(await checked()) ?? [];
    assert.equal(insert, 'nft insert rule inet filter input meta mark & 0x2000 == 0x2000 accept');
    await node.output(['nft', 'insert', 'rule', 'inet', 'filter', 'input', 'ct status dnat accept']);
    assert.match(await checked(), /inet filter input drops connections to health check node ports/);
    await node.output(['nft', ...insert.split(' ').slice(1)]);
    assert.doesNotMatch(await checked(), /inet filter input drops/);
    // Without the rule for Services, and with a rule at the end in place of the policy.
    const closing = [
      'flush chain inet filter input',
      'add chain inet filter input { policy accept; }',
      'add rule inet filter input ct state established,related accept',
      'add rule inet filter input counter log prefix "x" drop',
    ];
    await node.output(['nft', '-f', '-'], { input: `${closing.join('\n')}\n` });
    assert.match(await checked(), /inet filter input drops connections to Services/);
    await node.output(['nft', ...insert.split(' ').slice(1)]);
    assert.doesNotMatch(await checked(), /inet filter input drops/);
    await environment.assertServed(service);
  });

  test('is cleaned up, and nothing is left', async () => {
    await environment.proxy.stop();
    await environment.topology.node.output([...WITHOUT_MODULES, 'env', `PATH=${path}`, PROGRAM, '--cleanup']);
    assert.equal(await environment.topology.node.output(['nft', 'list', 'ruleset']), '');
  });
});

describe('a proxy that begins to capture in another way', () => {
  const environment = testEnvironment('fresh');

  test('keeps local ports, and leaves nothing of the way before', async () => {
    await environment.startProxy({ capture: 'iptables' });
    const { host } = await environment.serve({ name: 'web' });
    const { iptables, nft } = environment;
    const port = await environment.localPort('test/web');
    for (const [capture, by, other] of [
      ['nft', nft, iptables],
      ['iptables', iptables, nft],
    ] as const) {
      await environment.proxy.stop();
      await environment.startProxy({ capture });
      await waitFor(`only ${capture} captures`, async () => {
        const [portal] = await by.portals();
        return portal?.localPort === port && (await other.ours()).length === 0;
      });
      assert.match((await environment.client.call('request', { host, port: 80 })).name, /^pod-/);
    }
  });
});
