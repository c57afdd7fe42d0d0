import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Address, parseAddress } from '../../../src/model/address.ts';
import { servicePortName } from '../../../src/model/service.ts';
import type { ConnectionView, Explanation, Question, ServiceFilter, ServiceView } from '../../../src/model/view.ts';
import { PROTOCOL_VERSION, READ_TIMEOUT_MS } from '../../../src/operate/control/protocol.ts';
import { MAX_CONNECTIONS, MAX_REQUEST_BYTES, REQUEST_TIMEOUT_MS } from '../../../src/operate/control/server.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { settle, until } from '../../support/until.ts';
import { all, RawClient, served } from './served.ts';

const POD = { address: parseAddress('10.244.0.1') as Address, port: 8080 };
const SERVICES = '{"v":1,"command":"services","params":{}}\n';

describe('a running program answers', () => {
  test('what it is', async (t) => {
    const view = new FakeView();
    const { control } = await served(t, view);
    assert.deepEqual(await all(control.ask('node', {})), [await view.node()]);
  });

  test('all Services, or those that match a filter', async (t) => {
    const view = new FakeView({ services: 250 });
    const { control } = await served(t, view);
    const services = await all(control.ask('services', {}));
    assert.deepEqual(services.flat(), [...view.services()]);
    const [dns] = (await all(control.ask('services', { namespace: 'kube-system', service: 'dns' }))).flat();
    assert.equal(dns?.name, 'kube-system/dns:dns');
    const [summary] = (await all(control.ask('services', { namespace: 'kube-system', summary: true }))).flat();
    assert.deepEqual(summary?.listeners[0]?.endpoints, []);
  });

  test('its connections, and the explanation of one', async (t) => {
    const view = new FakeView();
    const { control } = await served(t, view);
    assert.deepEqual(await all(control.ask('connections', {})), await all(view.connections()));
    const question = { address: parseAddress('10.96.0.0') as Address, port: 80, protocol: 'TCP' } as const;
    assert.deepEqual(await all(control.ask('explain', question)), [await view.explain(question)]);
  });
});

/** Has as many pieces of connections as the namespace says. Each is half of a stream's buffer. */
class Long extends FakeView {
  pieces = 0;

  override async *connections({ namespace }: ServiceFilter = {}): AsyncIterable<readonly ConnectionView[]> {
    const [one] = (await all(super.connections())).flat() as [ConnectionView];
    const piece = [{ ...one, name: servicePortName('x/x', 'x'.repeat(8_000)) }];
    for (let left = Number(namespace); left > 0; left--) {
      this.pieces++;
      yield piece;
    }
  }
}

