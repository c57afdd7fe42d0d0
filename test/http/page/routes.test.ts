import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { get } from 'node:http';
import { type TestContext, test } from 'node:test';
import { Script } from 'node:vm';
import { statusRoutes } from '../../../src/http/page/routes.ts';
import { SCRIPT } from '../../../src/http/page/script.ts';
import type { EventView, NodeView, ServiceView } from '../../../src/model/view.ts';
import { FAKE_NOW, FakeView, LOST_SERVERS, SEVERAL_SERVERS } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { until } from '../../support/until.ts';
import { ask } from '../http-client.ts';
import { serve } from '../serve.ts';

async function setUp(t: TestContext, view = new FakeView()) {
  const clock = new ManualClock();
  const { address } = await serve(t, new Map(statusRoutes(view, clock)), { maxConnections: 32 });
  return { address, clock, view };
}

/** What a server-sent stream has said so far. */
function listen(address: { address: string; port: number }, query = '') {
  const seen = { status: 0, text: '', events: [] as Record<string, string>[], isOver: false };
  const request = get(
    { host: address.address, port: address.port, path: `/status/live${query}`, agent: false },
    (response) => {
      seen.status = response.statusCode ?? 0;
      response.setEncoding('utf8');
      response.on('data', (text) => {
        seen.text += text;
        seen.events = [...seen.text.matchAll(/^data: (.*)\n\n/gm)].map(([, data]) => JSON.parse(data as string));
      });
      response.on('close', () => {
        seen.isOver = true;
      });
    },
  );
  request.on('error', () => {});
  return { seen, leave: () => request.destroy() };
}

test('the page is complete without JavaScript, at both paths', async (t) => {
  const { address } = await setUp(t);
  for (const path of ['/', '/status']) {
    const { status, headers, body } = await ask(address, path);
    assert.equal(status, 200);
    assert.equal(headers['content-type'], 'text/html; charset=utf-8');
    for (const text of [
      'kube-userspace-proxy on node-1',
      'healthy',
      'default/web:http',
      '10.96.0.1:53',
      'New connections',
      'An endpoint refused the connection',
      'href="?open=default%2Fweb%3Ahttp"',
      'href="/status.csv"',
      'href="/status.json"',
    ]) {
      assert.ok(body.includes(text), text);
    }
    assert.ok(!body.includes('10.244.0.1:8080'), 'of a row that is not open');
  }
});

test('without JavaScript, a search keeps the order and the open rows', async (t) => {
  const { address } = await setUp(t);
  const query = '?q=web&sort=total&reversed=1&hide=healthy&page=2&open=default/web:http&open=shop/empty';
  const { body } = await ask(address, `/status${query}`);
  const [, form = ''] = /<form([\s\S]*?)<\/form>/.exec(body) ?? [];
  const hidden = [...form.matchAll(/<input type="hidden" name="(.*?)" value="(.*?)">/g)];
  assert.deepEqual(
    hidden.map(([, name, value]) => `${name}=${value}`),
    ['sort=total', 'reversed=1', 'open=default/web:http', 'open=shop/empty'],
  );
});

test('an API server that is lost, and files that are not in force or cannot be used, show', async (t) => {
  const view = new FakeView();
  const { address } = await setUp(t, view);
  const shown = /<b>lost<|has changed and is not in force yet|web\.yaml/;
  assert.doesNotMatch((await ask(address, '/status')).body, shown);
  view.nodeChanges = {
    api: { connected: false, staleForMs: 120_000, servers: [] },
    configNotInForce: '/etc/proxy.conf',
    findings: [{ level: 'warn', found: 'A manifest file cannot be used', place: 'web.yaml:3' }],
  };
  const { body } = await ask(address, '/status');
  assert.match(body, /<b>lost<\/b> <span title=".*">nothing for 2 min; the last state is served/);
  assert.match(body, /\/etc\/proxy\.conf has changed and is not in force yet/);
  assert.match(body, /<p class="warn">A manifest file cannot be used \(web\.yaml:3\)<\/p>/);
  view.nodeChanges = { api: { connected: false, staleForMs: 120_000, servers: [], servedStateOf: 0 } };
  assert.match(
    (await ask(address, '/status')).body,
    /nothing for 2 min; serving the state of 1970-01-01T00:00:00.000Z/,
  );
});

