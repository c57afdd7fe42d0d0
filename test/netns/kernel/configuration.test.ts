import assert from 'node:assert/strict';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { isAlive } from '../../support/processes.ts';
import { isFast, metric, TCP, testEnvironment } from '../harness.ts';
import { PROGRAM, ProxyProcess } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const HEAD = 'apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n';

describe('flags and configuration file of the whole program', () => {
  const environment = testEnvironment('fresh');

  const configuration = (text: string) => {
    const path = environment.temporary('config.conf');
    // In one step: a program that watches the file must not read half of it.
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
    return path;
  };

  const conntrack = async (name: string) =>
    Number(await environment.topology.node.output(['cat', `/proc/sys/net/netfilter/nf_conntrack_${name}`]));

  test('flags of other modes are named in one warning, and Services are served', async () => {
    await environment.startProxy({ args: ['--ipvs-strict-arp', '--iptables-masquerade-bit=15', '--log_dir', '/tmp'] });
    const service = await environment.serve({ name: 'web' });
    assert.match((await environment.client.call('request', service)).name, /^pod-/);
    const told = environment.proxy.log.filter((line) => line.level === 'warn' && /without effect/.test(line.msg));
    assert.equal(told.length, 1);
    assert.match(
      told[0]?.msg ?? '',
      /--iptables-masquerade-bit \(iptables mode\), --ipvs-strict-arp \(ipvs mode\), --log-dir/,
    );
  });

  test('the timeouts of conntrack are set as kube-proxy sets them', async () => {
    await environment.startProxy({ args: ['--conntrack-udp-timeout=31s', '--conntrack-tcp-be-liberal'] });
    assert.equal(await conntrack('tcp_timeout_established'), 86_400);
    assert.equal(await conntrack('tcp_timeout_close_wait'), 3_600);
    assert.equal(await conntrack('udp_timeout'), 31);
    assert.equal(await conntrack('tcp_be_liberal'), 1);
  });

  test('--init-only sets them and ends', async () => {
    await environment.topology.node.run([PROGRAM, '--init-only', '--conntrack-udp-timeout=32s']);
    assert.equal(await conntrack('udp_timeout'), 32);
  });

  test('a congestion control that the kernel does not have ends the program with one sentence', async () => {
    const args = ['--manifests', environment.manifests.directory, '--tcp-congestion-control', 'no-such-one'];
    const program = new ProxyProcess(environment.topology.node, args);
    assert.deepEqual(await program.exited(), { code: 1, signal: null });
    const says = program.log.map(({ msg }) => msg).filter((line) => line.includes('no-such-one'));
    assert.equal(says.length, 1, program.log.map(({ msg }) => msg).join('\n'));
    assert.match(says[0] ?? '', /: --tcp-congestion-control no-such-one: this kernel has no .*; choose another/);
  });

  test('a wrong update of the configuration file changes nothing; a right one ends the program with 1', async () => {
    const path = configuration(`${HEAD}iptables: {syncPeriod: 20s}\n`);
    await environment.startProxy({ args: ['--config', path] });
    configuration(`${HEAD}iptables: {syncPeriods: 10s}\n`);
    await waitFor('the error', () =>
      environment.proxy.log.some((line) => /configuration file is wrong/.test(line.msg)),
    );
    const told = environment.proxy.log.find((line) => /configuration file is wrong/.test(line.msg));
    assert.match(String(told?.['err']), /^--config \S+:3: unknown field "iptables\.syncPeriods": did you mean/);
    assert.ok(environment.proxy.running);
    configuration(`${HEAD}iptables: {syncPeriod: 10s}\n`);
    assert.deepEqual(await environment.proxy.exited(), { code: 1, signal: null });
    assert.ok(
      environment.proxy.log.some((line) =>
        /content of the proxy server's configuration file was updated/.test(line.msg),
      ),
    );
    assert.ok((await environment.iptables.save('nat')).some((line) => line.includes('KUBE-PORTALS-CONTAINER')));
  });

  test('under a service manager, a changed file starts a successor, which keeps the connections', {
    skip: !isFast,
  }, async () => {
    const path = configuration(`${HEAD}logging: {verbosity: 2}\n`);
    await environment.startProxy({ args: ['--config', path], env: { NOTIFY_SOCKET: '/nowhere/notify' } });
    const ports = [{ port: 7, target: TCP.echo }];
    const echo = await environment.serve({ name: 'echo', ports });
    const { connection } = await environment.client.call('open', echo);
    configuration(`${HEAD}ipvs: {strictARP: true}\n`);
    const handedOver = () => environment.proxy.lines({ msg: 'Handed over to the successor' })[0];
    const { pid } = await waitFor('the new process', handedOver);
    try {
      await waitFor('the old process ends', () => !isAlive(environment.proxy.pid));
      await environment.client.call('write', { connection, text: 'still' });
      assert.equal(await environment.client.call('read', { connection, bytes: 5 }), 'still');
      assert.ok(environment.proxy.log.some((line) => /without effect.*ipvs\.strictARP/.test(line.msg)));
    } finally {
      process.kill(Number(pid), 'SIGKILL');
    }
  });

  test('a changed file whose successor cannot start is not in force, which shows, until one can', {
    skip: !isFast,
  }, async () => {
    const path = configuration(`${HEAD}logging: {verbosity: 2}\n`);
    await environment.startProxy({ args: ['--config', path], env: { NOTIFY_SOCKET: '/nowhere/notify' } });
    const get = async (what: string) =>
      (await environment.node.call('httpGet', { url: `http://127.0.0.1:10249${what}` })).body;
    const isInForce = async () => {
      const shown = {
        metric: metric(await get('/metrics'), 'userspace_proxy_config_in_force') === 1,
        configz: JSON.parse(await get('/configz'))['kube-userspace-proxy'].inForce,
        page: !(await get('/')).includes(`${path} has changed and is not in force`),
      };
      assert.equal(new Set(Object.values(shown)).size, 1, JSON.stringify(shown));
      return shown.metric;
    };
    assert.equal(await isInForce(), true);
    const { directory } = environment.manifests;
    renameSync(directory, `${directory}.away`);
    configuration(`${HEAD}udpIdleTimeout: 333ms\n`);
    await waitFor(
      'the failure',
      () => environment.proxy.lines({ msg: 'Cannot hand over to a successor; this process serves as before' })[0],
    );
    assert.equal(await isInForce(), false);
    renameSync(`${directory}.away`, directory);
    const handedOver = () => environment.proxy.lines({ msg: 'Handed over to the successor' })[0];
    const { pid } = await waitFor('the new process', handedOver);
    try {
      await waitFor('the file is in force', async () => /"333ms"/.test(await get('/configz').catch(() => '')));
      assert.equal(await isInForce(), true);
    } finally {
      process.kill(Number(pid), 'SIGKILL');
    }
  });

  test('--config starts with the file that --write-config-to wrote', async () => {
    const path = configuration('');
    const { node } = environment.topology;
    await node.run([PROGRAM, '--write-config-to', path, '--metrics-bind-address=127.0.0.1:10300']);
    assert.match(readFileSync(path, 'utf8'), /^metricsBindAddress: "127\.0\.0\.1:10300"$/m);
    await environment.startProxy({
      args: ['--config', path],
      ready: async () => (await node.run(['curl', '--silent', 'http://127.0.0.1:10300/healthz'])).stdout === 'ok',
    });
  });

  test('an empty address switches the health and metrics servers off', async () => {
    const ports = [{ port: 80, target: TCP.name }];
    environment.write({ name: 'web', clusterIP: environment.clusterIP(), ports, endpoints: POD_ADDRESSES });
    await environment.startProxy({
      args: ['--healthz-bind-address', '', '--metrics-bind-address', ''],
      ready: async () => (await environment.iptables.rules('KUBE-PORTALS-CONTAINER')).length === 1,
    });
    for (const port of [10_249, 10_256]) {
      await assert.rejects(environment.node.call('request', { host: '127.0.0.1', port }), { code: 'ECONNREFUSED' });
    }
  });
});
