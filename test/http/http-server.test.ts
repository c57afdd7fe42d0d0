import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { type Handler, HttpServer, type Routes, TEXT } from '../../src/http/http-server.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { settle, until } from '../support/until.ts';
import { freePort } from './free-port.ts';
import { ask } from './http-client.ts';
import { serve } from './serve.ts';

/** Resolves when it is closed, also by a reset, for which `once` would reject. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.on('error', () => {}).on('close', () => resolve());
  });
}

/** A connection that sends this request, `times` times at once. */
function asking({ port, address }: AddressInfo, path: string, times = 1): Socket {
  const socket = connect(port, address).on('error', () => {});
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`.repeat(times));
  return socket;
}

const hello: Routes = new Map([['/hello', () => ({ status: 200, contentType: TEXT, body: 'grüß dich' })]]);

const OPTIONS = {
  name: 'healthz',
  hint: 'see --healthz-bind-address',
  maxConnections: 1,
  audience: 'anybody',
  routes: hello,
} as const;

describe('a request', () => {
  test('for a known path is answered with any query', async (t) => {
    const { address } = await serve(t, hello);
    for (const path of ['/hello', '/hello?x=1', '/hello?/other']) {
      const { status, headers, body } = await ask(address, path);
      assert.deepEqual([status, body, headers['content-type']], [200, 'grüß dich', 'text/plain; charset=utf-8']);
      assert.equal(headers['x-content-type-options'], 'nosniff');
    }
  });

  test('for another path gets Go’s 404', async (t) => {
    const { address } = await serve(t, hello);
    for (const path of ['/', '/hello/', '/HELLO', '/constructor', '/__proto__', '//hello', '/%68ello']) {
      const { status, headers, body } = await ask(address, path);
      assert.deepEqual([status, body], [404, '404 page not found\n'], path);
      assert.equal(headers['content-type'], 'text/plain; charset=utf-8');
    }
  });

  test('with HEAD gets the headers only', async (t) => {
    const { address } = await serve(t, hello);
    const { status, headers, body } = await ask(address, '/hello', 'HEAD');
    assert.deepEqual([status, body, headers['content-length']], [200, '', String(Buffer.byteLength('grüß dich'))]);
  });

  test('with any other method gets 405', async (t) => {
    const { address } = await serve(t, hello);
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
      const { status, headers } = await ask(address, '/hello', method);
      assert.deepEqual([status, headers.allow], [405, 'GET, HEAD'], method);
    }
  });

  test('that fails gets 500 and a sentence without details, which are in the log', async (t) => {
    const { address, log } = await serve(
      t,
      new Map([
        ['/throws', () => assert.fail('default/secret-service is broken')],
        ['/rejects', () => Promise.reject(new Error('default/secret-service is broken'))],
      ]),
    );
    for (const path of ['/throws', '/rejects']) {
      const { status, body } = await ask(address, path);
      assert.equal(status, 500);
      assert.doesNotMatch(body, /secret/);
    }
    assert.equal(log.of('error').length, 2);
    assert.match(String(log.of('error')[0]?.fields['err']), /secret-service is broken/);
  });

  test('whose client leaves early aborts the signal of its handler, and no other request fails', async (t) => {
    const { promise: mayAnswer, resolve: answerNow } = Promise.withResolvers<void>();
    const signals: AbortSignal[] = [];
    const slow: Handler = async (request) => {
      signals.push(request.signal);
      await mayAnswer;
      return { status: 200, contentType: TEXT, body: 'late' };
    };
    const { address, clock } = await serve(t, new Map([['/slow', slow]]));
    const socket = asking(address, '/slow');
    await until('the handler is asked', () => signals.length === 1);
    assert.equal(signals[0]?.aborted, false);
    socket.resetAndDestroy();
    await until('the handler learns that the client has left', () => signals[0]?.aborted === true);
    answerNow();
    assert.equal((await ask(address, '/slow')).body, 'late');
    await until('no deadline is left', () => clock.pendingTimers === 0);
  });

  test('may come before the previous answer has been read', async (t) => {
    const { address } = await serve(t, hello);
    const socket = asking(address, '/hello', 3);
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
    });
    await until('all are answered', () => text.split('grüß dich').length === 4);
    socket.destroy();
  });

  test('that a web site makes a browser send is refused where the answer is for operators', async (t) => {
    const [operators, anybody] = [await serve(t, hello), await serve(t, hello, { audience: 'anybody' })];
    const statuses = (headers: Readonly<Record<string, string>>) =>
      Promise.all(
        [operators, anybody].map(async ({ address }) => (await ask(address, '/hello', 'GET', headers)).status),
      );
    assert.deepEqual(await statuses({ Host: 'site.example:10249' }), [403, 200]);
    assert.deepEqual(await statuses({ 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Dest': 'empty' }), [403, 200]);
    assert.deepEqual(await statuses({ Host: 'localhost:10249', 'Sec-Fetch-Site': 'same-origin' }), [200, 200]);
  });
});

describe('an answer in parts', () => {
  const inParts = (body: () => AsyncIterable<string>): Routes =>
    new Map([['/parts', () => ({ status: 200, contentType: TEXT, body: body() })]]);

  test('comes whole, and without its length', async (t) => {
    const { address, clock } = await serve(
      t,
      inParts(async function* () {
        for (let part = 0; part < 100; part += 1) yield `${part}ü\n`;
      }),
    );
    const { status, headers, body } = await ask(address, '/parts');
    assert.deepEqual([status, headers['content-length'], headers['transfer-encoding']], [200, undefined, 'chunked']);
    assert.equal(body, Array.from({ length: 100 }, (_, part) => `${part}ü\n`).join(''));
    await until('no deadline is left', () => clock.pendingTimers === 0);
  });

  test('is not made for HEAD', async (t) => {
    const { address } = await serve(
      t,
      inParts(async function* () {
        yield 'one';
        assert.fail('nobody asked for it');
      }),
    );
    const { status, body } = await ask(address, '/parts', 'HEAD');
    assert.deepEqual([status, body], [200, '']);
  });

  test('that fails later breaks off, so no client takes it for complete', async (t) => {
    const { address, log } = await serve(
      t,
      inParts(async function* () {
        yield 'one';
        throw new Error('worker gone');
      }),
    );
    await assert.rejects(ask(address, '/parts'));
    assert.match(String(log.of('error')[0]?.fields['err']), /worker gone/);
    assert.equal(log.of('error')[0]?.fields['path'], '/parts');
  });

  test('is made no faster than the client reads, and ends when the client has left', async (t) => {
    let made = 0;
    let isOver = false;
    const { address, log } = await serve(
      t,
      inParts(async function* () {
        try {
          for (;;) {
            made += 1;
            yield 'x'.repeat(1024 * 1024);
          }
        } finally {
          isOver = true;
        }
      }),
    );
    const socket = asking(address, '/parts');
    await once(socket, 'readable');
    let before = -1;
    await until('the server waits for its client', () => {
      const stands = made === before;
      before = made;
      return stands;
    });
    assert.ok(made < 64, `${made} MiB were made for a client that reads nothing`);
    socket.resetAndDestroy();
    await until('the making has ended', () => isOver);
    assert.deepEqual(log.of('error'), []);
  });
});

describe('a client that is slow', () => {
  // The limits are Node's own and run on real time.
  test('to send its request, or sends nothing at all, loses its connection', { timeout: 120_000 }, async (t) => {
    const { address } = await serve(t, hello);
    const silent = connect(address.port, address.address).resume();
    const partial = connect(address.port, address.address).resume();
    partial.write('GET /hello HTTP/1.1\r\nHost:');
    await Promise.all([closed(silent), closed(partial)]);
  });

  test('to read the answer loses its connection', async (t) => {
    const body = 'x'.repeat(32 * 1024 * 1024);
    const { address, clock } = await serve(t, new Map([['/big', () => ({ status: 200, contentType: TEXT, body })]]));
    const socket = asking(address, '/big');
    await once(socket, 'readable');
    clock.advance(9_999);
    assert.equal(clock.pendingTimers, 1);
    clock.advance(1);
    let received = 0;
    socket.on('data', (chunk) => {
      received += chunk.length;
    });
    await closed(socket);
    assert.ok(received < body.length, `${received}`);
  });

  test('to read an answer in parts loses its connection, although it has taken what there was', async (t) => {
    const { promise: mayGoOn, resolve: goOn } = Promise.withResolvers<void>();
    async function* body() {
      yield 'one ';
      await mayGoOn;
      yield 'two';
    }
    const { address, clock } = await serve(
      t,
      new Map([['/parts', () => ({ status: 200, contentType: TEXT, body: body() })]]),
    );
    const socket = asking(address, '/parts');
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
    });
    await until('the first part has come', () => text.includes('one '));
    clock.advance(10_000);
    goOn();
    await closed(socket);
    assert.ok(!text.includes('two'));
  });

  test('to read an answer without an end loses its connection; one that reads does not', async (t) => {
    const { promise: mayGoOn, resolve: goOn } = Promise.withResolvers<void>();
    let parts = 0;
    let isOver = false;
    async function* body() {
      try {
        yield 'once ';
        await mayGoOn;
        for (;;) {
          parts += 1;
          yield 'x'.repeat(1024 * 1024);
        }
      } finally {
        isOver = true;
      }
    }
    const endless = () => ({ status: 200, contentType: TEXT, body: body(), deadline: 'part' }) as const;
    const { address, clock } = await serve(t, new Map([['/endless', endless]]));
    const socket = asking(address, '/endless');
    await once(socket, 'readable');
    await until('all that was made is taken', () => clock.pendingTimers === 0);
    clock.advance(60_000);
    goOn();
    // Each part that is taken has its own deadline, until one is not.
    let made = 0;
    await until('the server waits for its client', () => {
      const stands = clock.pendingTimers === 1 && parts === made;
      made = parts;
      return stands;
    });
    assert.equal(isOver, false);
    clock.advance(29_999);
    assert.equal(clock.pendingTimers, 1);
    clock.advance(1);
    await until('the making has ended', () => isOver);
  });

  test('to ask makes room for others; the one that was idle longest goes first', async (t) => {
    const { address } = await serve(t, hello, { maxConnections: 3 });
    const gone: string[] = [];
    const open = (name: string) => {
      const socket = connect(address.port, address.address);
      return socket.on('error', () => {}).on('close', () => gone.push(name));
    };
    const asks = async (socket: Socket) => {
      socket.write('GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n');
      await Promise.race([once(socket, 'data'), once(socket, 'close')]);
      return socket;
    };
    open('never asked');
    const first = await asks(open('asked again'));
    await asks(open('asked once'));
    await asks(first);
    // One after the other, because the order of events on two connections is not defined.
    for (const [before, name] of ['a', 'b', 'c'].entries()) {
      await asks(open(name));
      await until(`one had to go for ${name}`, () => gone.length > before);
    }
    assert.deepEqual(gone, ['never asked', 'asked once', 'asked again']);
  });

  test('never replaces a connection that is being answered; when all are, it is refused', async (t) => {
    const { promise: mayAnswer, resolve: answerNow } = Promise.withResolvers<void>();
    let asked = 0;
    const slow: Handler = async () => {
      asked += 1;
      await mayAnswer;
      return { status: 200, contentType: TEXT, body: 'late' };
    };
    const { address } = await serve(
      t,
      { get: (path) => (path === '/slow' ? slow : hello.get(path)) },
      { maxConnections: 2 },
    );
    const answers = [ask(address, '/slow'), ask(address, '/slow')];
    await until('both are being answered', () => asked === 2);
    await assert.rejects(ask(address, '/hello'));
    answerNow();
    assert.deepEqual(
      (await Promise.all(answers)).map(({ body }) => body),
      ['late', 'late'],
    );
    assert.equal((await ask(address, '/hello')).status, 200);
  });

  test('to read, while it sends more and more requests, loses its connection', async (t) => {
    let asked = 0;
    const never: Handler = () => {
      asked += 1;
      if (asked > 4) socket.destroy();
      return new Promise(() => {});
    };
    const { address } = await serve(t, new Map([['/never', never]]));
    const socket = asking(address, '/never', 1_000).resume();
    await closed(socket);
    assert.equal(asked, 4);
  });
});

describe('an address that cannot be bound', () => {
  async function taken(options: { onUnbindable?: () => void } = {}) {
    const port = await freePort();
    const holder = createServer().listen(port, '127.0.0.1');
    await once(holder, 'listening');
    const clock = new ManualClock();
    const log = new RecordingLog();
    const server = new HttpServer({ ...OPTIONS, place: { address: '127.0.0.1', port }, clock, log, ...options });
    server.start();
    await until('the failure is logged', () => log.of('error').length === 1);
    return { holder, port, clock, log, server };
  }

  test('is logged once, retried every five seconds, and served as soon as it is free', async (t) => {
    const { holder, port, clock, log, server } = await taken();
    t.after(() => server.close());
    const [{ message, fields } = { message: '', fields: {} }] = log.of('error');
    assert.equal(message, 'Cannot serve HTTP here; retrying every 5 s; see --healthz-bind-address');
    const err = `listen EADDRINUSE: address already in use 127.0.0.1:${port}`;
    assert.deepEqual(fields, { server: 'healthz', address: `127.0.0.1:${port}`, err });
    clock.advance(4_999);
    assert.equal(clock.pendingTimers, 1);
    clock.advance(1);
    assert.equal(clock.pendingTimers, 0);
    await until('it is tried again', () => clock.pendingTimers === 1);
    holder.close();
    await once(holder, 'close');
    clock.advance(5_000);
    await until('the server listens', () => server.address !== undefined);
    assert.equal((await ask(server.address as AddressInfo, '/hello')).status, 200);
    assert.equal(log.of('error').length, 1);
  });

  test('ends the program with --bind-address-hard-fail, without a retry', async (t) => {
    let calls = 0;
    const { holder, clock, log, server } = await taken({ onUnbindable: () => (calls += 1) });
    t.after(() => holder.close());
    t.after(() => server.close());
    assert.deepEqual([calls, clock.pendingTimers], [1, 0]);
    assert.equal(log.of('error')[0]?.message, 'Cannot serve HTTP here; see --healthz-bind-address');
  });

  test('is not retried when the server is closed, also before the failure', async (t) => {
    const { holder, port, clock, log, server } = await taken();
    t.after(() => holder.close());
    await server.close();
    assert.equal(clock.pendingTimers, 0);
    const late = new HttpServer({ ...OPTIONS, place: { address: '127.0.0.1', port }, clock, log });
    late.start();
    await late.close();
    await settle();
    assert.deepEqual([clock.pendingTimers, log.of('error').length], [0, 1]);
  });
});

describe('closing', () => {
  test('ends connections that are kept alive and frees the port', async (t) => {
    const { server, address } = await serve(t, hello);
    const socket = asking(address, '/hello');
    await once(socket, 'data');
    const gone = once(socket, 'close');
    await server.close();
    await gone;
    await assert.rejects(ask(address, '/hello'), { code: 'ECONNREFUSED' });
    assert.equal(server.address, undefined);
  });

  test('right after starting leaves nothing listening', async () => {
    const server = new HttpServer({
      ...OPTIONS,
      place: { address: '127.0.0.1', port: 0 },
      clock: new ManualClock(),
      log: new RecordingLog(),
    });
    server.start();
    await server.close();
    server.start();
    await settle();
    assert.equal(server.address, undefined);
  });
});
