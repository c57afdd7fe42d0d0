import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { interfaceNames } from '../../scripts/references/interface.ts';

test('every name that docs/interface.txt promises is there', () => {
  const promised = readFileSync('docs/interface.txt', 'utf8').trim().split('\n');
  const names = new Set(interfaceNames());
  assert.deepEqual(
    promised.filter((name) => !names.has(name)),
    [],
    'These names are promised, and have gone. docs/compatibility.md says when one may: then take out its line.',
  );
  // It would promise nothing if it were not read.
  for (const name of [
    'annotation EndpointSlice kube-userspace-proxy/weight',
    'annotation Service kube-userspace-proxy/scheduler',
    'configuration field iptables.syncPeriod',
    'flag --manifests',
    'GET /healthz',
    'GET /v1/services parameter namespace',
    'json /v1/node findings.place',
    'json /v1/services listeners.endpoints.state',
    'json counters receivedBytes',
    'json status findings.found',
    'metric userspace_proxy_turned_away_total{reason}',
    'subcommand list --output',
  ]) {
    assert.ok(promised.includes(name), name);
  }
});
