import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ControlPlane } from '../../src/main/control-plane.ts';
import type { Pipeline } from '../../src/main/pipeline.ts';
import { WILDCARDS } from '../../src/main/served-families.ts';
import type { IpFamily } from '../../src/model/address.ts';
import type { ServiceKey } from '../../src/model/service.ts';
import type { SourceEvent } from '../../src/model/source-event.ts';
import { ServiceTracker } from '../../src/state/service-tracker.ts';
import type { FamilyMetrics } from '../../src/telemetry/kube-proxy-metrics.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { settle } from '../support/until.ts';

class FakePipeline {
  readonly family: IpFamily;
  readonly tracker: ServiceTracker;
  readonly calls: string[] = [];
  readonly controller: unknown;
  readonly listeners = { adopt: () => {} };
  readonly bindAddress: string;

  constructor(family: IpFamily) {
    this.family = family;
    this.bindAddress = WILDCARDS[family];
    this.tracker = new ServiceTracker(family);
    const note = (what: string) => () => void this.calls.push(what);
    this.controller = {
      apply: (events: readonly SourceEvent[]) => this.tracker.apply(events),
      start: note('start'),
      pause: note('pause'),
      resume: note('resume'),
      stop: note('stop'),
      synced: note('synced'),
    };
  }
}

const slice = (name: string): SourceEvent => {
  const [key, service] = [`a/${name}-1`, `a/${name}`] as readonly ServiceKey[];
  const value = { kind: 'EndpointSlice', key, service, group: { addresses: [], ports: [] } };
  return { kind: 'EndpointSlice', key, value } as unknown as SourceEvent;
};
const keysOf = ({ tracker }: FakePipeline) => [...tracker.contents()].map(({ key }) => key);

test('a family that cannot be served sleeps until it can, and then knows all that the other one knows', async () => {
  const [v4, v6] = [new FakePipeline('IPv4'), new FakePipeline('IPv6')];
  const served: IpFamily[] = [];
  const clock = new ManualClock();
  const controlPlane = new ControlPlane({
    pipelines: [v4, v6] as unknown as readonly Pipeline[],
    served: ['IPv4'],
    metrics: {
      of: () => ({ changed: () => {} }) as unknown as FamilyMetrics,
      serve: (family) => void served.push(family),
    },
    clock,
  });
  controlPlane.apply([slice('a')]);
  await controlPlane.activate('IPv6');
  assert.deepEqual(controlPlane.dormant, ['IPv6'], 'not before the start');
  controlPlane.start();
  controlPlane.synced();
  controlPlane.apply([slice('b')]);
  assert.deepEqual([v4.calls, v6.calls], [['start', 'synced'], ['synced']]);
  assert.deepEqual([keysOf(v4), keysOf(v6)], [['a/a-1', 'a/b-1'], []]);
  await controlPlane.pause();
  controlPlane.resume();
  assert.deepEqual(v6.calls, ['synced'], 'a sleeping one has nothing to go on with');

  const activated = controlPlane.activate('IPv6');
  controlPlane.apply([slice('c')]);
  await settle();
  clock.advance(0);
  await activated;
  controlPlane.apply([slice('d')]);
  assert.deepEqual(keysOf(v6).toSorted(), ['a/a-1', 'a/b-1', 'a/c-1', 'a/d-1']);
  assert.deepEqual([v6.calls, served, controlPlane.dormant], [['synced', 'start'], ['IPv6'], []]);
});