test('of several API servers the page shows which one is used, and what is wrong with the others', async (t) => {
  const view = new FakeView();
  const { address } = await setUp(t, view);
  view.nodeChanges = { api: { connected: true, staleForMs: 0, servers: SEVERAL_SERVERS } };
  const { body } = await ask(address, '/status');
  const expected =
    '192.0.2.1:6443: failing for 2 min: connect ECONNREFUSED; 192.0.2.2:6443: in use for 60 s; 192.0.2.3:6443: in reserve';
  assert.ok(
    body.includes(`<div class="warn"><dt>API server</dt><dd><b>connected</b> <span title="${expected}">`),
    body,
  );
});

test('the page names a single API server, and what is wrong with each while all are lost', async (t) => {
  const view = new FakeView();
  const { address } = await setUp(t, view);
  const note = async (api?: NonNullable<NodeView['api']>) => {
    view.nodeChanges = api === undefined ? {} : { api };
    const { body } = await ask(address, '/status');
    return /<dt>API server<\/dt><dd><b>\w+<\/b> <span title="(.*?)">/.exec(body)?.[1];
  };
  assert.equal(await note(), '192.0.2.1:6443: in use for 60 s');
  const one = [{ server: '192.0.2.1:6443', usedSince: FAKE_NOW - 60_000 }];
  const lost = { connected: false, staleForMs: 120_000 };
  assert.equal(
    await note({ ...lost, servers: one, err: 'HTTP 401: Unauthorized' }),
    'nothing for 2 min; the last state is served; 192.0.2.1:6443: HTTP 401: Unauthorized',
  );
  assert.equal(
    await note({ ...lost, servers: LOST_SERVERS, servedStateOf: 0 }),
    'nothing for 2 min; serving the state of 1970-01-01T00:00:00.000Z; ' +
      '192.0.2.1:6443: failing for 2 min: connect ECONNREFUSED; ' +
      '192.0.2.2:6443: used last, failing for 30 s: no answer to a probe within 10 s; ' +
      '192.0.2.3:6443: failing for 30 s: no answer to a probe within 10 s',
  );
});

test('a long query does not make the page longer', async (t) => {
  const { address } = await setUp(t, new FakeView({ services: 100 }));
  const open = Array.from({ length: 20 }, () => `open=${"'".repeat(700)}`).join('&');
  const { body } = await ask(address, `/status?${open}`);
  const { body: plain } = await ask(address, '/status');
  assert.equal(body.length, plain.length);
});

test('an open row shows endpoints with their shares; of very many the first ones, and a link to the others', async (t) => {
  const body = async (endpoints: number) => {
    const { address } = await setUp(t, new FakeView({ endpoints }));
    return (await ask(address, '/status?open=default/web:http')).body;
  };
  const three = await body(3);
  const texts = [
    '10.244.0.1:8080',
    '33 %',
    '>≤0.5ms<',
    '>≤16ms<',
    'local port 30000',
    'worker 0',
    'aria-expanded="true"',
  ];
  for (const text of texts) assert.ok(three.includes(text), text);
  assert.doesNotMatch(await body(200), /more, which/);
  const many = await body(250);
  assert.equal(many.match(/<th scope="row">10\.244\./g)?.length, 200);
  assert.ok(many.includes('And 50 more, which <a href="/status.csv">the CSV</a> has.'));
});

