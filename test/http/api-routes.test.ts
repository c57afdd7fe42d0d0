import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { MAX_OPERATORS } from '../../src/app/servers.ts';
import { apiRoutes } from '../../src/http/api-routes.ts';
import { MAX_CONNECTIONS } from '../../src/http/http-server.ts';
import { type Address, parseAddress } from '../../src/model/address.ts';
import { servicePortName } from '../../src/model/service.ts';
import type { ConnectionView, Explanation, Question, ServiceFilter, ServiceView } from '../../src/model/view.ts';
import { answersOf } from '../../src/operate/control/answers.ts';
import { READ_TIMEOUT_MS } from '../../src/operate/control/protocol.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { all, httpRequest, RawClient, RecordingOperations, served } from '../operate/control/served.ts';
import { settle, until } from '../support/until.ts';

const POD = { address: parseAddress('10.244.0.1') as Address, port: 8080 };
const SERVICES = httpRequest('/v1/services');
const NODE = httpRequest('/v1/node');
const END = '\r\n0\r\n\r\n';

function linesOf(answer: string): unknown[] {
  return [...answer.matchAll(/^\{.*\}$/gm)].map(([line]) => JSON.parse(line) as unknown);
}

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
    const connections = (await all(view.connections())).flat();
    assert.deepEqual((await all(control.ask('connections', {}))).flat(), connections);
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
      /no Service that this node serves has the endpoint 10\.244\.0\.1:1, so nothing is drained; .* forced=true \(drain --force\)/,
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
    for (const params of [
      { endpoint, weight: 0 },
      { endpoint, weight: 5 },
      { endpoint, weight: 'default' },
    ] as const) {
      await assert.rejects(
        all(control.ask('weight', params)),
        /no Service that this node serves has the endpoint 10\.244\.0\.1:1, so it has no weight to set; list/,
      );
    }
    assert.deepEqual([operations.weights.size, log.lines.length], [0, lines]);
    await all(control.ask('drain', { endpoint, forced: true }));
    assert.deepEqual(await all(control.ask('weight', { endpoint, weight: 5 })), [{ before: 0 }]);
    assert.deepEqual(await all(control.ask('weight', { endpoint, weight: 'default' })), [{ before: 5 }]);
    assert.equal(operations.weights.size, 0);
  });

  test('sets a weight and takes it back, with a line in the log; undrain is for drained endpoints only', async (t) => {
    const { control, operations, log } = await served(t);
    assert.deepEqual(await all(control.ask('weight', { endpoint: POD, weight: 5 })), [{}]);
    assert.deepEqual([...operations.weights], [['10.244.0.1:8080', 5]]);
    assert.deepEqual(log.of('info').at(-1)?.fields, { backend: '10.244.0.1:8080', weight: 5 });
    assert.deepEqual(await all(control.ask('undrain', { endpoint: POD })), [{ wasDrained: false }]);
    assert.deepEqual(await all(control.ask('weight', { endpoint: POD, weight: 'default' })), [{ before: 5 }]);
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
    assert.equal(client.text.endsWith(END), false);
    assert.ok(view.made < 10_000);
  });

  test('end at the deadline also for a client that left only the end unread', async (t) => {
    const view = new Long();
    const { path, clock } = await served(t, view);
    const ask = (pieces: number) => {
      const client = new RawClient(t, path);
      client.socket.pause();
      client.socket.write(httpRequest(`/v1/connections?namespace=${pieces}`));
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
    assert.equal(client.text.endsWith(END), false);
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
  assert.equal(linesOf(await client.end()).length, 1);
});

test('the view is not read on when the client has left', async (t) => {
  let ended = false;
  class Endless extends FakeView {
    override async *connections(): AsyncIterable<readonly ConnectionView[]> {
      try {
        yield* super.connections();
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
  const client = new RawClient(t, path, NODE);
  const idle = new RawClient(t, path);
  await asked.promise;
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
    client.socket.end(NODE);
    assert.equal(linesOf(await client.end()).length, 1);
  });

  test('is of the release before gets one line that it shows', async (t) => {
    const { path, log } = await served(t);
    const client = new RawClient(t, path, '{"v":1,"command":"node","params":{}}\n');
    const [line, ...more] = (await client.end()).split('\n');
    assert.match(
      JSON.parse(line ?? '').error,
      /the running proxy \(v\S+\) is of a later release .* of the same release$/,
    );
    assert.deepEqual(more, ['']);
    assert.deepEqual([...log.of('warn'), ...log.of('error')], []);
  });

  test('sends garbage, or a header that is too long, gets an error', async (t) => {
    const { path, control, log } = await served(t);
    for (const garbage of ['\u0000\u0001\u00ff\n', 'null\n', `GET /${'x'.repeat(100_000)} HTTP/1.1\r\n\r\n`]) {
      const client = new RawClient(t, path, Buffer.from(garbage, 'latin1'));
      assert.match(await client.end(), /^HTTP\/1\.1 400 Bad Request\r\n/, garbage.slice(0, 20));
    }
    assert.deepEqual([...log.of('warn'), ...log.of('error')], []);
    assert.equal((await all(control.ask('node', {}))).length, 1);
  });

  test('sends a body has its answer, and the body is not kept', async (t) => {
    const { path, operations } = await served(t);
    const head = 'POST /v1/log-level?verbosity=4 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n';
    const client = new RawClient(t, path, `${head}Content-Length: 1000000000\r\n\r\n{"verbosity":9`);
    await until('the answer', () => client.text.endsWith('{}\n'));
    assert.equal(operations.verbosity, 4);
  });

  test('changes something by GET, or reads by POST, gets 405', async (t) => {
    const { path, operations } = await served(t);
    const drain = new RawClient(t, path, httpRequest('/v1/drain?endpoint=10.244.0.1:8080'));
    assert.match(
      await drain.end(),
      /^HTTP\/1\.1 405 .*\r\nAllow: POST\r\n.*\r\n\{"error":"Only POST is served here\."\}\n$/s,
    );
    assert.equal(operations.weights.size, 0);
    const read = new RawClient(t, path, httpRequest('/v1/services', 'POST'));
    assert.match(await read.end(), /^HTTP\/1\.1 405 .*\r\nAllow: GET, HEAD\r\n/s);
  });

  test('asks wrongly gets a sentence as JSON, and its status', async (t) => {
    const { path } = await served(t);
    const mixed = '/v1/explain?address=10.96.0.1&port=80&protocol=TCP&client=fd00::1';
    const answers = { '/v1/explain': 400, [mixed]: 400, '/v1/tail?service=none': 404, '/v1/node?x=1': 400 };
    const others = { '/v1/drain': 405, '/v1/nothing': 404 };
    for (const [target, status] of Object.entries({ ...answers, ...others })) {
      const answer = await new RawClient(t, path, httpRequest(target)).end();
      assert.match(answer, new RegExp(`^HTTP/1.1 ${status} .*Content-Type: application/json\\r\\n`, 's'));
      assert.equal(typeof (linesOf(answer)[0] as { error: unknown }).error, 'string');
    }
  });
});

test('of a hundred idle clients a few stay connected, and keep nobody from an answer', async (t) => {
  const { path, control } = await served(t);
  const clients = Array.from({ length: 100 }, () => new RawClient(t, path));
  await until('the others are gone', () => clients.filter(({ closed }) => !closed).length === MAX_CONNECTIONS);
  assert.equal((await all(control.ask('node', {}))).length, 1);
});

test('of clients that ask at once, those beyond the limit read that others are being answered', async (t) => {
  const { promise: mayAnswer, resolve: answerNow } = Promise.withResolvers<void>();
  class Slow extends FakeView {
    override async explain(question: Question): Promise<Explanation> {
      await mayAnswer;
      return await super.explain(question);
    }
  }
  const { path } = await served(t, new Slow());
  const question = httpRequest('/v1/explain?address=10.244.0.1&port=8080&protocol=TCP');
  const clients = Array.from({ length: MAX_OPERATORS + 4 }, () => new RawClient(t, path, question));
  await until('four are told', () => clients.filter(({ closed }) => closed).length === 4);
  answerNow();
  const statuses = await Promise.all(clients.map(async (client) => (await client.end()).split(' ')[1]));
  assert.deepEqual(
    [statuses.filter((status) => status === '200').length, statuses.filter((status) => status === '503').length],
    [MAX_OPERATORS, 4],
  );
});

test('clients that ask and leave do not pile up work: the number of answers under way is limited', async (t) => {
  const { promise: mayAnswer, resolve: answerNow } = Promise.withResolvers<void>();
  let asked = 0;
  class Slow extends FakeView {
    override async explain(question: Question): Promise<Explanation> {
      asked++;
      if (asked <= MAX_OPERATORS) await mayAnswer;
      return await super.explain(question);
    }
  }
  const { path, control } = await served(t, new Slow());
  const question = httpRequest('/v1/explain?address=10.244.0.1&port=8080&protocol=TCP');
  for (let count = 1; count <= MAX_OPERATORS; count++) {
    const client = new RawClient(t, path, question);
    await until('it is being answered', () => asked === count);
    client.socket.destroy();
  }
  const ask = () => all(control.ask('explain', { ...POD, protocol: 'TCP' }));
  for (let text = ''; !text.includes('16 others are being answered; try again'); ) {
    text = await ask().then(String, String);
    await settle(1);
  }
  assert.equal(asked, MAX_OPERATORS);
  answerNow();
  await settle();
  assert.equal((await ask()).length, 1);
});

test('what shows clients or runs iptables is answered to clients on loopback only', async () => {
  const [view, log, clock] = [new FakeView(), new RecordingLog(), new ManualClock()];
  const feed = { subscribe: () => () => {}, dropped: () => {} };
  const answers = answersOf({ view, operations: new RecordingOperations(), feed, log, clock });
  const routes = new Map(apiRoutes('GET', { answers, known: Promise.resolve(), maxAtOnce: 16, log }));
  const statusOf = async (path: string, isLocal: boolean) => {
    const question = path === '/v1/explain' ? 'address=10.96.0.0&port=80&protocol=TCP' : '';
    const query = new URLSearchParams(path === '/v1/endpoint' ? 'endpoint=10.244.0.1:8080' : question);
    return (await routes.get(path)?.({ query, signal: new AbortController().signal, isLocal }))?.status;
  };
  const refused: string[] = [];
  for (const path of routes.keys()) {
    assert.equal(await statusOf(path, true), 200, path);
    if ((await statusOf(path, false)) === 403) refused.push(path);
  }
  assert.deepEqual(refused, ['/v1/connections', '/v1/tail', '/v1/explain', '/v1/endpoint']);
});

test('what a web site sends is refused with JSON', async (t) => {
  const { path } = await served(t);
  const request = 'GET /v1/node HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n';
  const answer = await new RawClient(t, path, request).end();
  assert.match(answer, /^HTTP\/1\.1 403 .*Content-Type: application\/json\r\n/s);
  assert.equal(typeof (linesOf(answer)[0] as { error: unknown }).error, 'string');
});

describe('the error of a view', () => {
  test('goes to the client and the log, and the next request is answered', async (t) => {
    class Failing extends FakeView {
      override explain(): Promise<Explanation> {
        throw new Error('no iptables');
      }
    }
    const { control, log } = await served(t, new Failing());
    const question = { ...POD, protocol: 'TCP' } as const;
    await assert.rejects(all(control.ask('explain', question)), /^ControlError: no iptables$/);
    const fields = { path: '/v1/explain', err: 'no iptables' };
    assert.deepEqual(log.of('error'), [{ level: 'error', message: 'Cannot answer an operator', fields }]);
    assert.equal((await all(control.ask('node', {}))).length, 1);
  });

  test('breaks off an answer that has begun', async (t) => {
    class Failing extends FakeView {
      override *services(): Iterable<ServiceView> {
        yield* super.services();
        throw new Error('no such listener');
      }
    }
    const { control, log } = await served(t, new Failing({ services: 150 }));
    await assert.rejects(
      all(control.ask('services', {})),
      /before its answer was complete: .* has failed, as its log says/,
    );
    const fields = { server: 'control', path: '/v1/services', err: 'Error: no such listener' };
    assert.deepEqual(log.of('error'), [{ level: 'error', message: 'An HTTP answer broke off', fields }]);
    assert.equal((await all(control.ask('node', {}))).length, 1);
  });
});
