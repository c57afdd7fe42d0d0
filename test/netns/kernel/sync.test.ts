import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isAlive } from '../../support/processes.ts';
import { isFast, metric, TCP, testEnvironment } from '../harness.ts';
import { CAPTURE, FLAVOUR, METHOD, Shims } from '../iptables.ts';
import { serviceObjects } from '../manifests.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const UNSYNCED = 'Cannot sync the rules in the kernel; the installed ones stay until a retry succeeds';
/** Of what is only so where programs write each change. */
const noPrograms = CAPTURE === 'nft' && 'elements of nft tables are written by no program';
const LOST = 'The rules in the kernel are not as they were installed; repairing them';

describe(`carrying changes into ${METHOD}`, () => {
  let shims: Shims;
  // Before the proxy is stopped, which writes to the end what it has begun.
  afterEach(() => shims.holdWrites(false));
  const environment = testEnvironment('fresh');

  before(async () => {
    shims = await Shims.create(environment.temporary('shims'));
  });

  const web = { name: 'web', ports: [{ port: 80, target: TCP.name }], endpoints: POD_ADDRESSES };

  test('200 changes in a row are written by few syncs, bounded by the minimal sync period', async () => {
    await environment.startProxy({ args: ['--iptables-min-sync-period', '1s'] });
    const syncs = async () =>
      metric(await environment.metricsText(), 'kubeproxy_sync_proxy_rules_duration_seconds_count', 'IPv4');
    const before = await syncs();
    const begun = performance.now();
    for (let number = 1; number <= 200; number++) {
      environment.write({ ...web, name: `burst-${number}`, clusterIP: `10.96.2.${number}` });
      await sleep(10);
    }
    await waitFor('all of them have rules', async () => (await environment.captured.portals()).length === 200);
    const done = (await syncs()) - before;
    const seconds = (performance.now() - begun) / 1000;
    // Two at once, then one a second.
    assert.ok(done <= 2 + Math.ceil(seconds), `${done} syncs in ${seconds} s`);
  });

  test('one Service that cannot be accepted keeps none of the others out, and is named once', async () => {
    await environment.startProxy({ args: ['--iptables-sync-period', '1s'] });
    const { ports } = web;
    const badObjects = [
      { name: 'x\n-A PREROUTING -j DROP', clusterIP: '10.96.4.1', ports },
      { name: 'x" -j DROP', clusterIP: '10.96.4.2', ports },
      { name: 'bad-port', clusterIP: '10.96.4.3', ports: [{ port: 99_999, target: 80 }] },
      { name: 'bad-address', clusterIP: '10.96.4.4; reboot', ports },
      { name: 'bad-type', clusterIP: 42, ports: 'none' },
      { name: 'loopback', clusterIP: '127.0.0.1', ports },
    ].map(({ name, ...spec }) => ({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name, namespace: 'test' },
      spec,
    }));
    const good = (name: string, clusterIP: string) => serviceObjects({ ...web, name, clusterIP });
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
    const addresses = (await environment.captured.portals()).map(({ address }) => address);
    assert.deepEqual(addresses.toSorted(), ['10.96.4.101', '10.96.4.102']);
    // Of text that a restore would have taken for another rule.
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

  test('the proxy survives programs that fail from the start, and installs the rules once they work', async () => {
    shims.fail(true);
    const clusterIP = environment.clusterIP();
    environment.write({ ...web, clusterIP });
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

  test('that fails for long is tried every 2 s while there are changes, and takes no rules for gone', {
    skip: noPrograms,
  }, async (t) => {
    const proxy = await environment.startProxy({
      args: ['--iptables-sync-period', '10m'],
      env: { PATH: shims.path },
    });
    await environment.serve(web);
    shims.fail(true);
    shims.forget();
    // The canary looks at tables that others have changed.
    await environment.iptables.must('-t filter -N OTHER');
    const change = () => {
      const clusterIP = environment.clusterIP();
      environment.write({ ...web, name: `late-${environment.number()}`, clusterIP });
      return clusterIP;
    };
    const tries = () => shims.commands().filter((command) => /-save -t filter/.test(command)).length;
    const begun = performance.now();
    let polls = 0;
    // Without changes, twelve retries take four minutes.
    await waitFor('twelve retries', () => {
      if (polls++ % 10 === 0) change();
      return tries() >= 12;
    });
    const seconds = (performance.now() - begun) / 1_000;
    t.diagnostic(`${tries()} retries in ${seconds.toFixed(1)} s`);
    assert.ok(tries() <= 3 + seconds / 2, `${tries()} retries in ${seconds} s`);
    const looks = () => shims.commands().filter((command) => / -S /.test(command)).length;
    await waitFor('three looks have failed', () => looks() > 3);
    shims.fail(false);
    await environment.waitForRules(change(), 1);
    assert.ok(proxy.lines({ msg: UNSYNCED }).length > 0);
    assert.deepEqual(proxy.lines({ msg: LOST }), []);
  });

  describe('by the helper process', { skip: noPrograms }, () => {
    async function start(...args: string[]): Promise<void> {
      await environment.startProxy({
        args: ['--iptables-sync-period', '500ms', '--iptables-min-sync-period', '100ms', ...args],
        env: { PATH: shims.path },
      });
    }

    const children = (pid: number) =>
      readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
        readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
      );

    const helper = () => children(environment.proxy.pid)[0]!;

    const healthz = async () =>
      (await environment.node.call('httpGet', { url: 'http://127.0.0.1:10256/healthz' })).status;

    /**
     * A Service whose rules are being written, by a program that hangs before it has written any. Gives its address.
     */
    async function writeWhileHeld(): Promise<string> {
      const clusterIP = environment.clusterIP();
      shims.holdWrites(true);
      shims.forget();
      environment.write({ ...web, name: 'late', clusterIP });
      await waitFor('iptables hangs', () => shims.writes().length > 0);
      return clusterIP;
    }

    test('an iptables that hangs turns /healthz red while traffic flows; killed, it is run again', async () => {
      await start();
      const { host } = await environment.serve(web);
      const clusterIP = await writeWhileHeld();
      await waitFor('/healthz says 503', async () => (await healthz()) === 503);
      assert.match((await environment.client.call('request', { host, port: 80 })).name, /^pod-/);
      // As the deadline does it.
      for (const pid of children(helper())) process.kill(-pid, 'SIGKILL');
      shims.holdWrites(false);
      await environment.waitForRules(clusterIP, 1);
      await waitFor('/healthz says 200', async () => (await healthz()) === 200);
    });

    test('that hangs delays an upgrade, and the old process serves until then', { skip: !isFast }, async () => {
      await start();
      const clusterIP = await writeWhileHeld();
      process.kill(environment.proxy.pid, 'SIGHUP');
      const said = (msg: string) => environment.proxy.lines({ msg })[0];
      const successor = Number((await waitFor('a successor', () => said('Starting a successor')))['pid']);
      try {
        // More than it takes until the successor wants to have everything. Red or not, there must be an answer.
        for (let count = 0; count < 300; count++) await healthz();
        shims.holdWrites(false);
        await waitFor('the upgrade', () => said('Handed over to the successor'));
        await waitFor('the old process ends', () => !isAlive(environment.proxy.pid));
        await environment.waitForRules(clusterIP, 1);
        await waitFor('/healthz of the new one', () => healthz().catch(() => 0));
      } finally {
        process.kill(successor, 'SIGKILL');
      }
    });

    test('with SIGTERM for all processes at once, the rules that are being written are written to the end', async () => {
      await start();
      await environment.serve(web);
      const clusterIP = await writeWhileHeld();
      const [main, pid] = [environment.proxy.pid, helper()];
      for (const one of [pid, main]) process.kill(one, 'SIGTERM');
      shims.holdWrites(false);
      assert.deepEqual(await environment.proxy.exited(), { code: 0, signal: null });
      await waitFor('the helper has ended', () => !isAlive(pid));
      await environment.waitForRules(clusterIP, 1, 0);
    });
  });
});

// It has legacy tables whatever those of the other tests are.
const again = FLAVOUR === 'legacy' && 'it runs with the tests of iptables-nft';

describe('the lock of iptables-legacy', { skip: noPrograms || again }, () => {
  const environment = testEnvironment('fresh', 'legacy');

  before(() => {
    // One for all namespaces otherwise: other tests must neither wait nor be waited for.
    process.env['XTABLES_LOCKFILE'] = environment.temporary('xtables.lock');
  });
  after(() => {
    delete process.env['XTABLES_LOCKFILE'];
  });

  test('held by another program over whole syncs, costs nothing but their delay', async () => {
    const shims = await Shims.create(environment.temporary('shims'));
    await environment.startProxy({ args: ['--iptables-sync-period', '1s'], env: { PATH: shims.path } });
    const ports = [{ port: 80, target: TCP.name }];
    const web = await environment.serve({ name: 'web', ports });
    const { client, proxy } = environment;
    const load = await client.call('startLoad', { ...web, concurrency: 2 });
    const holder = spawn('flock', ['--no-fork', process.env['XTABLES_LOCKFILE']!, 'sh', '-c', 'echo held; exec cat']);
    await once(holder.stdout, 'data');
    const locked = () => proxy.log.filter((line) => /locked by another program/.test(JSON.stringify(line)));
    const healthz = async () =>
      (await environment.node.call('httpGet', { url: 'http://127.0.0.1:10256/healthz' })).status;
    const late = { name: 'late', clusterIP: environment.clusterIP(), ports, endpoints: POD_ADDRESSES };
    try {
      environment.write(late);
      await waitFor('syncs fail', () => locked().length > 0);
      await waitFor('/healthz says 503', async () => (await healthz()) === 503);
      // By another lock, so that there is something to look at.
      const env = { XTABLES_LOCKFILE: environment.temporary('another.lock') };
      await environment.topology.node.output(['iptables-legacy', '-t', 'filter', '-N', 'OTHER'], { env });
      shims.forget();
      const looks = () => shims.commands().filter((command) => / -S /.test(command)).length;
      await waitFor('two looks have failed', () => looks() > 2);
    } finally {
      holder.kill();
    }
    await environment.waitForRules(late.clusterIP, 1);
    await waitFor('/healthz says 200', async () => (await healthz()) === 200);
    assert.match((await client.call('request', { host: late.clusterIP, port: 80 })).name, /^pod-/);
    assert.deepEqual((await client.call('stopLoad', { load })).failures, {});
    assert.deepEqual(
      locked().map(({ level }) => level),
      ['error'],
      'told once',
    );
    assert.deepEqual(proxy.lines({ msg: LOST }), []);
    assert.deepEqual(
      proxy.log.filter(({ msg }) => msg.startsWith('The kernel refuses a rule')),
      [],
    );
  });
});

describe(`an iptables-${FLAVOUR} that lacks an extension`, { skip: noPrograms }, () => {
  const environment = testEnvironment('fresh');
  const web = {
    name: 'web',
    clusterIP: '10.96.5.1',
    ports: [{ port: 80, target: TCP.name, nodePort: 30_080 }],
    endpoints: POD_ADDRESSES,
  };

  /** Starts a proxy that serves {@link web}, on a machine without this file. */
  async function startWithout(extension: string, ready?: () => Promise<boolean>): Promise<void> {
    const [installed = ''] = globSync('/usr/lib/*/xtables');
    const folder = environment.temporary(`without-${extension}`);
    mkdirSync(folder);
    const others = readdirSync(installed).filter((file) => file !== extension);
    for (const file of others) symlinkSync(join(installed, file), join(folder, file));
    environment.write(web);
    await environment.startProxy({ env: { XTABLES_LIBDIR: folder }, ...(ready && { ready }) });
  }

  for (const [what, extension, pattern] of [
    ['the match mark', 'libxt_mark.so', / -m mark /],
    ['the target REJECT', 'libipt_REJECT.so', / -j REJECT /],
  ] as const) {
    test(`leaves out the rules with ${what}, names them, and serves by all others`, async () => {
      await startWithout(extension);
      await environment.waitForRules(web.clusterIP, 1);
      const refused = environment.proxy.log.filter(({ msg }) => msg.startsWith('The kernel refuses a rule'));
      assert.ok(refused.length > 0 && refused.every(({ rule }) => pattern.test(String(rule))), JSON.stringify(refused));
      assert.ok(!(await environment.captured.ours()).some((line) => pattern.test(line)));
      for (const agent of [environment.client, environment.node]) {
        assert.match((await agent.call('request', { host: web.clusterIP, port: 80 })).name, /^pod-/);
      }
      assert.match((await environment.outside.call('request', { host: NODE_ADDRESS, port: 30_080 })).name, /^pod-/);
    });
  }

  for (const match of ['addrtype', 'conntrack']) {
    test(`says that nothing is served without the match ${match}`, async () => {
      const told = () => environment.proxy.lines({ level: 'error' }).some(({ err }) => String(err).includes(match));
      await startWithout(`libxt_${match}.so`, async () => told());
      const portals = await environment.iptables.save();
      assert.ok(!portals.some((line) => line.includes(web.clusterIP)), portals.join('\n'));
    });
  }
});