describe('an operator', () => {
  test('drains an endpoint and gives it back, with a line in the log', async (t) => {
    const { control, operations, log } = await served(t);
    await all(control.ask('drain', { endpoint: POD }));
    assert.deepEqual([...operations.weights], [['10.244.0.1:8080', 0]]);
    assert.deepEqual(log.of('info').at(-1), {
      level: 'info',
      message: 'An operator drained an endpoint; it gets no new connections',
      fields: { backend: '10.244.0.1:8080' },
    });
    assert.deepEqual(await all(control.ask('undrain', { endpoint: POD })), [{ wasDrained: true }]);
    assert.match(log.of('info').at(-1)?.message ?? '', /gave an endpoint back/);
    const lines = log.lines.length;
    assert.deepEqual(await all(control.ask('undrain', { endpoint: POD })), [{ wasDrained: false }]);
    assert.equal(log.lines.length, lines, 'nothing has changed');
  });

  test('drains an endpoint that no Service has only by force', async (t) => {
    const { control, operations, log } = await served(t);
    const endpoint = { ...POD, port: 1 };
    const lines = log.lines.length;
    await assert.rejects(
      all(control.ask('drain', { endpoint })),
      /no Service that this node serves has the endpoint 10\.244\.0\.1:1, so nothing is drained; .* --force/,
    );
    assert.equal(operations.weights.size, 0);
    assert.equal(log.lines.length, lines);
    assert.deepEqual(await all(control.ask('drain', { endpoint, forced: true })), [{ users: [], isListed: true }]);
    assert.deepEqual([...operations.weights], [['10.244.0.1:1', 0]]);
  });

  test('gives no weight to an endpoint that no Service has, but takes one back', async (t) => {
    const { control, operations, log } = await served(t);
    const endpoint = { ...POD, port: 1 };
    const lines = log.lines.length;
    for (const params of [{ endpoint, weight: 0 }, { endpoint, weight: 5 }, { endpoint }]) {
      await assert.rejects(
        all(control.ask('weight', params)),
        /no Service that this node serves has the endpoint 10\.244\.0\.1:1, so it has no weight to set; list/,
      );
    }
    assert.deepEqual([operations.weights.size, log.lines.length], [0, lines]);
    await all(control.ask('drain', { endpoint, forced: true }));
    assert.deepEqual(await all(control.ask('weight', { endpoint, weight: 5 })), [{ before: 0 }]);
    assert.deepEqual(await all(control.ask('weight', { endpoint })), [{ before: 5 }]);
    assert.equal(operations.weights.size, 0);
  });

  test('sets a weight and takes it back, with a line in the log; undrain is for drained endpoints only', async (t) => {
    const { control, operations, log } = await served(t);
    assert.deepEqual(await all(control.ask('weight', { endpoint: POD, weight: 5 })), [{}]);
    assert.deepEqual([...operations.weights], [['10.244.0.1:8080', 5]]);
    assert.deepEqual(log.of('info').at(-1)?.fields, { backend: '10.244.0.1:8080', weight: 5 });
    assert.deepEqual(await all(control.ask('undrain', { endpoint: POD })), [{ wasDrained: false }]);
    assert.deepEqual(await all(control.ask('weight', { endpoint: POD })), [{ before: 5 }]);
    assert.equal(operations.weights.size, 0);
    await assert.rejects(all(control.ask('weight', { endpoint: POD, weight: 65_536 })), /weight/);
    operations.isFull = true;
    await assert.rejects(all(control.ask('weight', { endpoint: POD, weight: 1 })), /too many endpoints/);
  });

  test('cannot drain more than there is room for', async (t) => {
    const { control, operations, log } = await served(t);
    operations.isFull = true;
    await assert.rejects(
      all(control.ask('drain', { endpoint: POD })),
      /too many endpoints are drained or have a weight already/,
    );
    assert.equal(log.of('error').length, 0, 'it is the operator who is to know');
  });

  test('changes the verbosity of the log', async (t) => {
    const { control, operations, log } = await served(t);
    await all(control.ask('log-level', { verbosity: 4 }));
    assert.equal(operations.verbosity, 4);
    assert.deepEqual(log.of('info').at(-1)?.fields, { verbosity: 4 });
  });
});

