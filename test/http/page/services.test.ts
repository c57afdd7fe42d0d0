import assert from 'node:assert/strict';
import { test } from 'node:test';
import { marks, overview } from '../../../src/http/page/overview.ts';
import { parsePageQuery, type SORTS } from '../../../src/http/page/page-query.ts';
import { ROWS_PER_PAGE, select, servicesTable } from '../../../src/http/page/services.ts';
import { noStates, type ServiceView, type StateCounts } from '../../../src/model/view.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

function selecting(services: number, query: string) {
  return select(new FakeView({ services }), parsePageQuery(new URLSearchParams(query)), new ManualClock());
}

async function names(services: number, query: string): Promise<string[]> {
  return (await selecting(services, query)).rows.map(({ name }) => name);
}

test('all states are counted, also of rows that are not shown', async () => {
  const { states, matching } = await selecting(60, 'q=dns');
  assert.deepEqual(states, { ...noStates(), ok: 58, degraded: 1, empty: 1 });
  assert.equal(matching, 1);
});

test('every word has to be somewhere in name, addresses, ports, protocol or state', async () => {
  for (const [query, expected] of [
    ['web http', ['default/web:http']],
    ['WEB', ['default/web:http']],
    ['udp', ['kube-system/dns:dns']],
    ['30080', ['default/web:http']],
    ['192.0.2.10', ['default/web:http']],
    ['10.96.0.2', ['shop/empty']],
    ['empty', ['shop/empty']],
    ['web dns', []],
  ] as const) {
    assert.deepEqual(await names(3, `q=${query}`), expected, query);
  }
});

test('healthy ones can be hidden', async () => {
  assert.deepEqual(await names(60, 'hide=healthy'), ['shop/empty', 'team-10/svc-00050:http']);
});

test('each column sorts by its values, the largest first, or the other way round', async () => {
  const columns: Partial<Record<(typeof SORTS)[number], (view: ServiceView) => number>> = {
    active: ({ counters }) => counters.active,
    rate: ({ rates }) => rates?.connections ?? 0,
    total: ({ counters }) => counters.connections,
    in: ({ rates }) => rates?.receivedBytes ?? 0,
    out: ({ rates }) => rates?.sentBytes ?? 0,
    received: ({ counters }) => counters.receivedBytes,
    sent: ({ counters }) => counters.sentBytes,
    endpoints: ({ listeners }) => listeners[0]?.endpointCount.active ?? 0,
  };
  for (const [sort, of] of Object.entries(columns)) {
    const values = (await selecting(40, `sort=${sort}`)).rows.map(of);
    assert.deepEqual(
      values,
      [...values].sort((a, b) => b - a),
      sort,
    );
    assert.ok(new Set(values).size > 1, sort);
    const reversed = (await selecting(40, `sort=${sort}&reversed=1`)).rows.map(of);
    assert.deepEqual(reversed, [...values].reverse(), sort);
  }
  assert.deepEqual((await names(60, '')).slice(0, 3), ['shop/empty', 'team-10/svc-00050:http', 'default/web:http']);
  assert.equal((await names(3, 'reversed=1')).at(-1), 'shop/empty');
  assert.equal((await names(3, 'sort=name'))[0], 'default/web:http');
  assert.equal((await names(3, 'sort=name&reversed=1'))[0], 'shop/empty');
});

test('many rows come in pages; a page beyond the end is the last one', async () => {
  const { rows, page, pages, matching } = await selecting(1_234, 'page=3');
  assert.deepEqual([rows.length, page, pages, matching], [ROWS_PER_PAGE, 3, 13, 1_234]);
  const last = await selecting(1_234, 'page=999');
  assert.deepEqual([last.page, last.rows.length], [13, 34]);
  const none = await selecting(3, 'q=nothing');
  assert.deepEqual([none.page, none.pages, none.rows.length], [1, 1, 0]);
});

test('only rows that are open have their endpoints', async () => {
  const { rows } = await selecting(3, 'sort=name&open=default/web:http');
  assert.deepEqual(
    rows.map(({ listeners }) => listeners[0]?.endpoints.length),
    [3, 0, 0],
  );
});

test('a look at many Services lets other work have its turn', async () => {
  const view = new FakeView({ services: 1_000 });
  // A clock on which each look takes a millisecond.
  let now = 0;
  const turns: number[] = [];
  const clock = {
    now: () => now++,
    wallNow: () => now,
    after: (_: number, callback: () => void) => {
      turns.push(view.made);
      setImmediate(callback);
      return { cancel: () => {} };
    },
  };
  await select(view, parsePageQuery(new URLSearchParams()), clock);
  assert.ok(turns.length > 100, `${turns.length} turns`);
  assert.ok(turns.every((made, index) => made - (turns[index - 1] ?? 0) <= 10));
});

const NODE = await new FakeView().node();

test('without Services, the page says whence they are read; a search that finds none is another thing', async () => {
  const query = parsePageQuery(new URLSearchParams());
  const node = { ...NODE, source: 'the files in /etc/services' };
  const none = servicesTable(await selecting(0, ''), query, node).text;
  assert.match(none, /No Service is served\. They are read from the files in \/etc\/services, and none is there\./);
  const searched = servicesTable(await selecting(1, 'q=nothing'), query, node).text;
  assert.match(searched, /No Service port matches\./);
  assert.doesNotMatch(searched, /none is there/);
});

test('until one interval has passed, rates are dashes, of each Service and of all', async () => {
  const query = parsePageQuery(new URLSearchParams());
  const selection = await selecting(1, '');
  const rows = selection.rows.map(({ rates: _, ...fresh }) => fresh);
  const dashes = (text: string) => text.match(/–/g)?.length ?? 0;
  assert.equal(dashes(servicesTable(selection, query, NODE).text), 0);
  assert.equal(dashes(servicesTable({ ...selection, rows }, query, NODE).text), 3);
  const { rates: _, ...node } = await new FakeView().node();
  assert.match(overview(node).text, /<dt>Failures<\/dt><dd><b>–<\/b>/);
  // A card also has its note as a title.
  assert.equal(dashes(overview(node).text), 5);
});

test('the page leads with how many Service ports need attention, and says nothing when none does', async () => {
  const node = await new FakeView().node();
  const of = (states: Partial<StateCounts>) => marks(node, { ...noStates(), ok: 5, ...states }).text;
  assert.doesNotMatch(of({}), /attention/);
  assert.doesNotMatch(of({ idle: 7 }), /attention/, 'nobody waits');
  assert.match(of({ degraded: 1 }), /class="mark warn" href="#services">1 needs attention</);
  assert.match(
    of({ empty: 1, degraded: 1_200, pending: 1 }),
    /class="mark bad" href="#services">1,202 need attention</,
  );
});

test('a long name can be cut, and is there as a whole', async () => {
  const query = parsePageQuery(new URLSearchParams());
  const { text } = servicesTable(await selecting(1, ''), query, NODE);
  assert.match(text, /class="cut" title="default\/web:http">▸ default\/web:http</);
});
