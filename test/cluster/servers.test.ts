import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { metric, TCP } from '../netns/harness.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { Admin, NAMESPACE } from './admin.ts';
import { Cluster } from './cluster.ts';
import { ControlPlane } from './control-plane.ts';
import { serviceObject, sliceEndpoints, sliceObject } from './objects.ts';
import { Follower } from './several-servers.ts';

const SLICES = 20;
const CHANGES_PER_SECOND = 100;
/** A server that hangs is left after 35 s. */
const LEAVES_MS = 60_000;

const web = (name: string) => ({ name, ports: [{ port: 80, target: TCP.name }] });

/** An address that says which change of its slice this is. */
const addressOf = (change: number) => `10.200.${Math.floor(change / 250)}.${1 + (change % 250)}`;
const changeOf = (address: string) => {
  const [, , high = 0, low = 0] = address.split('.').map(Number);
  return 250 * high + low - 1;
};

describe('several API servers', { timeout: 600_000 }, () => {
  let cluster: Cluster;
  /** On the etcd of the first; and one with an etcd of its own, which takes the same credentials. */
  let second: ControlPlane;
  let foreign: ControlPlane;
  let admin: Admin;

  before(async () => {
    cluster = await Cluster.create();
    const { environment, plane } = cluster;
    const common = {
      node: environment.topology.node,
      agent: environment.node,
      address: NODE_ADDRESS,
      serviceRanges: '10.96.0.0/16',
      keysOf: plane,
    };
    const start = (name: string, options: { readonly port: number; readonly etcd: number | ControlPlane }) =>
      ControlPlane.start({ ...common, ...options, directory: environment.temporary(name) });
    [second, foreign] = await Promise.all([
      start('second', { port: 6444, etcd: plane }),
      start('foreign', { port: 6445, etcd: 2479 }),
    ]);
    admin = new Admin(environment.node, second);
  });
  after(() => cluster?.remove());

  test('one refuses, one hangs, one is of another cluster: nothing of 100 changes a second is missed', async (context) => {
    const { environment, plane, kubeconfig } = cluster;
    // Nobody listens at the first. The kubeconfig names `plane`; the second comes after all that are named here.
    const urls = [`https://${NODE_ADDRESS}:6450`, plane.server, foreign.server, second.server];
    const follower = new Follower(environment.topology.node, kubeconfig, urls);
    const proxy = await cluster.startProxy({ args: ['--api-servers', urls.join()] });
    const names = Array.from({ length: SLICES }, (_, index) => `churn-${index}`);
    await Promise.all(names.map((name) => admin.create('endpointslices', sliceObject(web(name), [addressOf(0)]))));
    await waitFor('the follower has its first lists', () => follower.isSynced);
    // Its watches may begin a moment later.
    await waitFor('the first that answers is used', () => follower.used === new URL(plane.server).host);

    const churn = new Churn(admin, names);
    try {
      const begun = performance.now();
      await sleep(1_000);
      plane.signalApiServer('SIGSTOP');
      const stopped = performance.now();
      const meanwhile = await createAt(admin, 'meanwhile');
      await waitFor('the second is used', () => follower.used === new URL(second.server).host, LEAVES_MS);
      const left = performance.now() - stopped;
      await environment.waitForRules(meanwhile, 1);
      await cluster.isUp({ host: meanwhile, port: 80 }, ['pod-1', 'pod-2', 'pod-3']);
      const faults = follower.logged('An API server cannot be used; the others are asked').join('\n');
      for (const fault of [/ECONNREFUSED/, /no answer to a probe/, /it is of another cluster/])
        assert.match(faults, fault);
      plane.signalApiServer('SIGCONT');
      await waitFor('the preferred one is used again', () => follower.used === new URL(plane.server).host, LEAVES_MS);
      await sleep(1_000);
      await churn.stop();
      const rate = churn.total / ((performance.now() - begun) / 1_000);
      for (const [name, last] of churn.changes) {
        const key = `${NAMESPACE}/${name}`;
        await waitFor(`the last change of ${key}`, () => follower.addressesOf(key).at(-1) === addressOf(last));
        const order = follower.addressesOf(key).map(changeOf);
        assert.deepEqual(
          order,
          [...order].sort((a, b) => a - b),
          `${key} never goes back`,
        );
      }
      const seen = names.reduce((sum, name) => sum + follower.addressesOf(`${NAMESPACE}/${name}`).length - 1, 0);
      context.diagnostic(
        `left the server that hangs after ${(left / 1_000).toFixed(1)} s; ${churn.total} changes at ${rate.toFixed(0)} a second, ${seen} seen`,
      );
      assert.ok(rate > CHANGES_PER_SECOND / 2, `the churn was too slow to prove anything: ${rate} a second`);
      assert.equal(seen, churn.total, 'each change, and each once');
      assert.equal(proxy.lines({ msg: 'Another API server is used from now on' }).length, 2);
    } finally {
      plane.signalApiServer('SIGCONT');
      await churn.stop();
    }
  });
});

