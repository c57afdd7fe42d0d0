import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import type { Passed } from '../../../../src/engine/fast/worker/link.ts';
import type { Address } from '../../../../src/model/address.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { accept, SOCKET_ADDRESS_BYTES } from '../../../../src/sys/socket.ts';
import { waitFor } from '../../../netns/wait.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { connectTcp, TcpBackend } from '../../../support/tcp.ts';
import { engineRig } from './engine-rig.ts';

/** A client that its home passes on, to be connected to this endpoint. */
async function passedClient(t: TestContext, port: number, { endpoint }: TcpBackend) {
  const spec = { name: 'a/home', protocol: 'TCP', address: '127.0.0.1', port: 0 } as const;
  const { fd: listener, localPort } = openListenSocket(listenSpec(spec));
  t.after(() => close(listener));
  const client = await connectTcp(localPort);
  t.after(() => client.reset());
  const fd = accept(listener, new Memory(SOCKET_ADDRESS_BYTES));
  const record = {
    kind: 'dialling',
    port,
    fd,
    client: { address: '127.0.0.1' as Address, port: 1 },
    beganAt: 0,
  } as const;
  const terms = { proxyProtocol: undefined, isSeen: false };
  const message: Passed = { kind: 'dial', id: 1, record, endpoint, terms };
  return { client, message };
}

test('a carrier hears of an endpoint before it dials that for a client, however close the two come', async (t) => {
  const { engine, meanwhile, home, post, command } = engineRig(t);
  const backend = await TcpBackend.echo(t);
  const { counters, tell } = home(7);
  const { client, message } = await passedClient(t, 7, backend);
  const update = { endpoints: [backend.endpoint], affinity: { type: 'None' } } as const;
  // After its last look for commands in a turn.
  meanwhile.push(
    () => {},
    () => {
      post({ kind: 'update', port: 7, backends: counters.follow(update) });
      tell(message);
    },
  );
  command({ kind: 'update', port: 9, backends: counters.follow({ endpoints: [], affinity: { type: 'None' } }) });
  client.send('hello');
  await waitFor('the answer', () => {
    engine.turn(10);
    return client.text === 'hello';
  });
  const [counted] = counters.readEndpoints();
  assert.deepEqual(counted?.endpoint, backend.endpoint);
  assert.deepEqual([counted?.counters.connections, counted?.counters.receivedBytes], [1, 5]);
});

test('a carrier without the Service port connects a client all the same, and blames no endpoint', async (t) => {
  const { engine, reports, home } = engineRig(t);
  const backend = await TcpBackend.echo(t);
  const { tell, told } = home(7);
  const { client, message } = await passedClient(t, 8, backend);
  tell(message);
  client.send('hello');
  await waitFor('the answer', () => {
    engine.turn(10);
    return client.text === 'hello';
  });
  client.end();
  const messages: Passed[] = [];
  await waitFor('its end', () => {
    engine.turn(10);
    messages.push(...(told() ?? []));
    return messages.some(({ kind }) => kind === 'ended');
  });
  assert.deepEqual(messages, [
    { kind: 'joined', id: 1 },
    { kind: 'ended', id: 1 },
  ]);
  assert.deepEqual(
    reports.filter(({ kind }) => kind !== 'ready' && kind !== 'answer'),
    [],
  );
});
