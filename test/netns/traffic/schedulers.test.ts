import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SCHEDULERS, type SchedulerName } from '../../../src/model/scheduler.ts';
import type { ServiceView } from '../../../src/model/view.ts';
import { isAlive } from '../../support/processes.ts';
import { isFast, TCP, testEnvironment, UDP } from '../harness.ts';
import { serviceObjects, weightedSliceObject } from '../manifests.ts';
import { PROGRAM } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const [LIGHT, HEAVY] = POD_ADDRESSES;
const PORT = 80;
const PORTS = [
  { name: 'tcp', port: PORT, target: TCP.echo },
  { name: 'udp', port: PORT, target: UDP['udp-echo'], protocol: 'UDP' },
] as const;

/** Held open. `undefined`: by chance. */
const HELD = 12;
const EXPECTED: Readonly<Record<SchedulerName, readonly [light: number, heavy: number] | undefined>> = {
  rr: [6, 6],
  random: undefined,
  wrr: [3, 9],
  lc: [6, 6],
  wlc: [3, 9],
  sed: [3, 9],
  nq: [3, 9],
  sh: undefined,
  mh: undefined,
  twos: undefined,
  fo: [0, 12],
};

describe('schedulers, through the whole program', { timeout: 900_000 }, () => {
  const environment = testEnvironment();
  const clusterIPs = new Map<SchedulerName, string>();
  /** The process that serves now. */
  let pid: number;

  before(async () => {
    for (const scheduler of SCHEDULERS) {
      const clusterIP = environment.clusterIP();
      clusterIPs.set(scheduler, clusterIP);
      const annotations = { 'kube-userspace-proxy/scheduler': scheduler };
      environment.manifests.write(`${scheduler}.yaml`, [
        ...serviceObjects({ name: scheduler, clusterIP, ports: PORTS, annotations }),
        weightedSliceObject(scheduler, PORTS, LIGHT, 1),
        weightedSliceObject(scheduler, PORTS, HEAVY, 3),
      ]);
    }
    // A flow counts as open for as long as the test takes.
    const args = ['--udp-timeout', '1h', '--udp-first-reply-timeout', '1h'];
    ({ pid } = await environment.startProxy({ args }));
    for (const clusterIP of clusterIPs.values()) await environment.waitForRules(clusterIP, PORTS.length);
  });

  after(() => isAlive(pid) && process.kill(pid, 'SIGKILL'));

  async function command(...argv: string[]): Promise<string> {
    return await environment.topology.node.output([
      ...[PROGRAM, ...argv],
      `--control-socket=${environment.proxy.controlSocket}`,
    ]);
  }

  async function viewOf(service: string, portName: string): Promise<ServiceView> {
    const { services } = JSON.parse(await command('list', 'test', '-o', 'json')) as { services: ServiceView[] };
    return services.find((each) => each.service === service && each.portName === portName) ?? assert.fail(service);
  }

  /** Open connections or flows of each pod. */
  async function openOf(service: string, portName: string): Promise<readonly number[]> {
    const { listeners } = await viewOf(service, portName);
    const endpoints = listeners[0]?.endpoints ?? [];
    return [LIGHT, HEAVY].map((pod) => {
      return endpoints.find(({ endpoint }) => endpoint.address === pod)?.counters?.active ?? assert.fail(pod);
    });
  }

  /** Resolves when the endpoint has answered, so that each connection finds the one before it counted. */
  async function connect(host: string): Promise<void> {
    const { connection } = await environment.client.call('open', { host, port: PORT });
    await environment.client.call('write', { connection, text: '?' });
    assert.equal(await environment.client.call('read', { connection, bytes: 1 }), '?');
  }

  async function flow(host: string): Promise<void> {
    const { socket } = await environment.client.call('udpOpen', {});
    await environment.client.call('udpSend', { socket, host, port: PORT, text: '?' });
    assert.notEqual(await environment.client.call('udpReceive', { socket }), undefined);
  }

  for (const scheduler of SCHEDULERS) {
    for (const [portName, begin] of [
      ['tcp', connect],
      ['udp', flow],
    ] as const) {
      test(`${scheduler} chooses the endpoints of ${portName}, by weight where it heeds weights`, async () => {
        for (let index = 0; index < HELD; index++) await begin(clusterIPs.get(scheduler) ?? '');
        const open = await openOf(scheduler, portName);
        const expected = EXPECTED[scheduler];
        if (expected !== undefined) assert.deepEqual(open, expected);
        else assert.equal((open[0] ?? 0) + (open[1] ?? 0), HELD);
        // All connections are of one client.
        if (scheduler === 'sh' || scheduler === 'mh') assert.ok(open.includes(HELD), `${open}`);
        const view = await viewOf(scheduler, portName);
        assert.equal(view.scheduler, scheduler);
        assert.deepEqual(
          view.listeners[0]?.endpoints.map(({ weight }) => weight),
          [1, 3],
        );
      });
    }
  }

  test('the list has the names and weights in the columns of ipvsadm', async () => {
    const text = await command('list', 'test');
    for (const [scheduler, clusterIP] of clusterIPs) {
      assert.match(text, new RegExp(`^TCP  ${clusterIP}:${PORT} ${scheduler} `, 'm'));
    }
    assert.match(text, new RegExp(`^  -> ${HEAVY}:${TCP.echo} +Proxy +3 `, 'm'));
  });

  test('an operator gives an endpoint another weight on this node', async () => {
    const host = clusterIPs.get('fo') ?? '';
    const endpoint = `${LIGHT}:${TCP.echo}`;
    assert.match(await command('weight', endpoint, '9'), /has the weight 9 on this node/);
    const lightWeight = async () => (await viewOf('fo', 'tcp')).listeners[0]?.endpoints[0]?.weight;
    await waitFor('the weight to take effect', async () => (await lightWeight()) === 9);
    await connect(host);
    assert.deepEqual(await openOf('fo', 'tcp'), [1, HELD]);
    await command('weight', endpoint, 'default');
    await waitFor('the weight to be gone', async () => (await lightWeight()) === 1);
    await connect(host);
    assert.deepEqual(await openOf('fo', 'tcp'), [1, HELD + 1]);
  });

  test('an upgrade carries over weights and what is open', { skip: !isFast }, async () => {
    await command('weight', `${LIGHT}:${TCP.echo}`, '7');
    process.kill(pid, 'SIGHUP');
    const line = await waitFor('the upgrade', () => {
      return environment.proxy.lines({ msg: 'Handed over to the successor' })[0];
    });
    await waitFor('the old process ends', () => !isAlive(pid));
    pid = Number(line['pid']);
    await waitFor('the socket is the new one’s', async () => {
      const { proxy } = JSON.parse(await command('version', '-o', 'json'));
      return proxy.pid === pid;
    });
    const host = clusterIPs.get('wlc') ?? '';
    for (let index = 0; index < 4; index++) await connect(host);
    // A wlc that knew less would give some of them to the other.
    assert.deepEqual(await openOf('wlc', 'tcp'), [7, 9]);
    const { listeners } = await viewOf('wlc', 'tcp');
    assert.deepEqual(
      listeners[0]?.endpoints.map(({ weight }) => weight),
      [7, 3],
    );
  });
});