/** Passes connections on, from a port of loopback to the API server. */
const RELAY = `const { connect, createServer } = require('node:net');
createServer((one) => {
  const other = connect(6443, '127.0.0.1');
  for (const each of [one, other]) each.on('error', () => {});
  one.pipe(other).pipe(one);
}).listen(7443, '127.0.0.1', () => console.log('ready'));`;

describe('the API servers that the cluster names', { timeout: 600_000 }, () => {
  let cluster: Cluster;

  before(async () => {
    cluster = await Cluster.create();
  });
  after(() => cluster?.remove());

  test('take over from one that is out of reach, by the name that is in their own certificates', async () => {
    const { environment, plane, admin } = cluster;
    const { host } = new URL(plane.server);
    const kubeconfig = environment.temporary('by-loopback.kubeconfig');
    const relay = environment.topology.node.spawn([process.execPath, '-e', RELAY], {}, ['ignore', 'pipe', 'inherit']);
    await once(relay.stdout!, 'data');
    plane.writeKubeconfig(kubeconfig, { user: 'proxy', server: 'https://localhost:7443' });
    const state = ['--state-dir', environment.temporary('state'), '--state-wait', '500ms'];
    const start = () => cluster.startProxy({ kubeconfig, args: ['--api-servers-from-cluster', ...state] });
    const proxy = await start();
    const before = await cluster.serve(web('before'), POD_ADDRESSES);
    const usable = async () =>
      metric(await environment.metricsText(), 'userspace_proxy_api_server_usable', `server="${host}"`);
    await waitFor('the endpoints of default/kubernetes are known', async () => (await usable()) === 1);
    relay.kill('SIGKILL');
    const used = ({ log }: ProxyProcess) =>
      waitFor('it is used', () => log.find(({ msg }) => msg === 'Another API server is used from now on'));
    assert.equal((await used(proxy))['server'], host);
    const after = await admin.create('services', serviceObject(web('after')));
    await environment.waitForRules(after.spec.clusterIP, 1);
    await cluster.isUp(before, ['pod-1', 'pod-2', 'pod-3']);
    // A node that boots while the server of its kubeconfig is away knows the others.
    assert.equal(await proxy.stop(), 0);
    assert.equal((await used(await start()))['server'], host);
    const last = await admin.create('services', serviceObject(web('last')));
    await environment.waitForRules(last.spec.clusterIP, 1);
  });
});

async function createAt(admin: Admin, name: string): Promise<string> {
  const { spec } = await admin.create('services', serviceObject(web(name)));
  await admin.create('endpointslices', sliceObject(web(name), POD_ADDRESSES));
  return spec.clusterIP;
}

/** Changes slices in turn, at a steady rate, each one after its last change was accepted. */
class Churn {
  total = 0;
  /** By slice: its last change. */
  readonly changes: Map<string, number>;
  #isStopped = false;
  readonly #done: Promise<unknown>;

  constructor(admin: Admin, names: readonly string[]) {
    this.changes = new Map(names.map((name) => [name, 0]));
    this.#done = Promise.all(
      names.map((name) => this.#change(admin, name, (1_000 * names.length) / CHANGES_PER_SECOND)),
    );
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#done;
  }

  async #change(admin: Admin, name: string, periodMs: number): Promise<void> {
    let dueAt = performance.now() + Math.random() * periodMs;
    while (!this.#isStopped) {
      await sleep(Math.max(0, dueAt - performance.now()));
      dueAt += periodMs;
      const change = (this.changes.get(name) ?? 0) + 1;
      await admin.patch('endpointslices', name, { endpoints: sliceEndpoints([addressOf(change)]) });
      this.changes.set(name, change);
      this.total += 1;
    }
  }
}
