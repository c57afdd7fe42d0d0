import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HealthChecks } from '../../src/http/health-checks.ts';
import type { HealthCheck } from '../../src/model/service-port.ts';

function harness() {
  const told: (HealthCheck | undefined)[] = [];
  const checks = new HealthChecks({ update: (_service, check) => told.push(check) });
  const update = (family: 'IPv4' | 'IPv6', localEndpoints: number | undefined) =>
    checks.update(
      family,
      new Map([['a/b', localEndpoints === undefined ? undefined : { port: 30_000, localEndpoints }]]),
    );
  return { told, update };
}

test('a Service of both families is as healthy as the better one says, and gone when both are', () => {
  const { told, update } = harness();
  update('IPv4', 1);
  update('IPv6', 2);
  update('IPv6', 0);
  update('IPv4', undefined);
  update('IPv6', undefined);
  assert.deepEqual(
    told.map((check) => check?.localEndpoints),
    [1, 2, 1, 0, undefined],
  );
});