test('the policy allows its own script and style and nothing else', async (t) => {
  const { address } = await setUp(t);
  const { headers, body } = await ask(address, '/');
  const policy = String(headers['content-security-policy']);
  for (const element of ['style', 'script']) {
    const [, text = ''] = new RegExp(`<${element}>([\\s\\S]*?)</${element}>`).exec(body) ?? [];
    const hash = createHash('sha256').update(text).digest('base64');
    assert.ok(policy.includes(`${element}-src 'sha256-${hash}';`));
  }
  for (const rule of ["default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"]) {
    assert.ok(policy.includes(rule), rule);
  }
  assert.ok(!policy.includes('unsafe'));
  assert.equal(headers['cache-control'], 'no-store');
  assert.equal(headers['referrer-policy'], 'no-referrer');
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.doesNotMatch(body, /(?:src|href)="(?:https?:)?\/\//, 'nothing from elsewhere');
  assert.doesNotMatch(body, / style=| on[a-z]+=/, 'the policy would refuse it');
  assert.doesNotThrow(() => new Script(SCRIPT));
});

const EVIL = `<img src=x onerror=alert(1)>"'&</script>`;

class EvilView extends FakeView {
  override async node(): Promise<NodeView> {
    const node = await super.node();
    const families = node.families.map((family) => ({ ...family, lastSync: { at: 1, durationMs: 1, err: EVIL } }));
    return {
      ...node,
      nodeName: EVIL,
      version: EVIL,
      capture: { method: EVIL, why: EVIL },
      iptables: EVIL,
      drained: [EVIL],
      configNotInForce: EVIL,
      findings: [{ level: 'fail', found: EVIL, place: EVIL }],
      families,
    };
  }

  override *services(filter = {}): Iterable<ServiceView> {
    for (const service of super.services(filter)) yield this.#evil(service);
  }

  override service(...args: Parameters<FakeView['service']>): ServiceView | undefined {
    const service = super.service(...args);
    return service && this.#evil(service);
  }

  override events(): readonly EventView[] {
    return [{ id: 1, at: FAKE_NOW, level: 'warn', message: EVIL, fields: { [EVIL]: EVIL } }];
  }

  #evil(service: ServiceView): ServiceView {
    return {
      ...service,
      reason: EVIL,
      listeners: service.listeners.map((listener) => ({
        ...listener,
        endpoints: listener.endpoints.map((each) => ({ ...each, lastError: { at: 1, err: EVIL } })),
      })),
    };
  }
}

test('no text from outside is markup', async (t) => {
  const { address } = await setUp(t, new EvilView());
  const query = `?open=default/web:http&open=${encodeURIComponent(EVIL)}&q=${encodeURIComponent(EVIL)}`;
  const bodies = [(await ask(address, '/?open=default/web:http')).body, (await ask(address, `/${query}`)).body];
  const { seen, leave } = listen(address, '?open=default/web:http');
  t.after(leave);
  await until('an event', () => seen.events.length > 0);
  bodies.push(Object.values(seen.events[0] ?? {}).join());
  for (const body of bodies) {
    assert.ok(!body.includes('<img'));
    assert.ok(body.includes('&lt;img'));
    assert.equal(body.split('</script>').length - 1, body.includes('<html') ? 1 : 0);
  }
});

test('the stream sends all parts first, then the changed ones every two seconds', async (t) => {
  const { address, clock, view } = await setUp(t);
  const { seen, leave } = listen(address);
  t.after(leave);
  await until('the first event', () => seen.events.length === 1);
  assert.deepEqual(Object.keys(seen.events[0] ?? {}), ['mark', 'overview', 'plots', 'services', 'events']);
  view.nodeChanges = { healthy: false };
  clock.advance(1_999);
  assert.equal(seen.events.length, 1);
  clock.advance(1);
  await until('the second event', () => seen.events.length === 2);
  assert.deepEqual(Object.keys(seen.events[1] ?? {}), ['mark']);
  clock.advance(2_000);
  await until('the third event', () => seen.events.length === 3);
  assert.deepEqual(seen.events[2], {});
});

test('there are at most eight live pages; a closed one makes room', async (t) => {
  const { address } = await setUp(t);
  const lookers = Array.from({ length: 8 }, () => listen(address));
  t.after(() => {
    for (const { leave } of lookers) leave();
  });
  await until('all see something', () => lookers.every(({ seen }) => seen.events.length === 1));
  const refused = await ask(address, '/status/live');
  assert.equal(refused.status, 503);
  lookers[0]?.leave();
  let late = listen(address);
  t.after(() => late.leave());
  await until('another one sees something', () => {
    if (late.seen.status === 503) late = listen(address);
    return late.seen.events.length === 1;
  });
});

