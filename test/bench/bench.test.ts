import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CANDIDATES } from '../../bench/candidates.ts';
import { parseOptions } from '../../bench/options.ts';
import { parseDnsperf, parseIperf3, parseStreamLoad, parseUdpLoad, parseWrk } from '../../bench/parse.ts';
import { type Measurement, Report } from '../../bench/report.ts';
import { ROWS } from '../../bench/rows.ts';
import { parseOptions as parseScaleOptions } from '../../bench/scale/options.ts';
import { median, percentile, ratios, spread, summarize } from '../../bench/statistics.ts';
import { table } from '../../bench/table.ts';

const WRK = `    Latency     1.10ms  210.42us   5.08ms   90.55%
  Latency Distribution
     50%  950.00us
     99%    1.94ms
  62312 requests in 1.10s, 17.71MB read
Requests/sec:  56648.71
`;
const WRK_TROUBLE =
  '  Socket errors: connect 0, read 3, write 0, timeout 1\n  Non-2xx or 3xx responses: 17\nRequests/sec';
const DNSPERF = `  Queries sent:         90244
  Queries lost:         0 (0.00%)

  Response codes:       NOERROR 90244 (100.00%)
  Queries per second:   90178.890841
`;
const IPERF3 = { end: { sum_sent: { bits_per_second: 9 }, sum_received: { bytes: 2 ** 31, bits_per_second: 12.5e9 } } };

for (const [what, parse, output, values, complaints] of [
  ['iperf3: what the receiver got', parseIperf3, JSON.stringify(IPERF3), { gbits: 12.5, gibibytes: 2 }, []],
  ['wrk: percentiles in µs', parseWrk, WRK, { perSecond: 56648.71, p50: 950, p99: 1940 }, []],
  ['wrk: seconds', parseWrk, WRK.replace('1.94ms', '1.20s'), { perSecond: 56648.71, p50: 950, p99: 1.2e6 }, []],
  [
    'wrk: broken connections and error responses',
    parseWrk,
    WRK.replace('Requests/sec', WRK_TROUBLE),
    { perSecond: 56648.71, p50: 950, p99: 1940 },
    ['socket errors: connect 0, read 3, write 0, timeout 1', '17 responses that are errors'],
  ],
  ['dnsperf', parseDnsperf, DNSPERF, { perSecond: 90178.890841 }, []],
  [
    'dnsperf: lost queries and error answers',
    parseDnsperf,
    DNSPERF.replace('0 (0.00%)', '64 (0.07%)').replace('90244 (100.00%)', '90000 (99.73%), REFUSED 244 (0.27%)'),
    { perSecond: 90178.890841 },
    ['64 queries lost', 'response codes: NOERROR 90000 (99.73%), REFUSED 244 (0.27%)'],
  ],
  [
    'stream-load: what has arrived',
    parseStreamLoad,
    '{"bytes":1073741824,"seconds":2}',
    { gbits: 4.294967296, gibibytes: 1 },
    [],
  ],
  ['udp-load', parseUdpLoad, '{"perSecond":129000.5,"lost":0,"strange":0}\n', { perSecond: 129000.5 }, []],
  [
    'udp-load: lost and stray datagrams',
    parseUdpLoad,
    '{"perSecond":1,"lost":4,"strange":2}',
    { perSecond: 1 },
    ['4 datagrams lost', '2 wrong answers'],
  ],
] as const) {
  test(`the output of ${what}`, () => assert.deepEqual(parse(output), { values, complaints }));
}

test('a load generator that could not connect gives no figure', () => {
  const refused = JSON.stringify({ end: {}, error: 'unable to connect to server: Connection refused' });
  assert.throws(() => parseIperf3(refused), /iperf3: unable to connect/);
  assert.throws(() => parseIperf3('{"end":{}}'), /bits_per_second of iperf3/);
  assert.throws(() => parseWrk('unable to connect to 10.96.0.100:http Connection refused\n'), /Requests\/sec of wrk/);
});

