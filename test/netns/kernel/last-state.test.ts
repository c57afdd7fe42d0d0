import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { encodeObject } from '../../../src/kubernetes/objects/encode.ts';
import { decodeSaved, type KubernetesObject } from '../../../src/kubernetes/objects/kubernetes-object.ts';
import type { ServiceKey } from '../../../src/model/service.ts';
import { DISK } from '../../../src/state/disk.ts';
import { bodyOf } from '../../../src/state/format.ts';
import { StateFile } from '../../../src/state/state-file.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { finished } from '../../../src/util/wait.ts';
import { type FakePod, serveRuntime } from '../../fakes/fake-container-runtime.ts';
import { SlowDiskCgroup } from '../../support/cgroup.ts';
import { address, endpointAddress, service } from '../../support/model.ts';
import { cpuMsOf } from '../../support/processes.ts';
import { ApiServer } from '../api-server.ts';
import { isFast, metric, TCP, testEnvironment, UDP } from '../harness.ts';
import { serviceObjects, sliceObject } from '../manifests.ts';
import { PROGRAM, type ProxyProcess } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const SERVICES = 10_000;
const SLOW_BYTES_PER_SECOND = 24 << 10;
const NODE = 'node-1';
/** At which nobody listens. */
const NO_SERVER = 'http://127.0.0.1:1';
const FAULT = /^The last state cannot be written to disk/;
const SERVING = 'The state on disk is served until the API server answers';
const OVER = /^The last state is written to /;

function* cluster(count: number): Generator<KubernetesObject> {
  for (let index = 0; index < count; index++) {
    const key: ServiceKey = `test/service-${index}`;
    const clusterIPs = [address(`10.97.${index >> 8}.${index & 255}`)];
    yield { kind: 'Service', key, value: service({ key, uid: `uid-${index}`, clusterIPs }) };
    const group = {
      addresses: POD_ADDRESSES.map((each) => endpointAddress(each)),
      ports: [{ name: '', protocol: 'TCP', port: TCP.name }],
    } as const;
    yield { kind: 'EndpointSlice', key: `${key}-1`, value: { key: `${key}-1`, service: key, group } };
  }
}

/** As an API server has them. */
function served(name: string, clusterIP: string): object[] {
  const ports = [{ port: 80, target: TCP.name }];
  const endpoints = POD_ADDRESSES.map((each) => ({ address: each }));
  return [...serviceObjects({ name, clusterIP, ports }), sliceObject(name, ports, endpoints)];
}

/** Some 100 KB. */
function large(name: string, clusterIP: string): object[] {
  const ports = [{ port: 80, target: TCP.name }];
  const endpoints = Array.from({ length: 1_000 }, (_, index) => ({ address: `10.250.${index >> 8}.${index & 255}` }));
  return [...serviceObjects({ name, clusterIP, ports }), sliceObject(name, ports, endpoints)];
}

const faults = ({ log }: ProxyProcess) => log.filter(({ msg }) => FAULT.test(msg)).length;

/** Resolves with the process that has taken over. */
async function upgraded(proxy: ProxyProcess): Promise<number> {
  const line = await waitFor('the end of the upgrade', () =>
    proxy.log.find(({ msg }) => /^(Handed|Cannot hand) over/.test(msg)),
  );
  assert.match(line.msg, /^Handed over/, JSON.stringify(line));
  return Number(line['pid']);
}

/** Even if a test has failed before. */
function end(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {}
}

const hasStarted = (proxy: ProxyProcess) => waitFor('it has started', () => proxy.lines({ msg: 'Started' }).length > 0);

/** As in an earlier boot. */
async function write(file: StateFile, objects: Iterable<KubernetesObject>): Promise<void> {
  const saved = Array.from(objects, (each) => ({ object: encodeObject(each) }));
  const head = { node: NODE, source: 'kubernetes', bootId: 'another', program: '0.0.0', writtenAt: 0 } as const;
  await file.write(head, await finished(systemClock, bodyOf(saved)));
}

