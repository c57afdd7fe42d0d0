import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describeMetrics } from '../../scripts/references/metrics.ts';
import { type Address, parseAddress } from '../../src/model/address.ts';
import { COUNTERS, type Counters } from '../../src/model/data-plane.ts';
import { type Family, parseExposition } from './exposition.ts';
import { metricsOf } from './metrics-of.ts';

function describe(type: string, labels: Iterable<string>): string {
  return `${type} {${[...labels].sort().join(', ')}}`;
}

/** By name: type and labels. */
function documented(): Map<string, string> {
  const metrics = Object.values(describeMetrics()).flat();
  assert.equal(new Set(metrics.map(({ name }) => name)).size, metrics.length, 'a metric is documented twice');
  return new Map(metrics.map(({ name, type, labels }) => [name, describe(type, labels)]));
}

async function shown(): Promise<Map<string, string>> {
  const counters = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
  const endpoint = { address: parseAddress('10.0.0.1') as Address, port: 80 };
  const metrics = metricsOf(() => [
    {
      id: 'default/web',
      name: 'default/web',
      family: 'IPv4',
      protocol: 'TCP',
      localPort: 1,
      counters,
      endpoints: [{ endpoint, counters }],
    },
  ]);
  metrics.requestDone({ method: 'GET', host: 'api:6443', code: '200', durationMs: 1 });
  const read = async (parts: AsyncIterable<string>) => {
    let text = '';
    for await (const part of parts) text += part;
    return parseExposition(text);
  };
  let families = new Map<string, Family>();
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  // Garbage collections are reported a moment later.
  for (let seen = 0; seen === 0; seen = families.get('nodejs_gc_duration_seconds')?.samples.length ?? 0) {
    families = await read(metrics.render());
  }
  return new Map(
    [...families, ...(await read(metrics.renderEndpoints()))].map(([name, { type, samples }]) => {
      const labels = new Set(samples.flatMap((sample) => [...sample.labels.keys()]));
      labels.delete('le');
      return [name, describe(type, labels)] as const;
    }),
  );
}

test('docs/metrics.md lists what is served, with type and labels, and nothing else', async () => {
  assert.deepEqual(Object.fromEntries([...documented()].sort()), Object.fromEntries([...(await shown())].sort()));
});
