import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import type { TestContext } from 'node:test';
import { KubernetesSource } from '../../src/kubernetes/kubernetes-source.ts';
import { type ApiServersSettings, createApiServers } from '../../src/kubernetes/open-access.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import type { FakeApiServer } from '../fakes/fake-api-server.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { NO_API_SERVERS } from '../support/api-servers.ts';
import { until } from '../support/until.ts';

/** A source that watches this server, in a time that only passes while something is waited for. */
export async function watchServer(t: TestContext, server: FakeApiServer, settings: Partial<ApiServersSettings> = {}) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const api = await createApiServers({
    ...NO_API_SERVERS,
    master: settings.kubeconfig === undefined ? server.url : undefined,
    clock,
    log,
    ...settings,
  });
  const source = new KubernetesSource({ api, clock, random: () => 0, log });
  const state = new Map<string, SourceEvent['value']>();
  const removed: string[] = [];
  let applied = 0;
  let synced = 0;
  await source.start({
    apply: (events) => {
      applied += 1;
      for (const { kind, key, value } of events) {
        if (value === undefined) removed.push(`${kind} ${key}`);
        if (value === undefined) state.delete(`${kind} ${key}`);
        else state.set(`${kind} ${key}`, value);
      }
    },
    synced: () => (synced += 1),
  });
  t.after(async () => {
    await source.stop();
    api.close();
    // That of a probe goes with its connection.
    await until('no timer is left', () => clock.pendingTimers === 0);
  });
  /** Lets time pass until the condition holds; fails when that takes longer than `withinMs`. */
  const reach = async (what: string, condition: () => boolean, withinMs = 20_000) => {
    const end = clock.now() + withinMs;
    // Sockets and files take real time: a few turns for each step of the clock, each behind a look at a file.
    for (let step = 0; !condition(); step += 1) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      await stat('/');
      if (step % 3 !== 2 || condition()) continue;
      assert.ok(clock.now() < end, `in vain within ${withinMs} ms: ${what}; ${JSON.stringify(log.lines.slice(-8))}`);
      clock.advance(250);
    }
  };
  return {
    api,
    clock,
    log,
    source,
    state,
    removed,
    reach,
    has: (name: string) => state.has(name),
    synced: () => synced,
    applied: () => applied,
  };
}
