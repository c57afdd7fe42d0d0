import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Environment } from '../netns/harness.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { waitFor } from '../netns/wait.ts';
import { configurationFor, deployedAlerts, JOB } from './alerts.ts';
import { type Choice, deployedDashboard, interpolate, type Panel, type Target, type Variable } from './dashboard.ts';
import { Prometheus, type RuleState, type Series } from './prometheus.ts';
import { Cluster, MAX_FLOWS, NAMESPACE, NODE_NAME, SERVICES, startLoad } from './workload.ts';

const PROXY = '127.0.0.1:10249';
const SCRAPE_SECONDS = 1;
const SHOWN_SECONDS = 30;
const PATIENCE_MS = 120_000;

/** As Grafana calculates them for these two figures. */
const BUILT_IN = { __rate_interval: `${4 * SCRAPE_SECONDS}s`, __range: `${SHOWN_SECONDS}s` };

/** Queries whose answer stays 0 under this load; those of all others become positive. */
const AT_REST = new Set([
  'Proxies: down',
  'Alerts firing: firing',
  'API server: changes missed for',
  'Open connections: waiting for an endpoint',
  'Accepting paused: {{instance}}',
  'Queued: Services',
  'Queued: seconds without a sync',
  'Syncs and failures: {{ip_family}} restore failures',
  'Stale conntrack entries deleted: {{ip_family}}',
  'Changes missed for: {{instance}}',
  'Starts: {{instance}}',
  'Log lines: dropped',
  // Endpoints in the same kernel answer within one turn of the event loop.
  'Time to connect to endpoints: mean',
  'Services with failing endpoints: D',
]);

type Choices = ReadonlyMap<string, Choice>;

const EVERYTHING: Choices = new Map<string, Choice>([
  ['job', JOB],
  ['instance', 'all'],
  ['namespace', 'all'],
  ['service', 'all'],
]);
const CHOSEN: Readonly<Record<string, Choices>> = {
  'everything is chosen': EVERYTHING,
  'one proxy, one namespace and some Services are chosen': new Map<string, Choice>([
    ['job', JOB],
    ['instance', PROXY],
    ['namespace', NAMESPACE],
    ['service', SERVICES],
  ]),
};

