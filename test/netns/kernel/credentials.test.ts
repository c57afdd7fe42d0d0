import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { ApiServer } from '../api-server.ts';
import { metric, testEnvironment } from '../harness.ts';
import { serviceObjects, sliceObject } from '../manifests.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

/** Its answers have expired, so that each request runs it. */
const PLUGIN = `#!/bin/sh
if [ -e "$(dirname "$0")/bad" ]
then echo '{"status":{}}'
else echo '{"status":{"token":"good","expirationTimestamp":"2020-01-01T00:00:00Z"}}'
fi
`;

describe('credentials of an exec plugin', () => {
  const environment = testEnvironment('fresh');

  const webOf = (clusterIP: string) => {
    const ports = [{ port: 80, target: 8080 }];
    const name = `web-${clusterIP.replaceAll('.', '-')}`;
    const addresses = POD_ADDRESSES.map((address) => ({ address }));
    return [...serviceObjects({ name, clusterIP, ports }), sliceObject(name, ports, addresses)];
  };

  test('an answer without a token is not kept: what is missed shows, and changes arrive once the plugin is well', async () => {
    const api = await ApiServer.start(environment.topology.node, '127.0.0.1', { token: 'good' });
    await api.set(...webOf('10.96.0.1'));
    writeFileSync(environment.temporary('plugin'), PLUGIN, { mode: 0o700 });
    const path = environment.temporary('kubeconfig');
    const kubeconfig = {
      clusters: [{ name: 'c', cluster: { server: api.url } }],
      users: [{ name: 'u', user: { exec: { command: './plugin' } } }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    };
    writeFileSync(path, JSON.stringify(kubeconfig));
    await environment.startProxy({ source: ['--kubeconfig', path] });
    await environment.waitForRules('10.96.0.1', 1);

    writeFileSync(environment.temporary('bad'), '');
    api.endWatches();
    const lost = /^Cannot watch the API server; /;
    const line = await waitFor('the line', () => environment.proxy.log.find(({ msg }) => lost.test(msg)));
    assert.match(String(line['err']), /the exec plugin gives no credentials: its answer has neither a token nor/);
    await api.set(...webOf('10.96.0.2'));
    await waitFor(
      'the metric',
      async () => metric(await environment.metricsText(), 'userspace_proxy_api_stale_seconds') > 0,
    );
    const { body } = await environment.node.call('httpGet', { url: 'http://127.0.0.1:10249/status.json' });
    assert.equal(JSON.parse(body).node.api.connected, false);

    rmSync(environment.temporary('bad'));
    await environment.waitForRules('10.96.0.2', 1);
    await waitFor(
      'the metric',
      async () => metric(await environment.metricsText(), 'userspace_proxy_api_connected') === 1,
    );
  });
});