test('two downloads of each kind run at a time; a finished one makes room', async () => {
  const routes = new Map(statusRoutes(new FakeView(), new ManualClock()));
  for (const path of ['/status.json', '/status.csv']) {
    const clients = Array.from({ length: 4 }, () => new AbortController());
    const statusFor = async ({ signal }: AbortController) =>
      (await routes.get(path)?.({ query: new URLSearchParams(), signal, isLocal: true }))?.status;
    const [one, two, three, four] = clients as [AbortController, AbortController, AbortController, AbortController];
    assert.deepEqual([await statusFor(one), await statusFor(two), await statusFor(three)], [200, 200, 503]);
    // The one that was refused had no room, so it makes none.
    three.abort();
    assert.equal(await statusFor(four), 503);
    one.abort();
    assert.equal(await statusFor(four), 200);
  }
});

test('pages are made one at a time, and none for a client that has left', async () => {
  let looking = 0;
  class Watched extends FakeView {
    most = 0;
    override async node(): Promise<NodeView> {
      this.most = Math.max(this.most, ++looking);
      await new Promise(setImmediate);
      looking--;
      return super.node();
    }
  }
  const view = new Watched();
  const routes = new Map(statusRoutes(view, new ManualClock()));
  const { signal } = new AbortController();
  const ask = (client: AbortSignal) =>
    routes.get('/')?.({ query: new URLSearchParams(), signal: client, isLocal: true });
  const [page, , none] = await Promise.all([ask(signal), ask(signal), ask(AbortSignal.abort())]);
  assert.equal(view.most, 1);
  assert.match(String(page?.body), /<html/);
  assert.equal(none?.body, '');
});

test('nothing is rendered once every live page is closed', async (t) => {
  const { address, clock, view } = await setUp(t);
  const { seen, leave } = listen(address);
  await until('an event', () => seen.events.length === 1);
  leave();
  await until('the timer is gone', () => clock.pendingTimers === 0);
  const { made } = view;
  clock.advance(60_000);
  assert.equal(view.made, made);
});

test('the JSON has everything', async (t) => {
  const { address, view } = await setUp(t);
  const { headers, body } = await ask(address, '/status.json');
  assert.equal(headers['content-type'], 'application/json');
  const { node, history, events, services } = JSON.parse(body);
  assert.deepEqual([node.nodeName, history.length, events.length], ['node-1', 180, 2]);
  assert.deepEqual(services, JSON.parse(JSON.stringify([...view.services()])));
});

test('the CSV has a row for each Service port and each endpoint, and no formulas', async (t) => {
  const { address } = await setUp(t, new EvilView());
  const { headers, body } = await ask(address, '/status.csv');
  assert.equal(headers['content-type'], 'text/csv; charset=utf-8');
  const [head = '', ...rows] = body.trimEnd().split('\r\n');
  assert.match(head, /^# namespace,service,port_name,family,.*,connections,active,/);
  assert.equal(rows.length, 3 + 3 + 3);
  assert.match(
    rows[0] ?? '',
    /^default,web,http,IPv4,TCP,10\.96\.0\.0,80,30080,ok,"<img src=x onerror=alert\(1\)>""'&<\/script>",,30000,,,,1000,/,
  );
  assert.match(rows[1] ?? '', /,own,30000,10\.244\.0\.1:8080,active,/);
  class Formula extends FakeView {
    override *services(): Iterable<ServiceView> {
      for (const reason of ['=1+1', '+1', '-1', '@x', '\tx']) {
        for (const service of super.services()) yield { ...service, reason };
      }
    }
  }
  const formulas = await ask((await setUp(t, new Formula({ services: 1, endpoints: 0 }))).address, '/status.csv');
  for (const reason of ["'=1+1", "'+1", "'-1", "'@x", "'\tx"]) {
    assert.ok(formulas.body.includes(`,ok,${reason},`), reason);
  }
});

test('JSON, CSV and the live page may take as long as the client goes on reading; pages may not', async () => {
  const routes = statusRoutes(new FakeView(), new ManualClock());
  const query = new URLSearchParams();
  const byPart = await Promise.all(
    routes.map(async ([path, handler]) => {
      const client = new AbortController();
      const response = await handler({ query, signal: client.signal, isLocal: true });
      client.abort();
      return response.deadline === 'part' ? [path] : [];
    }),
  );
  assert.deepEqual(byPart.flat(), ['/status.json', '/status.csv', '/status/live']);
});