describe('the last state', () => {
  const environment = testEnvironment('fresh');
  let disk: string;

  before(() => {
    disk = mkdtempSync(join(tmpdir(), 'last-state-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${4 << 20},mode=700`, 'none', disk]);
  });
  after(() => {
    execFileSync('umount', ['--lazy', disk]);
    rmSync(disk, { recursive: true });
  });

  const start = (server: string, ...args: readonly string[]) =>
    environment.startProxy({
      source: ['--master', server],
      args: ['--hostname-override', NODE, '--state-dir', disk, '--state-wait', '100ms', ...args],
    });

  /** Its endpoints may come after its rules. */
  const answers = (host: string) =>
    waitFor(`an answer at ${host}`, () =>
      environment.client.call('request', { host, port: 80, timeoutMs: 1_000 }).catch(() => undefined),
    );

  test(`${SERVICES} Services from the disk have all of their rules as soon as from manifests, and are served`, async (context) => {
    const directory = environment.temporary('large');
    await write(new StateFile({ directory, files: DISK, clock: systemClock }), cluster(SERVICES));
    environment.manifests.write('all.yaml', [...cluster(SERVICES)].map(encodeObject));
    const readiness = async (source: readonly string[], args: readonly string[] = []) => {
      await environment.captured.flush();
      const said = () => environment.proxy.log.find((line) => line.msg.startsWith('Ready:'))?.msg;
      // Each look at the metrics would be CPU time of its own.
      const ready = async () => said() !== undefined;
      const proxy = await environment.startProxy({ source, args, ready, readyMs: 300_000 });
      const [msg = '', cpuMs] = [said(), cpuMsOf(proxy.pid)];
      context.diagnostic(`${source.join(' ')}: ${msg}, ${cpuMs} ms of CPU`);
      assert.match(msg, /^Ready: 10,000 Service ports/);
      assert.match((await environment.client.call('request', { host: '10.97.39.15', port: 80 })).name, /^pod-/);
      const portals = (await environment.captured.portals()).map(
        ({ address, port, name }) => `${name} ${address}:${port}`,
      );
      assert.equal(await proxy.stop(), 0);
      return { portals: portals.sort(), cpuMs };
    };
    const state = ['--hostname-override', NODE, '--state-dir', directory, '--state-wait', '100ms'];
    const fromManifests = await readiness(['--manifests', environment.manifests.directory]);
    const fromState = await readiness(['--master', NO_SERVER], state);
    environment.manifests.clear();
    assert.equal(fromState.portals.length, SERVICES);
    assert.ok(isDeepStrictEqual(fromState.portals, fromManifests.portals));
    // Not by the clock, for a machine may be busy with one of them and not with the other.
    assert.ok(fromState.cpuMs < 1.5 * fromManifests.cpuMs, `${fromState.cpuMs} ms, ${fromManifests.cpuMs} ms`);
  });

  test('a disk that is read-only, or full, is one fault and loses nothing else; when there is room, it is written', async () => {
    const server = await ApiServer.start(environment.topology.node);
    await server.set(...served('web', '10.96.3.1'));
    rmSync(join(disk, 'last-state'), { force: true });
    execFileSync('mount', ['-o', 'remount,ro', disk]);
    let proxy = await start(server.url);
    await answers('10.96.3.1');
    // It writes at its end.
    assert.equal(await proxy.stop(), 0);
    assert.equal(faults(proxy), 1, proxy.tail());

    execFileSync('mount', ['-o', 'remount,rw', disk]);
    const filler = join(disk, 'filler');
    assert.throws(() => {
      for (;;) appendFileSync(filler, Buffer.alloc(4_096));
    }, /ENOSPC/);
    proxy = await start(server.url);
    await server.set(...served('late', '10.96.3.2'));
    await answers('10.96.3.2');
    await waitFor('the fault', () => faults(proxy) > 0);
    assert.ok(!existsSync(join(disk, 'last-state')) && !existsSync(join(disk, 'last-state.new')));
    rmSync(filler);
    assert.equal(await proxy.stop(), 0);
    assert.equal(faults(proxy), 1, proxy.tail());
    assert.equal(proxy.log.filter(({ msg }) => OVER.test(msg)).length, 1, proxy.tail());
    assert.match(readFileSync(join(disk, 'last-state'), 'utf8'), /"name":"late"/);
    // What it has written serves the next start.
    proxy = await start(NO_SERVER);
    assert.ok(metric(await environment.metricsText(), 'userspace_proxy_state_age_seconds') > 0);
    await answers('10.96.3.2');
  });

  /** A file system of its own, on a disk of its own. */
  async function onDisk(
    context: TestContext,
    name: string,
    use: (directory: string, device: string) => Promise<void>,
  ): Promise<void> {
    const [image, directory] = [join(disk, `${name}-image`), join(disk, name)];
    writeFileSync(image, '');
    truncateSync(image, 2 << 20);
    execFileSync('mkfs.ext4', ['-q', image]);
    mkdirSync(directory);
    const { status, stderr } = spawnSync('mount', ['-o', 'loop', image, directory], { encoding: 'utf8' });
    if (status !== 0) return context.skip(`no loop devices here: ${stderr}`);
    chmodSync(directory, 0o700);
    const [device = ''] = execFileSync('stat', ['-c', '%Hd:%Ld', directory], { encoding: 'utf8' }).split('\n');
    try {
      await use(directory, device);
    } finally {
      execFileSync('umount', ['--lazy', directory]);
      rmSync(image);
    }
  }

  test('a disk that hangs delays no change, and the end of the program or an upgrade by seconds', async (context) =>
    await onDisk(context, 'hangs', async (directory) => {
      let successor: number | undefined;
      // Who writes to it waits in the kernel, where not even SIGKILL reaches, as with a disk that does not answer.
      const freeze = (how: '--freeze' | '--unfreeze') => spawnSync('fsfreeze', [how, directory], { encoding: 'utf8' });
      try {
        const server = await ApiServer.start(environment.topology.node);
        await server.set(...served('web', '10.96.3.1'));
        const proxy = await start(server.url, '--state-dir', directory);
        await answers('10.96.3.1');
        await hasStarted(proxy);
        assert.deepEqual(freeze('--freeze').status, 0);
        await server.set(...served('late', '10.96.3.2'));
        await answers('10.96.3.2');
        proxy.kill(isFast ? 'SIGHUP' : 'SIGTERM');
        const isStuck = () => proxy.waitsIn().some((place) => place.includes('percpu_rwsem'));
        await waitFor('it waits for the disk', isStuck);
        if (isFast) {
          await server.set(...served('later', '10.96.3.3'));
          await answers('10.96.3.3');
        }
        const fault = await waitFor('the fault', () => proxy.log.find(({ msg }) => FAULT.test(msg)));
        assert.equal(fault['err'], 'it takes longer than 5 s');
        if (isFast) successor = await upgraded(proxy);
        assert.ok(isStuck());
        freeze('--unfreeze');
        await waitFor('it ends', () => !proxy.running);
        assert.equal(proxy.lines({ err: fault['err'] }).length, 1, proxy.tail());
        if (successor === undefined) return;
        await answers('10.96.3.3');
        process.kill(successor, 'SIGTERM');
        const written = () => readFileSync(join(directory, 'last-state'), 'utf8').includes('"name":"later"');
        await waitFor('the successor writes it', () => existsSync(join(directory, 'last-state')) && written());
      } finally {
        freeze('--unfreeze');
        if (successor !== undefined) end(successor);
      }
    }));

  test('a slow disk delays no change, and is no fault', async (context) =>
    await onDisk(context, 'slow', async (directory, device) => {
      if (!SlowDiskCgroup.isPossible) return context.skip('no block I/O controller here');
      const group = new SlowDiskCgroup(environment.topology.node.name);
      group.limitWrites(device, SLOW_BYTES_PER_SECOND);
      try {
        const server = await ApiServer.start(environment.topology.node);
        await server.set(...served('web', '10.96.3.1'), ...large('large', '10.96.3.9'));
        const proxy = await start(server.url, '--state-dir', directory);
        group.add(proxy.pid);
        await answers('10.96.3.1');
        const isWriting = () => existsSync(join(directory, 'last-state.new'));
        await waitFor('it writes', isWriting);
        const begunAt = performance.now();
        await server.set(...served('later', '10.96.3.3'));
        await answers('10.96.3.3');
        assert.ok(isWriting());
        await waitFor('it has written', () => !isWriting());
        context.diagnostic(
          `${statSync(join(directory, 'last-state')).size} bytes in ${performance.now() - begunAt} ms`,
        );
        assert.match(readFileSync(join(directory, 'last-state'), 'utf8'), /"name":"web"/);
        assert.equal(await proxy.stop(), 0);
        assert.equal(faults(proxy), 0, proxy.tail());
        assert.match(readFileSync(join(directory, 'last-state'), 'utf8'), /"name":"later"/);
      } finally {
        // The helper may end a moment later.
        await waitFor('nobody is in the group', () => group.remove());
      }
    }));

  test('who reaches the server never waits, and never uses the file; nor does the successor of an upgrade', async () => {
    const directory = join(disk, 'unused');
    const server = await ApiServer.start(environment.topology.node);
    await server.set(...served('web', '10.96.3.1'));
    await write(new StateFile({ directory, files: DISK, clock: systemClock }), cluster(1));
    server.hang();
    const healthz = (path: string) =>
      environment.node.call('httpGet', { url: `http://127.0.0.1:10256${path}` }).catch(() => undefined);
    let proxy = await environment.startProxy({
      source: ['--master', server.url],
      // Longer than anything here may take.
      args: ['--hostname-override', NODE, '--state-dir', directory, '--state-wait', '1h'],
      ready: async () => (await healthz('/livez')) !== undefined,
    });
    // As kube-proxy: who has only begun is well, or a probe would end it before it can serve.
    const { status, body } = (await healthz('/healthz')) ?? {};
    assert.deepEqual([status, JSON.parse(body ?? '').apiServer.connected], [200, false]);
    assert.equal((await healthz('/livez'))?.status, 200);
    server.answerAgain();
    await answers('10.96.3.1');
    assert.equal(await proxy.stop(), 0);
    assert.deepEqual(proxy.lines({ msg: SERVING }), []);
    if (!isFast) return;

    rmSync(directory, { recursive: true });
    // So that whoever would use the file has it before the server's lists.
    proxy = await start(server.url, '--state-dir', directory, '--state-wait', '1ms');
    await answers('10.96.3.1');
    await hasStarted(proxy);
    server.hang();
    proxy.kill('SIGHUP');
    const begun = await waitFor('a successor', () => proxy.lines({ msg: 'Starting a successor' })[0]);
    const asks = async () =>
      (await environment.topology.node.run(['ss', '-Htnp', 'state', 'established'])).stdout.includes(
        `pid=${begun['pid']},`,
      );
    await waitFor('it asks the server', asks);
    assert.match(readFileSync(join(directory, 'last-state'), 'utf8'), /"name":"web"/);
    server.answerAgain();
    const successor = await upgraded(proxy);
    await answers('10.96.3.1');
    assert.deepEqual(proxy.lines({ msg: SERVING }), []);
    process.kill(successor, 'SIGKILL');
  });

  test('a health check port is served from the file, with what is on this node', async () => {
    const ports = [{ port: 80, target: TCP.name, nodePort: 30_181 }];
    const spec = { externalTrafficPolicy: 'Local', healthCheckNodePort: 30_182 };
    const objects = [
      ...serviceObjects({ name: 'local', clusterIP: '10.96.3.4', ports, loadBalancerIPs: ['192.0.2.80'], spec }),
      sliceObject('local', ports, [
        { address: POD_ADDRESSES[0], nodeName: NODE },
        { address: POD_ADDRESSES[1], nodeName: 'node-2' },
      ]),
    ].map((each) => decodeSaved(each) as KubernetesObject);
    const directory = join(disk, 'health-check');
    await write(new StateFile({ directory, files: DISK, clock: systemClock }), objects);
    await start(NO_SERVER, '--state-dir', directory);
    const answer = await waitFor('an answer of the health check port', () =>
      environment.node.call('httpGet', { url: 'http://127.0.0.1:30182/' }).catch(() => undefined),
    );
    assert.deepEqual([answer.status, JSON.parse(answer.body).localEndpoints], [200, 1]);
  });

  test('an upgrade without the server serves what its predecessor did, and follows the server when that is back', {
    skip: !isFast,
  }, async () => {
    const directory = join(disk, 'offline');
    const server = await ApiServer.start(environment.topology.node);
    await server.set(...served('web', '10.96.3.1'), ...served('gone', '10.96.3.2'));
    const args = ['--hostname-override', NODE, '--state-dir', directory, '--state-wait', '100ms'];
    const proxy = await environment.startProxy({ source: ['--master', server.url], args });
    await answers('10.96.3.1');
    await hasStarted(proxy);
    await server.stop();
    const healthz = async () =>
      JSON.parse((await environment.node.call('httpGet', { url: 'http://127.0.0.1:10256/healthz' })).body).apiServer;
    await waitFor('it is missed', async () => !(await healthz()).connected);
    proxy.kill('SIGHUP');
    const successor = await upgraded(proxy);
    try {
      assert.equal(proxy.lines({ msg: SERVING }).length, 1);
      for (const host of ['10.96.3.1', '10.96.3.2']) await answers(host);
      const back = await ApiServer.start(environment.topology.node, '127.0.0.1', {
        port: Number(new URL(server.url).port),
      });
      await back.set(...served('web', '10.96.3.1'), ...served('new', '10.96.3.3'));
      await answers('10.96.3.3');
      await answers('10.96.3.1');
      assert.equal((await healthz()).state, undefined);
      const over = 'The API server has answered; what it says replaces the state on disk';
      assert.equal(proxy.lines({ msg: over })[0]?.['removed'], 2, proxy.tail());
    } finally {
      end(successor);
    }
  });

  test('a broken manifest file keeps its last good state over a restart, and over an upgrade', async () => {
    const args = ['--state-dir', join(disk, 'of-files')];
    const { manifests, client } = environment;
    let proxy = await environment.startProxy({ args });
    const web = await environment.serve({ name: 'web' });
    await environment.serve({ name: 'other' });
    const isServed = async () => assert.match((await client.call('request', web)).name, /^pod-/);
    manifests.write('web.yaml', 'apiVersion: v1\nkind: [broken');
    const kept = { msg: 'A manifest file cannot be used; its last good state is kept' };
    await waitFor('it is broken', () => proxy.lines(kept).length > 0);
    assert.equal(await proxy.stop(), 0);
    proxy = await environment.startProxy({ args });
    assert.equal(proxy.lines(kept).length, 1);
    const status = [PROGRAM, 'status', '-o', 'json', '--control-socket', proxy.controlSocket];
    const { ok, findings } = JSON.parse((await environment.topology.node.run(status)).stdout);
    assert.deepEqual([ok, findings.length, findings[0].level], [true, 1, 'warn']);
    assert.match(findings[0].found, /^A manifest file cannot be used; its last good state is kept: /);
    await isServed();
    if (!isFast) return;
    await hasStarted(proxy);
    proxy.kill('SIGHUP');
    const successor = await upgraded(proxy);
    await waitFor('the old process ends', () => !proxy.running);
    await isServed();
    process.kill(successor, 'SIGKILL');
  });

  const dnsPods = (name: string, clusterIP: string, ...ips: readonly string[]): KubernetesObject[] => {
    const key: ServiceKey = `kube-system/${name}`;
    const ports = [{ name: '', protocol: 'UDP', port: 53, nodePort: 0 }] as const;
    const addresses = ips.map((ip, index) =>
      endpointAddress(ip, { nodeName: NODE, isVouchedFor: true, podName: `${name}-${index}` }),
    );
    const group = { addresses, ports: [{ name: '', protocol: 'UDP', port: UDP['udp-name'] }] } as const;
    return [
      { kind: 'Service', key, value: service({ key, clusterIPs: [address(clusterIP)], ports }) },
      { kind: 'EndpointSlice', key: `${key}-1`, value: { key: `${key}-1`, service: key, group } },
    ];
  };
  /** Nothing of a pod before the boot is there but its name. */
  const [dead, alive, moved] = ['10.244.1.77', POD_ADDRESSES[0], POD_ADDRESSES[1]] as const;
  const DNS_MOVED = [{ id: 'a', namespace: 'kube-system', name: 'dns-0', network: { ip: moved } }];
  const isAnswered = (host: string, pod: string) =>
    waitFor(`${pod} answers at ${host}`, async () => {
      const ask = environment.client.call('udpFlows', { host, port: 53, count: 1, timeoutMs: 1_000 });
      return isDeepStrictEqual(await ask.catch(() => undefined), { [pod]: 1 });
    });

  test('after a boot, DNS pods at new addresses: found by the container runtime, without it the one that is still there', async () => {
    const objects = [...dnsPods('dns', '10.97.9.1', dead), ...dnsPods('two', '10.97.9.2', dead, alive)];
    const directory = join(disk, 'booted');
    await write(new StateFile({ directory, files: DISK, clock: systemClock }), objects);
    const socket = join(disk, 'cri.sock');
    const runtime = await serveRuntime(socket, DNS_MOVED);
    try {
      await start(NO_SERVER, '--state-dir', directory, '--cri-endpoint', `unix://${socket}`);
      await isAnswered('10.97.9.1', 'pod-2');
      await isAnswered('10.97.9.2', 'pod-1');
    } finally {
      runtime.close();
    }
  });

  test('after a boot, a DNS pod that is made late is found before a client has asked in vain', async () => {
    const directory = join(disk, 'late');
    const file = new StateFile({ directory, files: DISK, clock: systemClock });
    await write(file, dnsPods('dns', '10.97.9.1', dead));
    const socket = join(disk, 'late.sock');
    const pods: FakePod[] = [];
    const runtime = await serveRuntime(socket, pods);
    try {
      const proxy = await start(NO_SERVER, '--state-dir', directory, '--cri-endpoint', `unix://${socket}`);
      const list = [PROGRAM, 'list', '-o', 'json', `--control-socket=${proxy.controlSocket}`];
      const hasListed = (ip: string) =>
        waitFor(`${ip} is listed`, async () => (await environment.topology.node.run(list)).stdout.includes(ip));
      await hasListed(dead);
      pods.push(...DNS_MOVED);
      await hasListed(moved);
      const ask = { host: '10.97.9.1', port: 53, count: 1, timeoutMs: 1_000 };
      assert.deepEqual(await environment.client.call('udpFlows', ask), { 'pod-2': 1 });
    } finally {
      runtime.close();
    }
  });

  test('after a boot, a cache in front of the API server says what it said before: DNS pods are found as without it', async () => {
    const objects = dnsPods('dns', '10.97.9.1', dead);
    const directory = join(disk, 'cached');
    await write(new StateFile({ directory, files: DISK, clock: systemClock }), objects);
    const cache = await ApiServer.start(environment.topology.node);
    await cache.set(...objects.map(encodeObject));
    const socket = join(disk, 'cached.sock');
    let successor: number | undefined;
    const runtime = await serveRuntime(socket, DNS_MOVED);
    try {
      // Twice, and a successor: what is written meanwhile must not pass for a state of this boot.
      for (let round = 0; round < 2; round++) {
        const args = ['--state-dir', directory, '--state-wait', '1h', '--cri-endpoint', `unix://${socket}`];
        const proxy = await start(cache.url, ...args);
        await isAnswered('10.97.9.1', 'pod-2');
        assert.deepEqual(proxy.lines({ msg: SERVING }), []);
        if (round === 0) assert.equal(await proxy.stop(), 0);
        if (round === 0 || !isFast) continue;
        await hasStarted(proxy);
        proxy.kill('SIGHUP');
        successor = await upgraded(proxy);
        await isAnswered('10.97.9.1', 'pod-2');
      }
      // The cluster says where it is, which counts more than what was found.
      await cache.set(...dnsPods('dns', '10.97.9.1', alive).map(encodeObject));
      await isAnswered('10.97.9.1', 'pod-1');
    } finally {
      if (successor !== undefined) end(successor);
      runtime.close();
    }
  });
});