describe('ten thousand Services', () => {
  test('are made a hundred at a time, with turns of the event loop between', async (t) => {
    const view = new FakeView({ services: 10_000 });
    const { control } = await served(t, view);
    let before = 0;
    let most = 0;
    let watching = true;
    const watch = () => {
      most = Math.max(most, view.made - before);
      before = view.made;
      if (watching) setImmediate(watch);
    };
    watch();
    const services = await all(control.ask('services', {}));
    watching = false;
    assert.equal(services.flat().length, 10_000);
    assert.ok(most > 0 && most <= 100, `${most} in one turn`);
  });

  test('without a connection are also looked at in several turns', async (t) => {
    let pieces = 0;
    class Idle extends FakeView {
      override async *connections(): AsyncIterable<readonly ConnectionView[]> {
        for (; pieces < 1_000; pieces++) yield [];
      }
    }
    const { control } = await served(t, new Idle());
    let turns = 0;
    const count = () => {
      turns++;
      if (pieces < 1_000) setImmediate(count);
    };
    count();
    await all(control.ask('connections', {}));
    assert.ok(turns >= 1_000, `${turns} turns`);
  });

  test('are made as fast as the client reads, and not after a deadline without reading', async (t) => {
    const view = new FakeView({ services: 10_000, endpoints: 10 });
    const { path, clock } = await served(t, view);
    const client = new RawClient(t, path);
    client.socket.pause();
    client.socket.write(SERVICES);
    await until('the buffers are full', () => clock.pendingTimers === 1 && view.made > 0);
    await settle();
    const made = view.made;
    assert.ok(made < 2_000, `${made} made for a client that reads nothing`);
    clock.advance(READ_TIMEOUT_MS - 1);
    const pauseAgain = () => {
      if (view.made > made) client.socket.pause();
    };
    client.socket.on('data', pauseAgain).resume();
    await until('the buffers are full again', () => client.socket.isPaused() && clock.pendingTimers === 1);
    await settle();
    client.socket.off('data', pauseAgain);
    clock.advance(READ_TIMEOUT_MS);
    client.socket.resume();
    await client.end();
    assert.equal(client.text.includes('"end"'), false);
    assert.ok(view.made < 10_000);
  });

  test('end at the deadline also for a client that left only the end unread', async (t) => {
    const view = new Long();
    const { path, clock } = await served(t, view);
    const ask = (pieces: number) => {
      const client = new RawClient(t, path);
      client.socket.pause();
      client.socket.write(
        `${JSON.stringify({ v: PROTOCOL_VERSION, command: 'connections', params: { namespace: `${pieces}` } })}\n`,
      );
      return client;
    };
    const greedy = ask(1_000);
    await until('the buffers are full', () => clock.pendingTimers === 1 && view.pieces > 0);
    await settle();
    const full = view.pieces;
    greedy.socket.destroy();
    await until('the server has noticed', () => clock.pendingTimers === 0);
    view.pieces = 0;
    // With one piece less, some is still in the buffers, but the server only waits at the end.
    const client = ask(full - 1);
    await until('all is made', () => view.pieces === full - 1);
    await settle();
    clock.advance(READ_TIMEOUT_MS);
    client.socket.resume();
    await client.end();
    assert.equal(client.text.includes('"end"'), false);
  });
});

test('a request waits until the answers are known', async (t) => {
  const known = Promise.withResolvers<void>();
  const { path } = await served(t, new FakeView({ services: 1 }), known.promise);
  const client = new RawClient(t, path, SERVICES);
  const left = new RawClient(t, path, SERVICES);
  await settle();
  assert.equal(client.text, '');
  left.socket.destroy();
  known.resolve();
  assert.equal((await client.end()).length, 2);
});

test('the view is not read on when the client has left', async (t) => {
  let ended = false;
  class Endless extends FakeView {
    override async *connections(): AsyncIterable<readonly ConnectionView[]> {
      try {
        for (;;) {
          yield [];
          await settle(1);
        }
      } finally {
        ended = true;
      }
    }
  }
  const { control } = await served(t, new Endless());
  for await (const _ of control.ask('connections', {})) break;
  await until('the view is read no longer', () => ended);
});

test('the close ends all connections, and an answer after it is dropped without a warning', async (t) => {
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<void>();
  class Slow extends FakeView {
    override async node() {
      asked.resolve();
      await answer.promise;
      return await super.node();
    }
  }
  const { server, path, clock, log } = await served(t, new Slow());
  const client = new RawClient(t, path, '{"v":1,"command":"node","params":{}}\n');
  const idle = new RawClient(t, path);
  await asked.promise;
  await until('the idle one is connected', () => clock.pendingTimers === 1);
  await server.close();
  await Promise.all([client.end(), idle.end()]);
  answer.resolve();
  await settle();
  assert.equal(clock.pendingTimers, 0);
  assert.deepEqual([...log.of('warn'), ...log.of('error')], []);
});