const CONTESTANTS = [
  { name: 'fast', kind: 'ours' },
  { name: 'node', kind: 'ours' },
  { name: 'go', kind: 'peer' },
  { name: 'nginx', kind: 'peer' },
  { name: 'direct', kind: 'limit' },
] as const;
const RATE = { key: 'rate', label: 'rate', unit: '/s', decimals: 1, better: 'more', goals: [{ ratio: 1.2 }] } as const;
const DELAY = { key: 'delay', label: 'delay', unit: 'µs', decimals: 0, better: 'less', goals: [{ ratio: 1 }] } as const;

/** One measurement for each value, in rounds 0, 1, …; `undefined` fails. */
function measured(candidate: string, key: string, ...values: readonly (number | undefined)[]): Measurement[] {
  return values.map((value, round) => ({
    row: 'row',
    candidate,
    round,
    ...(value === undefined ? { failure: 'broken' } : { result: { values: { [key]: value }, complaints: [] } }),
  }));
}

describe('the comparison', () => {
  test('is with the peer whose median is highest, round by round, and never with a limit', () => {
    const report = new Report(CONTESTANTS, [
      ...measured('fast', 'rate', 12, 24, 39),
      ...measured('go', 'rate', 10, 20, 30),
      ...measured('nginx', 'rate', 19, 1, 1),
      ...measured('direct', 'rate', 99, 99, 99),
    ]);
    const comparison = { to: 'go', ratio: 1.2, least: 1.2, most: 1.3 };
    assert.deepEqual(report.verdicts('row', RATE), [{ goal: { ratio: 1.2 }, comparison, isMet: true }]);
  });

  test('is with the lowest where less is better, and the goal is then a limit', () => {
    const report = new Report(CONTESTANTS, [
      ...measured('fast', 'delay', 11),
      ...measured('go', 'delay', 10),
      ...measured('nginx', 'delay', 20),
    ]);
    const [verdict] = report.verdicts('row', DELAY);
    assert.deepEqual([verdict?.comparison?.to, verdict?.comparison?.ratio, verdict?.isMet], ['go', 1.1, false]);
  });

  test('needs a peer and a value of ours', () => {
    assert.equal(new Report(CONTESTANTS, measured('fast', 'rate', 1)).toBestPeer('row', RATE), undefined);
    assert.equal(new Report(CONTESTANTS, measured('go', 'rate', 1)).toBestPeer('row', RATE), undefined);
  });

  test('is also with whom a goal names, a limit included, and without a goal with the best peer', () => {
    const report = new Report(CONTESTANTS, [
      ...measured('fast', 'rate', 90),
      ...measured('nginx', 'rate', 50),
      ...measured('direct', 'rate', 100),
    ]);
    const metric = { ...RATE, goals: [{ ratio: 2 }, { ratio: 0.9, to: 'direct' }, { ratio: 1, to: 'go' }] };
    const told = report.verdicts('row', metric).map(({ comparison, isMet }) => [comparison?.to, isMet]);
    assert.deepEqual(told, [
      ['nginx', false],
      ['direct', true],
      [undefined, undefined],
    ]);
    const { goals: _, ...withoutGoal } = RATE;
    const [verdict, ...others] = report.verdicts('row', withoutGoal);
    assert.deepEqual([verdict?.comparison?.to, verdict?.isMet, others], ['nginx', undefined, []]);
    const same = { row: 'row', metric: 'rate', better: 'more', least: 0.9, most: 0.9, ratio: 0.9 };
    assert.deepEqual(report.goals([{ name: 'row', metrics: [metric] }])[1], {
      ...{ ...same, goal: 0.9, to: 'direct', isMet: true },
    });
    const lines = table(report, [{ name: 'row', what: 'a row', metrics: [metric] }]).split('\n');
    assert.match(lines.at(-2) ?? '', /^ +≥ 0\.90 +0\.90 direct +\(0\.90–0\.90\) +met$/);
  });

  test('is shown with goal, ratio and range, the other engine, medians and spread, and failures', () => {
    const report = new Report(CONTESTANTS, [
      ...measured('fast', 'rate', 1100, 1210, 1320),
      ...measured('node', 'rate', 550, undefined, 550),
      ...measured('go', 'rate', 1000, 1000, 1000),
      ...measured('nginx', 'rate', undefined),
    ]);
    const text = table(report, [{ name: 'row', what: 'a row', metrics: [RATE, DELAY] }]);
    const line = text.split('\n').find((each) => each.trimStart().startsWith('rate')) ?? '';
    assert.deepEqual(line.trim().split(/\s{2,}/), [
      ...['rate', '/s', '≥ 1.20', '1.21 go', '(1.10–1.32)', 'met', '2.20'],
      ...['1,210.0 ±9%', '550.0 ±0%!', '1,000.0 ±0%', 'FAILED', '–'],
    ]);
    assert.deepEqual(report.troubles(), ['row, node: broken', 'row, nginx: broken']);
  });
});

