import assert from 'node:assert/strict';
import { test } from 'node:test';
import { STATUS } from '../../src/cli/status.ts';
import type { NodeView, ServiceView } from '../../src/model/view.ts';
import { noCounters } from '../../src/operate/view/traffic.ts';
import { FAKE_NOW, FakeView, LOST_SERVERS, SEVERAL_SERVERS } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { controlOf } from './control-of.ts';
import { RecordingTerminal } from './recording-terminal.ts';
import { runCommand } from './run-command.ts';

async function status(node: Partial<NodeView> = {}, service: Partial<ServiceView> = {}, ...argv: readonly string[]) {
  const view = new FakeView();
  view.nodeChanges = node;
  const [first, ...others] = [...view.services()];
  view.services = function* () {
    yield { ...(first as ServiceView), ...service };
    yield* others;
  };
  const terminal = new RecordingTerminal();
  const tools = { clock: new ManualClock(), connect: () => controlOf(view), onInterrupt: () => () => {} };
  const code = await runCommand(STATUS, argv, terminal, tools);
  return { code, printed: terminal.printed };
}

test('status is one line, and 0 while all is well', async () => {
  assert.deepEqual(await status(), {
    code: 0,
    printed: '3 Service ports: 1 empty, 2 ok; rules of IPv4 synced 4s ago; API server 192.0.2.1:6443 connected\n',
  });
});

test('status is 1 when a Service is down, rules fail, the API server is away, or the proxy is unhealthy', async () => {
  const down = await status({}, { state: 'down' });
  assert.deepEqual([down.code, down.printed.split(';')[0]], [1, '3 Service ports: 1 down, 1 empty, 1 ok']);
  const failed = { at: FAKE_NOW, durationMs: 1, err: 'no\nroom' };
  const family = { family: 'IPv4', servicePorts: 3, pending: 2, lastSync: failed } as const;
  const rules = await status({ families: [family] });
  assert.deepEqual(rules.code, 1);
  assert.match(rules.printed, /; rules of IPv4 never synced, now failing: no\\u000aroom, 2 Services waiting; API/);
  const away = await status({ api: { connected: false, staleForMs: 61_000, servers: [] } });
  assert.deepEqual([away.code, away.printed.includes('; API server lost for 1m1s\n')], [1, true]);
  const one = { connected: false, staleForMs: 61_000, servers: [{ server: '192.0.2.1:6443', usedSince: 0 }] };
  const refused = await status({ api: { ...one, err: 'HTTP 401: Unauthorized' } });
  assert.match(refused.printed, /; API server lost for 1m1s \(192\.0\.2\.1:6443: HTTP 401: Unauthorized\)\n$/);
  const lost = await status({ api: { ...one, servers: LOST_SERVERS, err: 'of the first' } });
  const each =
    '192.0.2.1:6443: failing for 2m: connect ECONNREFUSED, ' +
    '192.0.2.2:6443: used last, failing for 30s: no answer to a probe within 10 s, ' +
    '192.0.2.3:6443: failing for 30s: no answer to a probe within 10 s';
  assert.ok(lost.printed.endsWith(`; API server lost for 1m1s (${each})\n`), lost.printed);
  const several = await status({ api: { connected: true, staleForMs: 0, servers: SEVERAL_SERVERS } });
  assert.deepEqual([several.code, several.printed.includes('; API server 192.0.2.2:6443 connected\n')], [0, true]);
  const served = await status({ api: { connected: false, staleForMs: 61_000, servers: [], servedStateOf: 0 } });
  assert.match(served.printed, /; API server lost for 1m1s, serving the state of 1970-01-01T00:00:00.000Z\n$/);
  assert.match((await status({ healthy: false })).printed, /^unhealthy; 3 Service ports/);
  assert.equal((await status({ healthy: false })).code, 1);
});

test('status says how many clients wait for an endpoint, which is no fault of the proxy', async () => {
  const { code, printed } = await status({}, { state: 'waiting', counters: { ...noCounters(), waiting: 12 } });
  assert.equal(code, 0);
  assert.match(printed, /^3 Service ports: 1 empty, 1 waiting, 1 ok; 12 clients waiting for an endpoint; rules /);
});

test('status names what is wrong with files, which by itself is no outage', async () => {
  const findings = [
    { level: 'warn', found: 'A manifest file cannot be used\n; its last good state is kept', place: 'web.yaml:3' },
    { level: 'fail', found: 'another' },
  ] as const;
  const { code, printed } = await status({ findings });
  const named = 'A manifest file cannot be used\\u000a; its last good state is kept (web.yaml:3) and 1 more';
  assert.deepEqual([code, printed.endsWith(`; API server 192.0.2.1:6443 connected; ${named}\n`)], [0, true], printed);
  assert.deepEqual(JSON.parse((await status({ findings }, {}, '-o', 'json')).printed).findings, findings);
});

test('status of a proxy that serves files has no API server, and JSON is for machines', async () => {
  const node = { api: undefined } as unknown as NodeView;
  assert.match((await status(node)).printed, /; Services from files\n$/);
  const capture = { method: 'nft', why: '--capture says so' };
  const { code, printed } = await status({ capture }, { state: 'degraded' }, '-o', 'json');
  const document = JSON.parse(printed);
  assert.deepEqual([code, document.ok, document.healthy], [0, true, true]);
  const none = { down: 0, waiting: 0, pending: 0, idle: 0 };
  assert.deepEqual(document.servicePorts, { ...none, empty: 1, degraded: 1, ok: 1 });
  assert.equal(document.waiting, 0);
  assert.deepEqual(document.capture, capture);
});
