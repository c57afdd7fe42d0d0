import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ASCII, type Size, UNICODE } from '../../../src/client/top/frame.ts';
import type { Look } from '../../../src/client/top/look.ts';
import { render, type Scene, shownOf } from '../../../src/client/top/render.ts';
import { initialState } from '../../../src/client/top/state.ts';
import type { NodeView } from '../../../src/contracts/view.ts';
import { FAKE_NOW, FakeView } from '../../fakes/fake-view.ts';
import { lookAt, sceneOf, textOf, WEB } from './scenes.ts';

const VGA: Size = { columns: 80, rows: 24 };

function shows(scene: Scene, size: Size = VGA): string[] {
  return textOf(render(scene, size, ASCII)).map((text) => text.trimEnd());
}

async function lookAtNode(changes: Partial<NodeView>): Promise<Look> {
  const view = new FakeView();
  view.nodeChanges = changes;
  return await lookAt(view);
}

describe('the screen', () => {
  test('has the node, the totals, the history and the Services on it', async () => {
    const lines = shows(sceneOf(await lookAt(new FakeView({ endpoints: 12 }))));
    assert.match(lines[0] ?? '', /^healthy {2}kube-userspace-proxy 0\.1\.0 on node-1, up 1h +\d\d:\d\d:20$/);
    assert.deepEqual(lines.slice(1, 5), [
      'Services 3  ok 2  degraded 0  empty 1  pending 0',
      'API connected  IPv4 synced 4s ago in 12ms',
      'RSS 90M  fds 120/1.0M  loop p99 1.2 ms  max 4.5 ms  engine fast, 2 workers',
      'Connections 45  new/s 0  in/s 0  out/s 0  failed/s 0',
    ]);
    assert.match(lines[5] ?? '', /^new\/s [ .:=+*#-]{54} peak 150 in 4m30s$/);
    assert.deepEqual(lines.slice(6), [
      'default/web:http  TCP 10.96.0.0:80',
      'SERVICE                       STATE     ENDP  CONNS CONN/Sv  IN/S  OUT/S  FAIL/S',
      'default/web:http              ok       12/12     14       0     0      0       0',
      'kube-system/dns:dns           ok       12/12     15       0     0      0       0',
      'shop/empty                    empty      0/0     16       0     0      0       0',
      ...Array.from({ length: 12 }, () => ''),
      'q quit  ? help  Enter endpoints  / filter  p pause  <> sort  r reverse  every 2s',
    ]);
  });

  test('has the endpoints of an opened Service on it', async () => {
    const look = await lookAt(undefined, WEB);
    assert.deepEqual(shows(sceneOf(look, { opened: WEB })).slice(6, 11), [
      'default/web:http  TCP 10.96.0.0:80, NodePort 30080  ok',
      'ENDPOINT^                  STATE     CONNS  CONN/S  IN/S  OUT/S  FAIL/S  DIAL ms',
      '10.244.0.1:8080            active       15       0     0      0       0        2',
      '10.244.0.2:8080            active       16       0     0      0       0        2',
      '10.244.0.3:8080            active        0       0     0      0       0        2',
    ]);
  });

  const sizes: readonly Size[] = [VGA, { columns: 40, rows: 10 }, { columns: 200, rows: 60 }, { columns: 8, rows: 4 }];
  const views: readonly (readonly [what: string, changes: Partial<Scene['state']>])[] = [
    ['Services', {}],
    ['endpoints', { opened: WEB }],
    ['help', { isHelping: true }],
    ['a long filter', { isTyping: true, filter: 'x'.repeat(300) }],
  ];
  for (const size of sizes) {
    for (const [what, changes] of views) {
      test(`is filled exactly at ${size.columns} x ${size.rows}: ${what}`, async () => {
        const name = `${'n'.repeat(63)}/${'s'.repeat(63)}:${'p'.repeat(15)}` as const;
        const plain = await lookAt(new FakeView({ services: 100, endpoints: 200 }), WEB);
        const services = plain.services.map((row) => ({ ...row, name }));
        const frame = render(sceneOf({ ...plain, services }, changes), size, UNICODE);
        assert.equal(frame.length, size.rows);
        for (const text of textOf(frame)) assert.equal(text.length, size.columns, text);
      });
    }
  }

  test('has what matters most on a small one', async () => {
    assert.deepEqual(shows(sceneOf(await lookAt()), { columns: 40, rows: 8 }), [
      'healthy  kube-userspace-proxy 0.1.0 on ~',
      'Connections 45  new/s 0  in/s 0  out/s 0',
      'default/web:http  TCP 10.96.0.0:80',
      'SERVICE                           STATE',
      'default/web:http                  ok',
      'kube-system/dns:dns               ok',
      'shop/empty                        empty',
      'q quit  ? help  Enter endpoints  / filt~',
    ]);
  });

  test('says on a small one, too, that Services may be outdated', async () => {
    const away = await lookAtNode({ api: { connected: false, staleForMs: 75_000 } });
    const lines = shows(sceneOf(away), { columns: 40, rows: 8 });
    assert.equal(lines[1], 'API away for 1m15s  IPv4 synced 4s ago ~');
    assert.equal(lines.length, 8);
    const lastSync = { at: FAKE_NOW - 3_000, durationMs: 5, err: 'no room' };
    const failed = await lookAtNode({ families: [{ family: 'IPv4', servicePorts: 1, pending: 0, lastSync }] });
    assert.match(shows(sceneOf(failed), { columns: 40, rows: 8 })[1] ?? '', /IPv4 FAILED/);
  });

  test('has more columns on a wide one', async () => {
    const [titles] = shows(sceneOf(await lookAt()), { columns: 160, rows: 40 }).slice(7);
    assert.match(titles ?? '', /^SERVICE +PROT +ADDRESS +STATE +ENDP .* RETRY\/S +DIAL ms +TOTAL$/);
  });

  test('shows the rows around the selected one', async () => {
    const look = await lookAt(new FakeView({ services: 100 }));
    const services = { ...initialState(1).services, selected: look.services[50]?.key, offset: 10 };
    const frame = render(sceneOf(look, { services }), VGA, ASCII);
    assert.equal(frame[22]?.[0]?.text.trim(), 'team-10/svc-00050:http');
    assert.equal(frame[22]?.[0]?.style, 'selected');
    assert.equal(frame.filter((line) => line[0]?.style === 'selected').length, 1);
    assert.equal(
      textOf(frame)[6]?.trim(),
      'team-10/svc-00050:http: dials to 10.244.0.2:8080 failed  TCP 10.96.0.50:80',
    );
  });

  test('tells keys how much of it there is', async () => {
    const scene = sceneOf(await lookAt());
    assert.equal(shownOf(scene, VGA, ASCII).height, 15);
    assert.deepEqual(shownOf(scene, { columns: 50, rows: 24 }, ASCII).columns, ['SERVICE', 'STATE', 'CONN/S']);
  });
});

describe('the header', () => {
  const cases: readonly (readonly [what: string, changes: Partial<NodeView>, line: number, text: RegExp])[] = [
    ['poor health', { healthy: false }, 0, /^UNHEALTHY /],
    ['a lost API server', { api: { connected: false, staleForMs: 75_000 } }, 2, /^API away for 1m15s /],
    [
      'a failed sync',
      {
        families: [
          {
            family: 'IPv6',
            servicePorts: 1,
            pending: 4,
            lastSync: { at: FAKE_NOW - 3_000, durationMs: 5, err: 'no\nroom' },
          },
        ],
      },
      2,
      /IPv6 FAILED 3s ago: no\\u000aroom$/,
    ],
    ['no sync yet', { families: [{ family: 'IPv4', servicePorts: 1, pending: 0 }] }, 2, /IPv4 not synced yet$/],
    ['drained endpoints', { drained: ['10.0.0.1:80'] }, 2, /drained 1$/],
    ['a single worker', { workers: 1 }, 3, /engine fast, 1 worker$/],
    ['the other engine', { engine: 'node', descriptors: { open: 7 } }, 3, /fds 7 .* engine node/],
  ];
  for (const [what, changes, line, text] of cases) {
    test(`tells ${what}`, async () => assert.match(shows(sceneOf(await lookAtNode(changes)))[line] ?? '', text));
  }

  test('marks descriptors that run out', async () => {
    const styleAt = async (open: number) => {
      const frame = render(sceneOf(await lookAtNode({ descriptors: { open, limit: 1_000 } })), VGA, ASCII);
      return frame[3]?.find(({ text }) => text === `${open}/1.0K`)?.style;
    };
    assert.deepEqual([await styleAt(800), await styleAt(801)], ['plain', 'bad']);
  });

  test('says when Services come from files', async () => {
    const look = await lookAt();
    const { api: _api, ...node } = look.node;
    assert.match(shows(sceneOf({ ...look, node }))[2] ?? '', /^API none, from files /);
  });

  test('has room for both families, busy ones, too', async () => {
    const family = (name: 'IPv4' | 'IPv6', durationMs: number) => ({
      ...{ family: name, servicePorts: 1, pending: 0, lastSyncedAt: FAKE_NOW - 29_000 },
      lastSync: { at: FAKE_NOW - 29_000, durationMs },
    });
    const look = await lookAtNode({ families: [family('IPv4', 1_729), family('IPv6', 999)] });
    const { api: _api, ...node } = look.node;
    assert.equal(
      shows(sceneOf({ ...look, node }))[2],
      'API none, from files  IPv4 synced 29s ago in 1.7s  IPv6 synced 29s ago in 999ms',
    );
  });

  test('says nothing of a history that has not begun', async () => {
    const look = { ...(await lookAt()), history: [] };
    assert.equal(shows(sceneOf(look))[5], 'new/s  peak 0 in 0s');
  });
});

describe('the status line', () => {
  test('tells a problem before anything else, in one line', async () => {
    const scene = sceneOf(await lookAt(), { isTyping: true }, 'gone\u001b[2J');
    assert.equal(shows(scene)[6], 'gone\\u001b[2J');
  });

  test('shows the filter while it is typed, and then that there is one', async () => {
    const look = await lookAt();
    assert.equal(shows(sceneOf(look, { isTyping: true, filter: 'we' }))[6], 'Filter: we_  3 match');
    assert.equal(
      shows(sceneOf(look, { filter: 'we', isPaused: true }))[6],
      'PAUSED  Filter: we  default/web:http  TCP 10.96.0.0:80',
    );
  });

  test('says when the opened Service is gone', async () => {
    const look = await lookAt();
    assert.equal(shows(sceneOf(look, { opened: WEB }))[6], 'default/web:http IPv4 is not served any more');
  });

  test('tells the last error of the selected endpoint', async () => {
    const look = await lookAt(undefined, WEB);
    const [first] = look.opened?.endpoints ?? [];
    assert.ok(first && look.opened);
    const lastError = { at: FAKE_NOW - 5_000, err: 'refused' };
    const endpoints = [{ ...first, endpoint: { ...first.endpoint, lastError } }];
    const scene = sceneOf({ ...look, opened: { ...look.opened, endpoints } }, { opened: WEB });
    assert.match(shows(scene, { columns: 120, rows: 24 })[6] ?? '', / ok {2}last error 5s ago: refused$/);
  });
});