test('medians, ranges, spreads, percentiles and ratios by round', () => {
  assert.deepEqual([median([7]), median([10, 9, 100]), median([4, 1, 3, 2])], [7, 10, 2.5]);
  assert.deepEqual(summarize([3, 10, 4]), { median: 4, least: 3, most: 10 });
  assert.equal(summarize([]), undefined);
  assert.equal(spread({ median: 10, least: 9, most: 12 }), 0.15);
  assert.equal(spread({ median: 0, least: 0, most: 0 }), 0);
  const percentiles = [0, 20, 21, 50, 99, 100].map((percent) => percentile([5, 1, 4, 2, 3], percent));
  assert.deepEqual(percentiles, [1, 1, 2, 3, 5, 5]);
  // Rounds that one of the two lacks do not count.
  const byRound = (values: Record<number, number>) =>
    new Map(Object.entries(values).map(([round, value]) => [Number(round), value]));
  assert.deepEqual(ratios(byRound({ 0: 10, 1: 30, 3: 5 }), byRound({ 0: 5, 1: 10, 2: 1 })), [2, 3]);
});

test('options select rows, candidates and sizes, in the order of the table', () => {
  const choice = { rows: ['bulk', 'dns'], candidates: ['fast', 'go', 'extra'], usual: ['fast', 'go'] };
  const { rows, candidates } = parseOptions([], choice)!;
  assert.deepEqual([rows, candidates], [choice.rows, choice.usual]);
  assert.deepEqual(parseOptions(['--rows', 'dns,bulk'], choice)?.rows, ['bulk', 'dns']);
  const scale = parseScaleOptions(['--quick', '--services', '1000,5,200', '--capture', 'iptables-legacy,nft']);
  assert.deepEqual(
    [scale?.services, scale?.captures],
    [
      [5, 200, 1_000],
      ['nft', 'iptables-legacy'],
    ],
  );
  assert.throws(() => parseOptions(['--rows', 'bulk,udp'], choice), /--rows knows no "udp"; it knows bulk, dns/);
  assert.throws(() => parseOptions(['--rounds', '0'], choice), /--rounds takes a whole number/);
  assert.throws(() => parseScaleOptions(['--services', '50001']), /from 1 to 50000, not "50001"/);
  assert.equal(parseScaleOptions(['--source', 'manifests', '--files', '10'])?.files, 10);
  assert.throws(() => parseScaleOptions(['--files', '10']), /--files needs --source manifests/);
  assert.throws(() => parseScaleOptions(['--sevices', '1']), /sevices/);
});

test('every row has one congestion control for everybody, and its goals name candidates', () => {
  const names = new Set(CANDIDATES.map(({ name }) => name));
  for (const { name, congestionControl, metrics } of ROWS) {
    assert.equal(congestionControl, name.endsWith('-bbr') ? 'bbr' : 'cubic', name);
    for (const { to } of metrics.flatMap(({ goals = [] }) => goals)) assert.ok(to === undefined || names.has(to), name);
  }
});
