import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import { waitFor } from '../../netns/wait.ts';
import { ask, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { backends, endpointAt, type RigFactory } from './harness.ts';

const TIMEOUT_MS = 100;
/** In which an answer comes back in any case. */
const LONG_TIMEOUT_MS = 2000;
const OTHER = endpointAt('127.0.0.1', 9);

/** A client that is connected to a backend. */
async function connected(t: TestContext, makeRig: RigFactory, endpointDrainTimeoutMs: number) {
  const rig = await makeRig(t, { endpointDrainTimeoutMs });
  const { endpoint, ...server } = await TcpBackend.echo(t);
  const { name, port } = await rig.open('TCP', [endpoint]);
  const client = await connectTcp(port);
  let said = '';
  const answers = async (): Promise<void> => {
    said += '.';
    client.send('.');
    await waitFor('the answer', () => client.text === said);
  };
  await answers();
  const update = (endpoints: readonly NamedEndpoint[], draining?: readonly NamedEndpoint[]) =>
    rig.update(name, { ...backends(endpoints), ...(draining && { draining }) });
  return { rig, endpoint, server, port, client, answers, update };
}

export function drainingTests(makeRig: RigFactory): void {
  test('a connection is reset some time after its endpoint has gone', async (t) => {
    const { client, answers, update } = await connected(t, makeRig, LONG_TIMEOUT_MS);
    const gone = performance.now();
    update([OTHER]);
    await answers();
    assert.equal(await client.finished(), 'ECONNRESET');
    assert.ok(performance.now() - gone >= LONG_TIMEOUT_MS - 1);
  });

  test('a connection is reset also when no endpoint is left, or its endpoint went in two steps', async (t) => {
    const { client, answers, update, endpoint } = await connected(t, makeRig, TIMEOUT_MS);
    update([OTHER], [endpoint]);
    await answers();
    update([]);
    assert.equal(await client.finished(), 'ECONNRESET');
  });

  test('a draining endpoint keeps its connections and gets no new ones', async (t) => {
    const { port, answers, update, endpoint } = await connected(t, makeRig, TIMEOUT_MS);
    const other = await TcpBackend.named(t, 'other');
    await update([other.endpoint], [endpoint]);
    await sleep(3 * TIMEOUT_MS);
    await answers();
    for (let i = 0; i < 3; i++) assert.equal(await ask(port), 'other');
  });

  test('connections of other endpoints stay', async (t) => {
    const { rig, port, client, update, endpoint } = await connected(t, makeRig, TIMEOUT_MS);
    const staying = await TcpBackend.echo(t);
    await update([staying.endpoint], [endpoint]);
    const other = await connectTcp(port);
    other.send('here');
    await waitFor('the answer', () => other.text === 'here');
    update([staying.endpoint]);
    assert.equal(await client.finished(), 'ECONNRESET');
    other.end(' still');
    assert.equal(await other.finished(), 'end');
    assert.equal(other.text, 'here still');
    assert.equal(rig.events.dialFailed.length, 0);
  });

  test('an endpoint that comes back in time keeps its connections', async (t) => {
    const { answers, update, endpoint } = await connected(t, makeRig, TIMEOUT_MS);
    update([OTHER]);
    update([OTHER], [{ ...endpoint }]);
    await sleep(3 * TIMEOUT_MS);
    await answers();
    update([OTHER]);
    update([{ ...endpoint }]);
    await sleep(3 * TIMEOUT_MS);
    await answers();
  });

  test('without a timeout connections outlive their endpoint', async (t) => {
    const { answers, update } = await connected(t, makeRig, 0);
    update([]);
    await sleep(3 * TIMEOUT_MS);
    await answers();
  });
}
