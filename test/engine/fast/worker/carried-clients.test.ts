import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import type { PortCounters } from '../../../../src/engine/fast/port-counters.ts';
import type { Over, Passed } from '../../../../src/engine/fast/worker/link.ts';
import type { Address } from '../../../../src/model/address.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { accept, SOCKET_ADDRESS_BYTES } from '../../../../src/sys/socket.ts';
import { waitFor } from '../../../netns/wait.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { connectTcp, TcpBackend, type TcpPeer } from '../../../support/tcp.ts';
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
    return messages.some(({ kind }) => kind === 'over');
  });
  assert.deepEqual(messages, [
    { kind: 'answered', id: 1 },
    { kind: 'over', id: 1, over: { kind: 'ended' } },
  ]);
  assert.deepEqual(
    reports.filter(({ kind }) => kind !== 'ready' && kind !== 'answer'),
    [],
  );
});

type Rig = ReturnType<typeof engineRig>;

/** How many connections are open by the counters of the Service port and of its endpoint, and their descriptors. */
function countedBy({ takenDescriptors }: Rig, counters: PortCounters) {
  const [endpoint] = counters.readEndpoints();
  return [counters.read().active, endpoint?.counters.active, takenDescriptors()];
}

test('a carrier counts a client only once the home has died', async (t) => {
  const rig = engineRig(t);
  const { engine, home, command } = rig;
  const backend = await TcpBackend.echo(t);
  const { counters, tell } = home(7);
  const backends = counters.follow({ endpoints: [backend.endpoint], affinity: { type: 'None' } });
  command({ kind: 'update', port: 7, backends });
  const served = async (client: TcpPeer) => {
    client.send('hello');
    await waitFor('the answer', () => {
      engine.turn(10);
      return client.text === 'hello';
    });
  };
  const first = await passedClient(t, 7, backend);
  tell(first.message);
  await served(first.client);
  assert.deepEqual(countedBy(rig, counters), [0, 0, 0]);

  // Its message comes before the news, and is read after it.
  const second = await passedClient(t, 7, backend);
  command({ kind: 'hold', question: 1 });
  tell({ ...second.message, id: 2 });
  command({ kind: 'unlink', question: 2, worker: 1 }, { kind: 'thaw' });
  await served(second.client);
  assert.deepEqual(countedBy(rig, counters), [2, 2, 4]);

  for (const { client } of [first, second]) client.end();
  await waitFor('their end', () => {
    engine.turn(10);
    return counters.read().active === 0;
  });
  assert.equal(countedBy(rig, counters)[1], 0);
});

/** A home that passes every other client on, and how many connections count there. */
async function passingHome(t: TestContext) {
  const rig = engineRig(t, {}, { spread: 'clients' });
  const { engine, listen, command } = rig;
  const backend = await TcpBackend.echo(t);
  const { localPort, counters } = listen({ endpoints: [backend.endpoint] });
  const { port1, port2 } = new MessageChannel();
  t.after(() => port2.close());
  command({ kind: 'link', worker: 1, channel: port1 }, { kind: 'carriers', port: 1, workers: [1] });
  const tell = (message: Passed) => {
    port2.postMessage([message]);
    // With any command it looks for messages, too.
    command({ kind: 'turn', question: 0 });
  };
  return {
    command,
    engine,
    tell,
    counted: () => countedBy(rig, counters),
    over: (id: number, over: Over) => tell({ kind: 'over', id, over }),
    /** The first of two clients, with what the other worker is told. */
    passed: async () => {
      const client = await connectTcp(localPort);
      t.after(() => client.reset());
      const told: Passed[] = [];
      await waitFor('it to be passed on', () => {
        engine.turn(10);
        told.push(...((receiveMessageOnPort(port2)?.message as readonly Passed[] | undefined) ?? []));
        return told.length > 0;
      });
      const [message] = told;
      assert.ok(message?.kind === 'dial');
      return { client, message };
    },
  };
}

test('a client that another worker carries counts at home, from accept until it is over there', async (t) => {
  const { passed, counted, tell, over } = await passingHome(t);
  const { message } = await passed();
  assert.deepEqual(counted(), [1, 1, 2]);
  tell({ kind: 'answered', id: message.id });
  assert.deepEqual(counted(), [1, 1, 2]);
  over(message.id, { kind: 'ended' });
  assert.deepEqual(counted(), [0, 0, 0]);
  close(message.record.fd);
});

test('a client that comes back to its home counts there once', async (t) => {
  const { engine, passed, counted, over } = await passingHome(t);
  const { client, message } = await passed();
  over(message.id, { kind: 'failed', record: message.record, reason: 'timeout' });
  client.send('hello');
  await waitFor('the answer', () => {
    engine.turn(10);
    return client.text === 'hello';
  });
  assert.deepEqual(counted(), [1, 1, 2]);
});

test('what a worker carried counts no more when it has died', async (t) => {
  const { command, passed, counted, tell } = await passingHome(t);
  const { message } = await passed();
  tell({ kind: 'answered', id: message.id });
  command({ kind: 'unlink', question: 1, worker: 1 });
  assert.deepEqual(counted(), [0, 0, 0]);
  close(message.record.fd);
});
