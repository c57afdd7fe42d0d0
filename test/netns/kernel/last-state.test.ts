import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { encodeObject } from '../../../src/kubernetes/objects/encode.ts';
import type { KubernetesObject } from '../../../src/kubernetes/objects/kubernetes-object.ts';
import type { ServiceKey } from '../../../src/model/service.ts';
import { DISK } from '../../../src/state/disk.ts';
import { bodyOf } from '../../../src/state/format.ts';
import { StateFile } from '../../../src/state/state-file.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { finished } from '../../../src/util/wait.ts';
import { serveRuntime } from '../../fakes/fake-container-runtime.ts';
import { address, endpointAddress, service } from '../../support/model.ts';
import { ApiServer } from '../api-server.ts';
import { isFast, metric, TCP, testEnvironment, UDP } from '../harness.ts';
import { serviceObjects, sliceObject } from '../manifests.ts';
import type { ProxyProcess } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const SERVICES = 1_000;
const NODE = 'node-1';
/** At which nobody listens. */
const NO_SERVER = 'http://127.0.0.1:1';
const FAULT = /^The last state cannot be written to disk/;
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
      environment.client.call('request', { host, port: 80 }).catch(() => undefined),
    );

  test(`${SERVICES} Services from the disk have all of their rules, and are served`, async (context) => {
    await write(new StateFile({ directory: disk, files: DISK, clock: systemClock }), cluster(SERVICES));
    const proxy = await start(NO_SERVER);
    const ready = await waitFor('it says how long it took', () =>
      proxy.log.find(({ msg }) => msg.startsWith('Ready:')),
    );
    context.diagnostic(ready.msg);
    assert.match(ready.msg, /^Ready: 1,000 Service ports/);
    const rules = await environment.iptables.rules('KUBE-PORTALS-CONTAINER');
    assert.equal(rules.filter((rule) => rule.includes(' -d 10.97.')).length, SERVICES);
    assert.match((await environment.client.call('request', { host: '10.97.3.231', port: 80 })).name, /^pod-/);
    assert.equal(await proxy.stop(), 0);
  });

  test('a disk that is read-only, or full, is one fault and loses nothing else; when there is room, it is written', async () => {
    const server = await ApiServer.start(environment.topology.node);
    const ports = [{ port: 80, target: TCP.name }];
    const endpoints = POD_ADDRESSES.map((each) => ({ address: each }));
    const of = (name: string, clusterIP: string) => [
      ...serviceObjects({ name, clusterIP, ports }),
      sliceObject(name, ports, endpoints),
    ];
    await server.set(...of('web', '10.96.3.1'));
    rmSync(join(disk, 'last-state'), { force: true });
    const faults = ({ log }: ProxyProcess) => log.filter(({ msg }) => FAULT.test(msg)).length;
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
    await server.set(...of('late', '10.96.3.2'));
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
    await isServed();
    if (!isFast) return;
    await waitFor('it has started', () => proxy.lines({ msg: 'Started' }).length > 0);
    proxy.kill('SIGHUP');
    const line = await waitFor('the end of the upgrade', () =>
      proxy.log.find(({ msg }) => /^(Handed|Cannot hand) over/.test(msg)),
    );
    assert.match(line.msg, /^Handed over/, JSON.stringify(line));
    await waitFor('the old process ends', () => !proxy.running);
    await isServed();
    process.kill(Number(line['pid']), 'SIGKILL');
  });

  test('after a boot, DNS pods at new addresses: found by the container runtime, without it the one that is still there', async () => {
    const [dead, alive, moved] = ['10.244.1.77', POD_ADDRESSES[0], POD_ADDRESSES[1]] as const;
    const of = (name: string, clusterIP: string, ...ips: readonly string[]): KubernetesObject[] => {
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
    const objects = [...of('dns', '10.97.9.1', dead), ...of('two', '10.97.9.2', dead, alive)];
    const directory = join(disk, 'booted');
    await write(new StateFile({ directory, files: DISK, clock: systemClock }), objects);
    const socket = join(disk, 'cri.sock');
    const runtime = await serveRuntime(socket, [
      { id: 'a', namespace: 'kube-system', name: 'dns-0', network: { ip: moved } },
    ]);
    try {
      await start(NO_SERVER, '--state-dir', directory, '--cri-endpoint', `unix://${socket}`);
      const ask = (host: string) =>
        environment.client.call('udpFlows', { host, port: 53, count: 1, timeoutMs: 1_000 }).catch(() => undefined);
      // Nothing of the file is there but its name.
      await waitFor('DNS', async () => isDeepStrictEqual(await ask('10.97.9.1'), { 'pod-2': 1 }));
      await waitFor('the other', async () => isDeepStrictEqual(await ask('10.97.9.2'), { 'pod-1': 1 }));
    } finally {
      runtime.close();
    }
  });
});
