import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Agent } from '../agent.ts';
import { Environment, type Served, TCP } from '../harness.ts';
import { NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

describe('ClientIP affinity', () => {
  let environment: Environment;

  before(async () => {
    environment = await Environment.create();
    await environment.startProxy();
  });

  after(() => environment.remove());

  const sticky = (affinitySeconds: number, ports: Served['ports'] = [{ port: 80, target: TCP.name }]) =>
    environment.serve({ name: `sticky-${environment.number()}`, affinitySeconds, ports, endpoints: POD_ADDRESSES });

  /** The backends that answered `count` requests in a row. */
  async function backends(agent: Agent, target: { host: string; port: number }, count = 6): Promise<string[]> {
    const { names, failures } = await agent.call('requests', { ...target, count });
    assert.deepEqual(failures, {});
    return Object.keys(names);
  }

  test('each client stays with its backend, and two clients have different ones', async () => {
    const service = await sticky(60);
    const [mine] = await backends(environment.client, service, 1);
    const [theirs] = await backends(environment.pods[0], service, 1);
    assert.notEqual(mine, theirs);
    for (let round = 0; round < 3; round++) {
      assert.deepEqual(await backends(environment.client, service), [mine]);
      assert.deepEqual(await backends(environment.pods[0], service), [theirs]);
    }
  });

  test('it holds at the NodePort and together with the ClusterIP', async () => {
    const nodePort = environment.nodePort();
    const service = await sticky(60, [{ port: 80, target: TCP.name, nodePort }]);
    const [mine] = await backends(environment.client, service, 1);
    assert.deepEqual(await backends(environment.client, { host: NODE_ADDRESS, port: nodePort }), [mine]);
    assert.equal((await backends(environment.outside, { host: NODE_ADDRESS, port: nodePort })).length, 1);
  });

  test('a shorter timeout takes effect while running', async () => {
    const service = await sticky(3600);
    const [first] = await backends(environment.client, service, 1);
    environment.write({ ...service, affinitySeconds: 1 });
    await waitFor('the client is sent to another backend', async () => {
      await sleep(1200);
      return (await backends(environment.client, service, 1))[0] !== first;
    });
  });
});
