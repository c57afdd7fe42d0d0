import { KubernetesSource } from '../../../src/kubernetes/kubernetes-source.ts';
import { createApiServers } from '../../../src/kubernetes/open-access.ts';
import type { Clock } from '../../../src/util/clock.ts';
import type { Log } from '../../../src/util/log.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { NO_API_SERVERS } from '../../support/api-servers.ts';
import type { Observation } from '../several-servers.ts';

/*
 * Follows several API servers as the proxy does, and prints each change in its order. The one timer that waits for
 * minutes, which leads back to the preferred server, waits for seconds.
 */

const [kubeconfig = '', urls = ''] = process.argv.slice(2);
const clock: Clock = {
  now: () => systemClock.now(),
  wallNow: () => systemClock.wallNow(),
  after: (ms, callback) => systemClock.after(ms >= 300_000 ? ms / 60 : ms, callback),
};
const print = (observation: Observation) => process.stdout.write(`${JSON.stringify(observation)}\n`);
const log: Log = {
  error: (message, fields) => print({ kind: 'log', message, err: String(fields?.['err'] ?? '') }),
  warn: (message, fields) => print({ kind: 'log', message, err: String(fields?.['err'] ?? '') }),
  info: () => {},
  v: () => undefined,
};
const api = await createApiServers({
  ...NO_API_SERVERS,
  kubeconfig,
  apiServers: urls.split(',').map((url) => new URL(url)),
  qps: 50,
  burst: 100,
  clock,
  random: Math.random,
  log,
});
const source = new KubernetesSource({ api, clock, random: Math.random, log });
let used: string | undefined;
const look = () => {
  const now = source.status().servers.find(({ usedSince }) => usedSince !== undefined)?.server;
  if (now !== undefined && now !== used) print({ kind: 'used', server: now });
  used = now;
};
setInterval(look, 20);
await source.start({
  apply: (events) => {
    for (const { kind, key, value } of events) {
      if (kind !== 'EndpointSlice') continue;
      print({ kind: 'slice', key, address: value?.group.addresses[0]?.address ?? '' });
    }
  },
  synced: () => print({ kind: 'synced' }),
});
