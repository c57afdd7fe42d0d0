import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Agent } from '../agent.ts';
import { Environment, metric, type Served, UDP } from '../harness.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const UDP_TIMEOUT_MS = 2_000;

describe('UDP', () => {
  let environment: Environment;
  let client: Agent;

  before(async () => {
    environment = await Environment.create();
    await environment.startProxy({
      args: ['--udp-timeout', `${UDP_TIMEOUT_MS}ms`, '--udp-max-flows-per-service', '50', '--udp-max-flows', '80'],
    });
    client = environment.client;
  });

  after(() => environment.remove());

  const serve = (target: number, endpoints: readonly string[] = POD_ADDRESSES) =>
    environment.serve({
      name: `udp-${environment.number()}`,
      ports: [{ name: 'dns', port: 53, target, protocol: 'UDP' }],
      endpoints,
    });

  async function ask(service: Served, socket: number, text = 'who', timeoutMs?: number): Promise<string | undefined> {
    return (
      await client.call('udpAsk', {
        ...{ socket, host: service.host, port: 53, text },
        ...(timeoutMs !== undefined && { timeoutMs }),
      })
    )?.text;
  }

  async function activeFlows({ name }: Served): Promise<number> {
    return metric(await environment.metricsText(), 'userspace_proxy_connections_active', `service="${name}"`);
  }

  async function backend(service: Served, socket: number): Promise<string | undefined> {
    return (await ask(service, socket))?.split(' ')[0];
  }

  test('datagrams of 0 to 65,507 bytes pass intact in both directions', async () => {
    const service = await serve(UDP['udp-echo']);
    for (const bytes of [0, 1, 512, 1471, 1472, 1473, 4096, 4097, 9000, 65_506, 65_507]) {
      const { socket } = await client.call('udpOpen', {});
      const { intact, from } = await client.call('udpEcho', { socket, host: service.host, port: 53, bytes });
      assert.ok(intact, `${bytes} bytes`);
      assert.equal(from, `${service.host}:53`);
      await client.call('udpClose', { socket });
    }
  });

  test('after --udp-timeout of silence the same client is sent to the next backend', async () => {
    const service = await serve(UDP['udp-name']);
    const { socket } = await client.call('udpOpen', {});
    const names: (string | undefined)[] = [];
    for (let round = 0; round < 3; round++) {
      if (round > 0) await waitFor('the flow to end', async () => (await activeFlows(service)) === 0);
      names.push(await backend(service, socket));
    }
    assert.deepEqual(names.sort(), ['pod-1', 'pod-2', 'pod-3']);
  });

  test('without endpoints there is no answer, and the same client is served once there is one', async () => {
    const service = await serve(UDP['udp-name'], []);
    const { socket } = await client.call('udpOpen', {});
    for (let round = 0; round < 10; round++) assert.equal(await ask(service, socket, 'who', 50), undefined);
    environment.write({ ...service, endpoints: [POD_ADDRESSES[0]] });
    await waitFor('pod-1 answers', async () => (await ask(service, socket, 'who', 100))?.startsWith('pod-1'));
  });

  test('flows are limited per Service, and a Service at its limit takes nothing from others', async () => {
    const slow = await serve(UDP['udp-slow']);
    const other = await serve(UDP['udp-name']);
    const sockets: number[] = [];
    for (let index = 0; index < 60; index++) {
      const { socket } = await client.call('udpOpen', {});
      sockets.push(socket);
      await client.call('udpSend', { socket, host: slow.host, port: 53, text: '2500' });
    }
    assert.deepEqual(await client.call('udpFlows', { host: other.host, port: 53, count: 3 }), {
      'pod-1': 1,
      'pod-2': 1,
      'pod-3': 1,
    });
    const replies = await Promise.all(sockets.map((socket) => client.call('udpReceive', { socket, timeoutMs: 6_000 })));
    assert.equal(replies.filter(Boolean).length, 50);
    const limited = metric(await environment.metricsText(), 'userspace_proxy_limited_total', `service="${slow.name}"`);
    assert.equal(limited, 10);
    for (const socket of sockets) await client.call('udpClose', { socket });
  });
});
