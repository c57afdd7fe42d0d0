import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before, describe, test } from 'node:test';
import { load } from 'js-yaml';
import { TCP, testEnvironment, UDP } from '../netns/harness.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { commandsOf } from '../support/walk.ts';
import { configurationFor } from './alerts.ts';
import { Prometheus } from './prometheus.ts';

const PROXY = '127.0.0.1:10249';
const CLIENTS = 3;
const WEB = { namespace: 'shop', service: 'web' };
const WEB_SERVICE = {
  name: WEB.service,
  namespace: WEB.namespace,
  annotations: { 'kube-userspace-proxy/wait-for-endpoints': '5m' },
  endpoints: [],
};

const GUIDE = 'docs/waiting-room.md';
const WAITING = /`(sum\(userspace_proxy_clients_waiting[^`]*)`/;

/** A query in the guide's text. */
function inText(pattern: RegExp): string {
  const text = readFileSync(new URL(`../../${GUIDE}`, import.meta.url), 'utf8');
  return pattern.exec(text)?.[1] ?? assert.fail(`${GUIDE} has no ${pattern}`);
}

/** What the guide's readers have written into their autoscalers. */
interface Recipe {
  readonly externalRules?: readonly { readonly seriesQuery: string; readonly metricsQuery: string }[];
  readonly spec?: {
    readonly triggers?: readonly { readonly metadata: Readonly<Record<string, string>> }[];
    readonly metrics?: readonly {
      readonly external: {
        readonly metric: { readonly selector: { readonly matchLabels: Readonly<Record<string, string>> } };
      };
    }[];
  };
}

describe(`the queries of ${GUIDE}, for a Service at zero replicas`, () => {
  const environment = testEnvironment({});
  const recipes = commandsOf(GUIDE, 'yaml').map(({ script }) => load(script) as Recipe);
  const [rule] = recipes.flatMap(({ externalRules = [] }) => externalRules);
  const [trigger] = recipes.flatMap(({ spec }) => spec?.triggers ?? []);
  const [target] = recipes.flatMap(({ spec }) => spec?.metrics ?? []);
  let prometheus: Prometheus;

  const value = async (query: string): Promise<number | undefined> => {
    const [series, ...others] = await prometheus.instant(query);
    assert.deepEqual(others, [], query);
    return series?.values[0];
  };
  const becomes = (query: string, isRight: (value: number) => boolean) =>
    waitFor(`${query} to be as expected`, async () => {
      const now = await value(query);
      return now !== undefined && isRight(now);
    });

  /** As the Prometheus adapter fills it in for the HPA, which adds its own namespace. */
  const forHpa = (query: string) => {
    const labels = { namespace: WEB.namespace, ...target?.external.metric.selector.matchLabels };
    const matchers = Object.entries(labels).map(([name, text]) => `${name}="${text}"`);
    return query.replaceAll('<<.LabelMatchers>>', matchers.join());
  };

  before(async () => {
    prometheus = await Prometheus.start(environment.topology.node, {
      agent: environment.node,
      directory: environment.temporary('prometheus'),
      configuration: configurationFor([PROXY], { interval: '1s' }),
    });
  });

  test('they count those who wait, and those who are served', async () => {
    const { client } = environment;
    const service = await environment.serve({ ...WEB_SERVICE, ports: [{ port: 80, target: TCP.echo }] });
    const queries = [trigger?.metadata['query'] ?? '', forHpa(rule?.metricsQuery ?? '')];
    const rate = forHpa(inText(/`(sum\(rate\(userspace_proxy_connections_total[^`]*)`/));
    for (const query of [...queries, rate]) await becomes(query, (count) => count === 0);

    const waiting = await client.call('openMany', { ...service, count: CLIENTS });
    for (const query of queries) await becomes(query, (count) => count === CLIENTS);
    await becomes(rate, (perSecond) => perSecond > 0);
    const found = await prometheus.instant(rule?.seriesQuery ?? '');
    assert.ok(found.some(({ labels }) => labels['namespace'] === WEB.namespace && labels['service'] === WEB.service));

    environment.write({ ...service, endpoints: [POD_ADDRESSES[0]] });
    await becomes(inText(WAITING), (count) => count === 0);
    for (const query of queries) assert.equal(await value(query), CLIENTS);
    for (const connection of waiting) await client.call('reset', { connection });
    for (const query of queries) await becomes(query, (count) => count === 0);
  });

  test('what is added for UDP counts those who wait', async () => {
    const { client } = environment;
    const ports = [{ port: 53, target: UDP['udp-echo'], protocol: 'UDP' }] as const;
    const { host, port } = await environment.serve({ ...WEB_SERVICE, ports });
    const { socket } = await client.call('udpOpen', {});
    // It waits for as long as it goes on asking.
    await client.call('startUdpStream', { socket, host, port, everyMs: 1_000 });
    await becomes(inText(WAITING), (count) => count === 1);
    await client.call('udpClose', { socket });
    await becomes(inText(WAITING), (count) => count === 0);
  });
});
