import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { metric, testEnvironment } from '../harness.ts';
import { PROGRAM } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS, waitFor } from '../wait.ts';

/** In the pods nothing else has this number, over TCP either. */
const DNS = { name: 'dns', port: 53, target: 9053, protocol: 'UDP' } as const;

const PER_SECOND = 1000;

/** How many questions are asked while a pod is down, and between two pods. */
const QUESTIONS_PER_STEP = 500;

describe('endpoints that fail, through the whole program', () => {
  const environment = testEnvironment({ args: ['--udp-first-reply-timeout', `${PATIENCE_MS}ms`] });

  async function command(...argv: string[]): Promise<string> {
    const { node } = environment.topology;
    return await node.output([PROGRAM, ...argv, `--control-socket=${environment.proxy.controlSocket}`]);
  }

  test('no question of a thousand a second is lost while the pods of a DNS Service roll', async () => {
    const service = { name: 'dns', clusterIP: environment.clusterIP(), ports: [DNS], endpoints: POD_ADDRESSES };
    const annotations = { 'kube-userspace-proxy/udp-replay': '300ms' };
    const write = (endpoints: readonly string[]): void => {
      environment.write({ ...service, endpoints, annotations });
    };
    for (const pod of environment.pods) await pod.serve(DNS.target, 'udp-name');
    write(POD_ADDRESSES);
    await environment.waitForRules(service.clusterIP, 1);
    const target = { host: service.clusterIP, port: DNS.port };
    const questions = { ...target, perSecond: PER_SECOND, patienceMs: PATIENCE_MS };
    const queries = await environment.client.call('startQueries', questions);
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

  test('an endpoint whose last dial failed is shown as failing until it answers', async () => {
    const [address, other] = POD_ADDRESSES;
    const [late, pod] = environment.pods;
    const target = 9054;
    await pod?.serve(target, 'name');
    const service = await environment.serve({
      name: 'late',
      ports: [{ port: 80, target }],
      endpoints: [address, other],
    });
    const state = async () => {
      const [listed] = JSON.parse(await command('list', 'test/late', '-o', 'json')).services;
      return listed?.listeners[0]?.endpoints[0]?.state;
    };
    assert.equal(await state(), 'active', 'nothing is known yet');
    // Each connection that comes to it fails there once and goes on to the other: one failure, or two, eject nobody.
    await environment.client.call('requests', { ...service, count: 2 });
    await waitFor('the failure to be shown', async () => (await state()) === 'failing');
    assert.match(await command('list', 'test/late', '-o', 'wide'), new RegExp(`${address}:${target} .* failing `));
    await late?.serve(target, 'name');
    await waitFor('the answer to be shown', async () => {
      await environment.client.call('request', service);
      return (await state()) === 'active';
    });
    for (const each of [late, pod]) await each?.call('unlisten', { port: target });
  });

  test('a pod that is cut off delays three clients, and is shown as ejected until it answers again', async () => {
    const service = await environment.serve({ name: 'cut-off' });
    const [pod] = environment.topology.pods;
    const of = async (name: string, ...labels: string[]) =>
      metric(await environment.metricsText(), `userspace_proxy_${name}`, 'service="cut-off"', ...labels);
    const list = () => command('list', 'test/cut-off', '-o', 'wide');
    await pod.output(['iptables', '-w', '-A', 'INPUT', '-p', 'tcp', '--syn', '-j', 'DROP']);
    await waitFor('its ejection', async () => {
      await environment.client.call('request', service);
      return (await of('ejected')) === 1;
    });
    assert.equal(await of('connect_failures_total', 'reason="timeout"'), 3);
    const { names, failures } = await environment.client.call('requests', { ...service, count: 40 });
    assert.deepEqual(failures, {});
    // The time of its first trial may come meanwhile.
    assert.ok((await of('connect_failures_total', 'reason="timeout"')) <= 4);
    assert.deepEqual(Object.keys(names).toSorted(), ['pod-2', 'pod-3']);
    assert.match(await list(), new RegExp(`${POD_ADDRESSES[0]}:8080 .* ejected `));
    assert.match(
      await command('explain', 'test/cut-off'),
      new RegExp(`${POD_ADDRESSES[0]}:8080 .*ejected: gets them last`),
    );
    const told = (text: string) =>
      environment.proxy.log.filter(({ msg, svc }) => svc === 'test/cut-off' && msg.includes(text));
    await waitFor('the line of its ejection', () => told('Ejected an endpoint').length > 0);
    assert.deepEqual(
      told('Ejected an endpoint').map(({ level, backend }) => [level, backend]),
      [['warn', `${POD_ADDRESSES[0]}:8080`]],
    );

    await pod.output(['iptables', '-w', '-D', 'INPUT', '-p', 'tcp', '--syn', '-j', 'DROP']);
    await waitFor('its readmission', async () => {
      await environment.client.call('request', service);
      return (await of('ejected')) === 0;
    });
    const after = await environment.client.call('requests', { ...service, count: 6 });
    assert.deepEqual(after.names, { 'pod-1': 2, 'pod-2': 2, 'pod-3': 2 });
    await waitFor('the line of the log', () => told('has answered').length === 1);
  });
});
