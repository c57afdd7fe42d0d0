import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { metric, type Served, TCP, testEnvironment, UDP } from '../harness.ts';
import { CAPTURE, METHOD, Shims } from '../iptables.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

/** Who ask for one page after another. */
const CALLERS = 8;

/** Requests whose connection was open. */
function lost({ ECONNRESET = 0, NO_ANSWER = 0 }: Readonly<Record<string, number>>): number {
  return ECONNRESET + NO_ANSWER;
}

describe(`local ports outlive the process that had them, with ${METHOD}`, () => {
  const environment = testEnvironment('fresh');
  let shims: Shims;

  before(async () => {
    shims = await Shims.create(environment.temporary('shims'));
  });

  const start = async (...args: string[]) => {
    await environment.startProxy({ args, env: { PATH: shims.path } });
    return environment.proxy;
  };

  const crash = async () => {
    environment.proxy.kill('SIGKILL');
    await environment.proxy.exited();
  };

  const dump = () => environment.captured.ours();

  const ports = [{ port: 53, target: UDP['udp-name'], protocol: 'UDP' as const }];
  const dns = (name: string, pod: string) => environment.serve({ name, ports, endpoints: [pod] });

  /** Asks for a pod's name, from one source port. */
  const asker = async () => {
    const { socket } = await environment.client.call('udpOpen', {});
    return async ({ host }: Served, timeoutMs?: number): Promise<string | undefined> => {
      const patience = timeoutMs === undefined ? {} : { timeoutMs };
      const reply = await environment.client.call('udpAsk', { socket, host, port: 53, text: 'who', ...patience });
      return reply?.text.split(' ')[0];
    };
  };

  test('after SIGKILL under load every connection is accounted for, and no Service is written anew', async (t) => {
    await start();
    const web = await environment.serve({
      name: 'web',
      ports: [
        { name: 'http', port: 80, target: TCP.name, nodePort: 30_080 },
        { name: 'dns', port: 53, target: UDP['udp-name'], protocol: 'UDP', nodePort: 30_053 },
      ],
    });
    const echo = await environment.serve({ name: 'echo', ports: [{ port: 7, target: TCP.echo }] });
    const http = [{ port: 80, target: TCP.name }];
    for (let i = 0; i < 20; i++) await environment.serve({ name: `other-${i}`, ports: http });
    const { client } = environment;
    const idle = await client.call('openMany', { ...echo, count: 50 });
    const load = await client.call('startLoad', { ...web, concurrency: CALLERS });
    const flow = await asker();
    assert.match((await flow(web)) ?? '', /^pod-/);
    const rules = await dump();

    await crash();
    const atEnd = lost((await client.call('loadSoFar', { load })).failures);
    shims.forget();
    const crashedAt = performance.now();
    const served = (async () => {
      const answered = () => environment.client.call('request', { ...web, timeoutMs: 1_000 }).catch(() => undefined);
      await waitFor('somebody answers again', answered);
      return performance.now() - crashedAt;
    })();
    await start();
    const syncedMs = performance.now() - crashedAt;
    const outageMs = await served;
    const { failures } = await client.call('stopLoad', { load });
    t.diagnostic(`served again after ${outageMs.toFixed(0)} ms, the first sync done after ${syncedMs.toFixed(0)} ms`);

    // What was open ended with the process, what came before the next one was refused, and nothing else failed.
    const { ECONNREFUSED: refused = 0, ECONNRESET, NO_ANSWER, ...others } = failures;
    assert.deepEqual(others, {});
    assert.ok(refused > 0 && lost(failures) <= atEnd + CALLERS, `${atEnd} lost at its end, then ${lost(failures)}`);
    const stillOpen = (await client.call('states', { list: idle })).filter((state) => state === 'open');
    assert.deepEqual(stillOpen, []);
    const counted = async () =>
      metric(await environment.metricsText(), 'userspace_proxy_connections_total', 'service="web"', 'port="http"');
    const before = await counted();
    assert.deepEqual((await client.call('requests', { ...web, count: 100, concurrency: CALLERS })).failures, {});
    assert.equal(await counted(), before + 100);

    assert.deepEqual(await dump(), rules);
    // The page of the nft table that is the same for all Services is written at each start, in one transaction.
    assert.deepEqual(shims.writes(), CAPTURE === 'nft' ? ['nft -f -'] : []);
    assert.match((await flow(web)) ?? '', /^pod-/, 'a flow goes on');
    const fromOutside = await environment.outside.call('request', { host: NODE_ADDRESS, port: 30_080 });
    assert.match(fromOutside.name, /^pod-/);
  });

  test('a client of a deleted Service never reaches another one, even after a crash', async () => {
    const range = ['--proxy-port-range', '31100-31101'] as const;
    await start(...range);
    const flow = await asker();
    const gone = await dns('gone', POD_ADDRESSES[0]);
    assert.equal(await flow(gone), 'pod-1');
    const port = await environment.localPort('test/gone');
    environment.manifests.remove('gone.yaml');
    await environment.waitForRules(gone.host, 0);

    const next = await dns('next', POD_ADDRESSES[1]);
    assert.equal(await flow(next), 'pod-2');
    assert.notEqual(await environment.localPort('test/next'), port);
    // No other port is left.
    const heir = await dns('heir', POD_ADDRESSES[1]);
    assert.equal(await environment.localPort('test/heir'), port);
    assert.equal(await flow(heir), 'pod-2');
    assert.equal(await flow(gone, 300), undefined);

    await crash();
    await start(...range);
    assert.equal(await flow(gone, 300), undefined);
    assert.equal(await flow(heir), 'pod-2');
    assert.equal(await flow(next), 'pod-2');

    environment.manifests.remove('heir.yaml');
    await environment.waitForRules(heir.host, 0);
    const again = await dns('gone', POD_ADDRESSES[2]);
    assert.equal(await flow(again), 'pod-3');
  });
});
