import assert from 'node:assert/strict';
import { afterEach, before, describe, test } from 'node:test';
import { NAMING, testEnvironment } from '../harness.ts';
import { serviceObjects, weightedSliceObject } from '../manifests.ts';
import { PROGRAM } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const PORT = 80;
const ANNOTATION = 'kube-userspace-proxy/scheduler';
/** What a pod answers: its name is the last five bytes. */
const ANSWER_BYTES = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npod-1'.length;
/** Clients of their own, in the client's namespace. */
const CLIENTS = Array.from({ length: 30 }, (_, index) => `10.244.1.${101 + index}`);

/** The weights of pod-1, pod-2 and pod-3; absent: that pod is no endpoint. */
type Weights = readonly [number?, number?, number?];

/** How many clients each pod has got. */
type Tally = Readonly<Record<string, number>>;

const PROTOCOLS = ['TCP', 'UDP'] as const;
type Protocol = (typeof PROTOCOLS)[number];

/*
 * What schedulers make of weights is in schedulers.test.ts. Here are endpoints that come and go, many clients and
 * restarts, and the names that Services and the node may give. Clients come one after another and stay.
 */
describe('what schedulers choose, through the whole program', { timeout: 600_000 }, () => {
  const environment = testEnvironment();
  /** Ends what clients hold open. */
  let ends: (() => Promise<void>)[] = [];

  before(async () => {
    const { client } = environment.topology;
    await client.ip(...CLIENTS.map((address) => `addr add ${address}/24 dev eth0`));
    await start();
  });

  afterEach(async () => {
    await Promise.all(ends.map((end) => end()));
    ends = [];
  });

  /** A flow is as open as a connection for as long as the test lasts. */
  const start = (...args: readonly string[]) => environment.startProxy({ args: ['--udp-timeout', '1h', ...args] });

  const list = () =>
    environment.topology.node.output([PROGRAM, 'list', `--control-socket=${environment.proxy.controlSocket}`]);

  interface Scheduled {
    readonly name: string;
    readonly host: string;
    weigh(weights: Weights): void;
  }

  /** A Service of its own, and one EndpointSlice for each pod, which has its weight. */
  async function serve(scheduler: string | undefined, weights: Weights, annotation = ANNOTATION): Promise<Scheduled> {
    const name = `${scheduler ?? 'default'}-${environment.number()}`;
    const host = environment.clusterIP();
    const annotations = scheduler && { [annotation]: scheduler };
    const [service] = serviceObjects({ name, clusterIP: host, ports: NAMING, ...(annotations && { annotations }) });
    const weigh = (each: Weights): void => {
      const slices = POD_ADDRESSES.flatMap((address, index) => {
        const weight = each[index];
        return weight === undefined ? [] : weightedSliceObject(name, NAMING, address, weight);
      });
      environment.manifests.write(`${name}.yaml`, [service!, ...slices]);
    };
    weigh(weights);
    await environment.waitForRules(host, NAMING.length);
    return { name, host, weigh };
  }

  /** One client, which stays. Returns who answered it. */
  async function come(protocol: Protocol, host: string, from?: string): Promise<string> {
    const { client } = environment;
    const local = from === undefined ? {} : { from };
    if (protocol === 'UDP') {
      const { socket } = await client.call('udpOpen', local);
      ends.push(() => client.call('udpClose', { socket }));
      const answer = await client.call('udpAsk', { socket, host, port: PORT, text: 'who' });
      return answer?.text.split(' ')[0] ?? 'nobody';
    }
    const { connection } = await client.call('open', { host, port: PORT, ...local });
    ends.push(async () => {
      await client.call('end', { connection });
      await client.call('finish', { connection });
    });
    await client.call('write', { connection, text: 'GET / HTTP/1.1\r\nHost: test\r\n\r\n' });
    return (await client.call('read', { connection, bytes: ANSWER_BYTES })).slice(-5);
  }

  async function inTurn(protocol: Protocol, host: string, count: number): Promise<string[]> {
    const answers: string[] = [];
    for (let i = 0; i < count; i++) answers.push(await come(protocol, host));
    return answers;
  }

  async function tally(protocol: Protocol, host: string, count: number): Promise<Tally> {
    const all = Map.groupBy(await inTurn(protocol, host, count), (name) => name);
    return Object.fromEntries(Array.from(all, ([name, { length }]) => [name, length]).toSorted());
  }

  /** Who answers each client, by its address. */
  async function byClient(protocol: Protocol, host: string): Promise<ReadonlyMap<string, string>> {
    const answers = new Map<string, string>();
    for (const from of CLIENTS) answers.set(from, await come(protocol, host, from));
    return answers;
  }

  async function endpointCount({ host }: Scheduled, count: number): Promise<void> {
    const shown = async () => {
      const lines = (await list()).split('\n');
      const at = lines.findIndex((line) => line.startsWith(`TCP  ${host}:${PORT} `));
      const endpoints = lines.slice(at + 1).findIndex((line) => !line.startsWith('  -> '));
      return endpoints === count;
    };
    await waitFor(`${count} endpoints of ${host}`, shown);
  }

  for (const protocol of PROTOCOLS) {
    describe(`over ${protocol}`, () => {
      test('random: everyone, but not in turns', async () => {
        const { host } = await serve('random', [1, 1, 1]);
        const answers = await inTurn(protocol, host, 100);
        assert.equal(new Set(answers).size, 3);
        assert.ok(answers.some((name, index) => name === answers[index + 1]));
      });

      test('lc: while one holds ten clients, the next ten go to the other', async () => {
        const service = await serve('lc', [1]);
        assert.deepEqual(await tally(protocol, service.host, 10), { 'pod-1': 10 });
        service.weigh([1, 1]);
        await endpointCount(service, 2);
        assert.deepEqual(await tally(protocol, service.host, 10), { 'pod-2': 10 });
        assert.deepEqual(await tally(protocol, service.host, 10), { 'pod-1': 5, 'pod-2': 5 });
      });

      test('sed lets the light one idle where nq does not', async () => {
        const [sed, nq] = [await serve('sed', [1, 100]), await serve('nq', [1, 100])];
        assert.deepEqual(await tally(protocol, sed.host, 2), { 'pod-2': 2 });
        assert.deepEqual(await tally(protocol, nq.host, 2), { 'pod-1': 1, 'pod-2': 1 });
      });

      test('twos: where one holds 200 clients, most of the next 200 go to the other', async () => {
        const service = await serve('twos', [1]);
        await tally(protocol, service.host, 200);
        service.weigh([1, 1]);
        await endpointCount(service, 2);
        const next = await tally(protocol, service.host, 200);
        // Both draws are of the busy one for every fourth.
        assert.ok((next['pod-2'] ?? 0) > 100, JSON.stringify(next));
      });

      test('fo: the heaviest gets everyone, and the next one when it has weight 0', async () => {
        const service = await serve('fo', [1, 3, 2]);
        assert.deepEqual(await tally(protocol, service.host, 10), { 'pod-2': 10 });
        service.weigh([1, 0, 2]);
        await waitFor('another pod', async () => (await come(protocol, service.host)) === 'pod-3');
        assert.deepEqual(await tally(protocol, service.host, 10), { 'pod-3': 10 });
      });

      for (const scheduler of ['sh', 'mh'] as const) {
        test(`${scheduler}: a client keeps its endpoint, also after a restart`, async () => {
          const { host } = await serve(scheduler, [1, 1, 1]);
          const answers = await byClient(protocol, host);
          assert.equal(new Set(answers.values()).size, 3);
          assert.deepEqual(await byClient(protocol, host), answers);
          await environment.proxy.stop();
          await start();
          assert.deepEqual(await byClient(protocol, host), answers);
        });
      }
    });
  }

  test('a scheduler that has no meaning here is told once, and the default serves', async () => {
    const { name, host, weigh } = await serve('dh', [1, 1], 'kube-router.io/service.scheduler');
    for (const protocol of PROTOCOLS) assert.deepEqual(await tally(protocol, host, 4), { 'pod-1': 2, 'pod-2': 2 });
    weigh([1, 1, 1]);
    await waitFor('the third pod', async () => (await come('TCP', host)) === 'pod-3');
    const told = environment.proxy.lines({ level: 'warn' }).filter(({ what }) => String(what).includes('"dh"'));
    assert.deepEqual(
      told.map(({ svc }) => String(svc).split(':')[0]),
      [`test/${name}`],
    );
  });

  test('the scheduler of the node serves where a Service names none, and is shown', async () => {
    await environment.proxy.stop();
    await start('--ipvs-scheduler', 'wrr');
    const plain = await serve(undefined, [1, 3]);
    const named = await serve('lc', [1, 3], 'kube-router.io/service.scheduler');
    for (const protocol of PROTOCOLS) {
      assert.deepEqual(await tally(protocol, plain.host, 8), { 'pod-1': 2, 'pod-2': 6 });
      assert.deepEqual(await tally(protocol, named.host, 8), { 'pod-1': 4, 'pod-2': 4 });
    }
    const lines = await list();
    for (const [{ host }, scheduler] of [
      [plain, 'wrr'],
      [named, 'lc'],
    ] as const) {
      for (const protocol of PROTOCOLS)
        assert.match(lines, new RegExp(`^${protocol} +${host}:${PORT} ${scheduler} `, 'm'));
    }
  });
});
