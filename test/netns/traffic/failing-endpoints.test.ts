import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { metric, testEnvironment, UDP } from '../harness.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const DNS = { name: 'dns', port: 53, target: UDP['udp-name'], protocol: 'UDP' } as const;

const PER_SECOND = 1000;

/** How many questions are asked while a pod is down, and between two pods. */
const QUESTIONS_PER_STEP = 500;

describe('endpoints that fail, through the whole program', () => {
  const environment = testEnvironment({});

  test('no question of a thousand a second is lost while the pods of a DNS Service roll', async () => {
    const service = { name: 'dns', clusterIP: environment.clusterIP(), ports: [DNS], endpoints: POD_ADDRESSES };
    const annotations = { 'kube-userspace-proxy/udp-replay': '300ms' };
    const write = (endpoints: readonly string[]): void => {
      environment.write({ ...service, endpoints, annotations });
    };
    write(POD_ADDRESSES);
    await environment.waitForRules(service.clusterIP, 1);
    const target = { host: service.clusterIP, port: DNS.port };
    const queries = await environment.client.call('startQueries', { ...target, perSecond: PER_SECOND });
    const askMore = async () => {
      const before = await environment.client.call('askedSoFar', { queries });
      const isSo = async () =>
        (await environment.client.call('askedSoFar', { queries })) >= before + QUESTIONS_PER_STEP;
      await waitFor('questions', isSo);
    };
    for (const [i, pod] of environment.pods.entries()) {
      await askMore();
      // The program ends before the proxy knows. It takes along the questions that it has not read.
      await pod.call('unlisten', { port: DNS.target });
      await askMore();
      write(POD_ADDRESSES.filter((_, index) => index !== i));
      await askMore();
      await pod.serve(DNS.target, 'udp-name');
      write(POD_ADDRESSES);
    }
    await askMore();
    const { asked, answered, names } = await environment.client.call('stopQueries', { queries });
    assert.equal(answered, asked, JSON.stringify(names));
    assert.deepEqual(Object.keys(names).toSorted(), ['pod-1', 'pod-2', 'pod-3']);
    const text = await environment.metricsText();
    const of = (name: string, ...labels: string[]) =>
      metric(text, `userspace_proxy_${name}`, 'service="dns"', ...labels);
    assert.ok(of('connect_failures_total', 'reason="refused"') > 0, 'pods have refused');
    assert.equal(of('udp_not_kept_total'), 0);
    assert.equal(of('turned_away_total'), 0);
  });
});