describe('a real Prometheus that scrapes the proxy under load', () => {
  const dashboard = deployedDashboard();
  const targets = dashboard.panels.flatMap((panel) => (panel.targets ?? []).map((target) => ({ panel, target })));
  let environment: Environment;
  let proxy: ProxyProcess;
  let prometheus: Prometheus;
  let stopLoad: () => Promise<void>;

  before(async () => {
    environment = await Environment.create();
    const cluster = await Cluster.start(environment);
    proxy = await environment.startProxy({
      source: ['--master', cluster.url, '--hostname-override', NODE_NAME],
      // Often, so that each rate finds a sync; flows that last until the next round, and too many of them.
      args: [
        ...['--iptables-sync-period', '1s', '--udp-timeout', '10s'],
        ...['--udp-max-flows-per-service', String(MAX_FLOWS)],
      ],
    });
    prometheus = await Prometheus.start(environment.topology.node, {
      agent: environment.node,
      directory: environment.temporary('prometheus'),
      configuration: configurationFor([PROXY], { interval: `${SCRAPE_SECONDS}s` }),
    });
    // So that it has seen every counter at rest.
    await waitFor('the proxy is scraped', async () => (await prometheus.instant(`up{job="${JOB}"} == 1`)).length > 0);
    stopLoad = await startLoad(environment, cluster);
  });

  after(async () => {
    await stopLoad?.();
    await environment?.remove();
  });

  const fill = (query: string, choices: Choices) => interpolate(query, { dashboard, choices, builtIn: BUILT_IN });
  const ask = ({ expr, instant = false }: Target, choices: Choices) => {
    const query = fill(expr, choices);
    return instant ? prometheus.instant(query) : prometheus.range(query, SHOWN_SECONDS);
  };

  test('the variables offer the job, the proxy, the namespace and the Services', async () => {
    const offered: Record<string, readonly string[]> = {
      job: [JOB],
      instance: [PROXY],
      namespace: [NAMESPACE],
      service: SERVICES,
    };
    for (const [when, choices] of Object.entries(CHOSEN)) {
      for (const variable of dashboard.templating.list.filter(({ type }) => type === 'query')) {
        const { selector, label } = labelValuesOf(variable);
        const expected = offered[variable.name];
        await waitFor(`$${variable.name} offers ${expected}, when ${when}`, async () => {
          const values = await prometheus.labelValues(fill(selector, choices), label);
          return JSON.stringify(values) === JSON.stringify(expected);
        });
      }
    }
  });

  for (const [when, choices] of Object.entries(CHOSEN)) {
    for (const { panel, target } of targets) {
      const name = nameOf(panel, target);
      test(`${name} has data when ${when}`, async () => {
        let last: readonly Series[] = [];
        const expected = AT_REST.has(name) ? (value: number) => value >= 0 : (value: number) => value > 0;
        // A scrape has the time of its beginning and may contain later events, so an age may be negative.
        const least = target.expr.includes('time()') ? -SCRAPE_SECONDS : 0;
        // NaN is 0 / 0, as in a second without a connect. A retry in a window without the beginning of its connection
        // makes infinity, while that window is shown.
        const isAbsurd = (value: number) => value < least || value === Number.POSITIVE_INFINITY;
        try {
          await waitFor(
            'data comes',
            async () => {
              last = await ask(target, choices);
              const values = last.flatMap((series) => series.values);
              return values.some((value) => Number.isFinite(value) && expected(value)) && !values.some(isAbsurd);
            },
            PATIENCE_MS,
          );
        } catch {
          assert.fail(`${fill(target.expr, choices)} gives ${JSON.stringify(last)}`);
        }
        const named = [...(target.legendFormat ?? '').matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
        assert.ok(
          last.every(({ labels }) => named.every((label) => labels[label] !== undefined)),
          `series have the labels ${named}: ${JSON.stringify(last)}`,
        );
      });
    }
  }

  test('nothing is shown of Services that are not chosen', async () => {
    const choices = new Map<string, Choice>([...EVERYTHING, ['service', ['another']]]);
    for (const { panel, target } of targets.filter(({ target: { expr } }) => expr.includes('$service'))) {
      assert.deepEqual(await ask(target, choices), [], nameOf(panel, target));
    }
  });

  test('the tables name the Services, and the two with failing endpoints', async () => {
    const servicesIn = async (title: string) => {
      const [target] = dashboard.panels.find((panel) => panel.title === title)?.targets ?? [];
      const series = target === undefined ? [] : await ask(target, EVERYTHING);
      return series.map(({ labels }) => `${labels['namespace']}/${labels['service']}`).sort();
    };
    const expected = {
      'Services with failing endpoints': ['shop/dead', 'shop/wobbly'],
      'Busiest Services': SERVICES.map((name) => `${NAMESPACE}/${name}`),
    };
    for (const [title, services] of Object.entries(expected)) {
      await waitFor(`${title}: ${services}`, async () => (await servicesIn(title)).join() === services.join());
    }
  });

  test('the start of the proxy is marked', async () => {
    const [started] = dashboard.annotations.list.flatMap(({ target }) => target?.expr ?? []);
    const [series] = await prometheus.instant(fill(started ?? '', EVERYTHING));
    const ago = Date.now() - (series?.values[0] ?? 0);
    assert.ok(ago > 0 && ago < 3_600_000, `${ago} ms ago`);
  });

  test('every alert is evaluated, and the right ones are about to fire', async () => {
    const active = [
      'KubeUserspaceProxyServiceUnreachable',
      'KubeUserspaceProxyEndpointsFailing',
      'KubeUserspaceProxyEndpointsEjected',
      'KubeUserspaceProxyUdpLimited',
    ];
    const isRight = ({ name, health, alerts }: RuleState) =>
      // On a busy machine the event loop may well be slow.
      health === 'ok' && (name === 'KubeUserspaceProxyEventLoopSlow' || alerts.length > 0 === active.includes(name));
    const isTold = ({ annotations }: RuleState['alerts'][number]) =>
      /^100% of the clients of shop\/dead get no answer/.test(annotations['description'] ?? '');
    let last: readonly RuleState[] = [];
    // All at once: for a moment, a slow proxy counts as down, or no client is turned away yet.
    const rules = await waitFor('the right alerts are active', async () => {
      last = await prometheus.rules();
      return last.every(isRight) && last.some(({ alerts }) => alerts.some(isTold)) && last;
    }).catch((error: Error) => {
      throw new Error(`${error.message}; seen: ${JSON.stringify(last)}`);
    });
    assert.deepEqual(
      rules.map(({ name }) => name),
      deployedAlerts().map(({ alert }) => alert),
    );
    const annotations = rules.flatMap(({ alerts }) => alerts.map((alert) => JSON.stringify(alert.annotations)));
    for (const text of annotations) assert.doesNotMatch(text, /<error|<no value>|\{\{/);
  });

  test('the end of a proxy is noticed', async () => {
    await stopLoad();
    proxy.kill('SIGKILL');
    await waitFor('the alert becomes active', async () => {
      const rules = await prometheus.rules();
      return rules.some(({ name, alerts }) => name === 'KubeUserspaceProxyDown' && alerts.length > 0);
    });
    const { targets = [] } = dashboard.panels.find(({ title }) => title === 'Proxies') ?? {};
    const counts = await Promise.all(targets.map((target) => ask(target, EVERYTHING)));
    assert.deepEqual(
      counts.map(([series]) => series?.values),
      [[0], [1]],
    );
  });
});

function nameOf({ title }: Panel, target: Target): string {
  return `${title}: ${target.legendFormat ?? target.refId}`;
}

/** Of `label_values(selector, label)`. */
function labelValuesOf({ name, definition = '' }: Variable): { selector: string; label: string } {
  const [, selector, label] = /^label_values\((.*), (\w+)\)$/.exec(definition) ?? [];
  if (selector === undefined || label === undefined) throw new Error(`$${name} is not asked for by label_values`);
  return { selector, label };
}