describe('a client that', () => {
  test('closes its direction after the request is answered', async (t) => {
    const { path } = await served(t);
    const client = new RawClient(t, path);
    client.socket.end('{"v":1,"command":"node","params":{}}\n');
    assert.deepEqual((await client.end()).at(-1), { end: true });
  });

  test('leaves without a request causes no warning', async (t) => {
    const { path, log } = await served(t);
    const client = new RawClient(t, path);
    client.socket.end();
    assert.deepEqual(await client.end(), []);
    assert.deepEqual([...log.of('warn'), ...log.of('error')], []);
  });

  test('sends garbage gets an error', async (t) => {
    const { path, log } = await served(t);
    for (const garbage of [
      'GET / HTTP/1.1\r\n\r\n',
      '\u0000\u0001\u00ff\n',
      `${'['.repeat(60_000)}\n`,
      '{}\n',
      'null\n',
    ]) {
      const client = new RawClient(t, path, Buffer.from(garbage, 'latin1'));
      const [answer, ...more] = await client.end();
      assert.equal(typeof (answer as { error?: unknown }).error, 'string', garbage.slice(0, 20));
      assert.deepEqual(more, []);
    }
    assert.deepEqual([...log.of('warn'), ...log.of('error')], []);
  });

  test('sends half a line loses its connection', async (t) => {
    const { path, clock } = await served(t);
    const client = new RawClient(t, path, '{"v":1,');
    await until('the server waits for the rest', () => clock.pendingTimers === 1);
    clock.advance(REQUEST_TIMEOUT_MS - 1);
    await settle();
    assert.equal(client.closed, false);
    clock.advance(1);
    assert.deepEqual(await client.end(), []);
  });

  test('sends a line that is too long is cut off', async (t) => {
    const { path, control } = await served(t);
    const client = new RawClient(t, path, 'x'.repeat(1024 * 1024));
    await until('it is cut off', () => client.closed);
    assert.ok(!client.text.includes('piece'));
    const fits = new RawClient(t, path, `${' '.repeat(MAX_REQUEST_BYTES - SERVICES.length + 1)}${SERVICES}`);
    assert.deepEqual((await fits.end()).at(-1), { end: true });
    assert.equal((await all(control.ask('node', {}))).length, 1);
  });

  test('sends more than its request is answered once', async (t) => {
    const { path } = await served(t);
    const client = new RawClient(t, path, '{"v":1,"command":"node","params":{}}\n'.repeat(3));
    await client.end();
    assert.equal(client.lines().length, 2);
  });
});

test('of a hundred clients only the first few are served; when they have left, the next one is', async (t) => {
  const { path, control } = await served(t);
  const clients = Array.from({ length: 100 }, () => new RawClient(t, path));
  const open = () => clients.filter(({ closed }) => !closed);
  await until('the others are gone', () => open().length === MAX_CONNECTIONS);
  await assert.rejects(all(control.ask('node', {})), /closed the connection.*busy with others; try again/);
  for (const client of open()) client.socket.write('{"v":1,"command":"node","params":{}}\n');
  await until('all are answered', () => open().length === 0);
  assert.equal(clients.filter(({ text }) => text.endsWith('{"end":true}\n')).length, MAX_CONNECTIONS);
  assert.equal((await all(control.ask('node', {}))).length, 1);
});

test('clients that ask and leave do not pile up work: the number of answers under way is limited', async (t) => {
  const { promise: mayAnswer, resolve: answerNow } = Promise.withResolvers<void>();
  let asked = 0;
  class Slow extends FakeView {
    override async explain(question: Question): Promise<Explanation> {
      asked++;
      if (asked <= MAX_CONNECTIONS) await mayAnswer;
      return await super.explain(question);
    }
  }
  const { path, control } = await served(t, new Slow());
  const question = JSON.stringify({ v: 1, command: 'explain', params: { ...POD, protocol: 'TCP' } });
  for (let count = 1; count <= MAX_CONNECTIONS; count++) {
    const client = new RawClient(t, path, `${question}\n`);
    await until('it is being answered', () => asked === count);
    client.socket.destroy();
  }
  await assert.rejects(all(control.ask('explain', { ...POD, protocol: 'TCP' })), /busy with others; try again/);
  assert.equal(asked, MAX_CONNECTIONS);
  answerNow();
  await settle();
  assert.equal((await all(control.ask('explain', { ...POD, protocol: 'TCP' }))).length, 1);
});

test('the error of a view goes to the client and the log, and the next request is answered', async (t) => {
  class Failing extends FakeView {
    override *services(): Iterable<ServiceView> {
      yield* super.services();
      throw new Error('no such listener');
    }
  }
  const { control, log } = await served(t, new Failing({ services: 150 }));
  await assert.rejects(all(control.ask('services', {})), /^ControlError: no such listener$/);
  assert.deepEqual(log.of('error'), [
    {
      level: 'error',
      message: 'Cannot answer a request on the control socket',
      fields: { err: 'no such listener' },
    },
  ]);
  assert.equal((await all(control.ask('node', {}))).length, 1);
});
