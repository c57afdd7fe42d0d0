import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { deployedDashboard, interpolate, type Panel } from './dashboard.ts';
import { isDocumented, labelsOf, metricsIn } from './promql.ts';

const COLUMNS = 24;
const SOURCE = { type: 'prometheus', uid: `\${datasource}` };

describe('deploy/grafana/kube-userspace-proxy.json', () => {
  const dashboard = deployedDashboard();
  const panels = dashboard.panels.filter(({ type }) => type !== 'row');
  const targets = panels.flatMap((panel) => (panel.targets ?? []).map((target) => ({ panel, ...target })));
  const variables = dashboard.templating.list;

  test('it can be imported: an identity of its own, a schema of today, nothing of one Grafana in it', () => {
    assert.equal(dashboard.uid, 'kube-userspace-proxy');
    assert.ok(dashboard.schemaVersion >= 42);
    for (const key of ['id', '__inputs', '__requires', 'version']) assert.ok(!(key in dashboard), key);
  });

  test('its rows go from the whole to the single Service', () => {
    assert.deepEqual(
      dashboard.panels.filter(({ type }) => type === 'row').map(({ title }) => title),
      ['Overview', 'Traffic', 'Failures', 'Rules', 'API server', 'Process', 'Top Services'],
    );
  });

  test('panels have numbers of their own and do not overlap', () => {
    assert.equal(new Set(dashboard.panels.map(({ id }) => id)).size, dashboard.panels.length);
    const taken = new Set<string>();
    for (const { title, gridPos } of dashboard.panels) {
      for (const cell of cells(gridPos)) {
        assert.ok(!taken.has(cell), `${title} lies on another panel at ${cell}`);
        taken.add(cell);
      }
      assert.ok(gridPos.x + gridPos.w <= COLUMNS, title);
    }
  });

  test('each panel says what it shows, in a unit, from the source that was chosen', () => {
    assert.equal(new Set(panels.map(({ title }) => title)).size, panels.length);
    for (const { title, description, type, datasource, fieldConfig, targets = [] } of panels) {
      assert.match(description ?? '', /\.$/, title);
      assert.match(type, /^(stat|timeseries|table)$/, title);
      assert.ok(type === 'table' || fieldConfig?.defaults.unit !== undefined, title);
      assert.ok(targets.length > 0, title);
      assert.equal(new Set(targets.map(({ refId }) => refId)).size, targets.length, title);
      for (const source of [datasource, ...targets.map((target) => target.datasource)]) {
        assert.deepEqual(source, SOURCE, title);
      }
    }
  });

  test('the columns of a table have a name and a unit, and it is sorted by one of them', () => {
    for (const { title, targets = [], transformations = [], fieldConfig, options } of panels) {
      if (!targets.some(({ format }) => format === 'table')) continue;
      const { renameByName: names = {} } = transformations.find(({ id }) => id === 'organize')?.options ?? {};
      const columns = targets.map(({ refId }) => names[`Value #${refId}`]);
      assert.ok(!columns.includes(undefined), title);
      assert.deepEqual(
        fieldConfig?.overrides.map(({ matcher, properties: [unit] }) => [matcher.options, unit?.id]),
        columns.map((column) => [column, 'unit']),
        title,
      );
      assert.ok(columns.includes(options?.sortBy?.[0]?.displayName), title);
    }
  });

  test('it can be narrowed to a job, proxies, namespaces and Services', () => {
    assert.deepEqual(
      variables.map(({ name, type, multi = false }) => [name, type, multi]),
      [
        ['datasource', 'datasource', false],
        ['job', 'query', false],
        ['instance', 'query', true],
        ['namespace', 'query', true],
        ['service', 'query', true],
      ],
    );
    for (const { name, type, query, definition, datasource } of variables) {
      if (type === 'datasource') continue;
      assert.equal(definition, (query as { query: string }).query, name);
      assert.deepEqual(datasource, SOURCE, name);
    }
  });

  test('every query is narrowed by all that applies to it', () => {
    const ofTargets = targets.map(({ panel, refId, expr }) => [`${panel.title} ${refId}`, expr] as const);
    for (const [where, expr] of ofTargets) {
      for (const [, metric = '', selector = ''] of expr.matchAll(/\b([a-z]\w+)\{([^}]*)\}/g)) {
        const expected = ['job="$job"', 'instance=~"$instance"'];
        if (labelsOf(metric).includes('service')) expected.push('namespace=~"$namespace"', 'service=~"$service"');
        for (const matcher of expected) assert.ok(selector.includes(matcher), `${where}: ${metric} lacks ${matcher}`);
      }
    }
  });

  test('queries read only metrics that docs/metrics.md lists', () => {
    const annotations = dashboard.annotations.list.flatMap(({ name, target }) =>
      target === undefined ? [] : [[name, target.expr] as const],
    );
    const queries = [
      ...targets.map(({ panel, expr }) => [panel.title, expr] as const),
      ...variables.flatMap(({ name, definition }) => {
        const selector = /^label_values\((.*), \w+\)$/.exec(definition ?? '')?.[1];
        return selector === undefined ? [] : [[name, selector] as const];
      }),
      ...annotations,
    ];
    assert.equal(queries.length, targets.length + variables.length - 1 + 1);
    for (const [where, query] of queries) {
      const metrics = [...metricsIn(query)];
      assert.ok(metrics.length > 0, where);
      assert.deepEqual(
        metrics.filter((metric) => !isDocumented(metric)),
        [],
        where,
      );
    }
  });
});

test('variables are filled in as Grafana does', () => {
  const dashboard = deployedDashboard();
  const fill = (query: string, instance: string | readonly string[]) =>
    interpolate(query, {
      dashboard,
      choices: new Map([
        ['job', 'kube-userspace-proxy'],
        ['instance', instance],
      ]),
      builtIn: { __rate_interval: '1m' },
    });
  const query = `rate(x{job="$job", instance=~"\${instance}"}[$__rate_interval])`;
  const expected = (instance: string) => `rate(x{job="kube-userspace-proxy", instance=~"${instance}"}[1m])`;
  assert.equal(fill(query, 'all'), expected('.+'));
  assert.equal(fill(query, '10.0.0.1:80'), expected(String.raw`10\\.0\\.0\\.1:80`));
  assert.equal(fill(query, ['a', 'b.c']), expected(String.raw`(a|b\\.c)`));
  assert.throws(() => fill('x{service="$service"}', 'a'), /no value for \$service/);
});

test('the metrics of a query are found', () => {
  const query =
    'topk(3, sum by (job, le) (rate(a_bucket{b="c{d}", e=~"f"}[5m])) / on (g) group_left (h) i > bool 2) or vector(0)';
  assert.deepEqual([...metricsIn(query)], ['a_bucket', 'i']);
});

function cells({ x, y, w, h }: Panel['gridPos']): string[] {
  return Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`);
}
