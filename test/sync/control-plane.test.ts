import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IpFamily } from '../../src/model/address.ts';
import { WILDCARDS } from '../../src/model/address.ts';
import type { ServiceKey } from '../../src/model/service.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import { ServiceTracker } from '../../src/services/service-tracker.ts';
import { ControlPlane, type FamilyPipeline } from '../../src/sync/control-plane.ts';
import type { Clock } from '../../src/util/clock.ts';
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

const slice = (name: string, number = 1): SourceEvent => {
  const [key, service] = [`a/${name}-${number}`, `a/${name}`] as readonly ServiceKey[];
  const value = { kind: 'EndpointSlice', key, service, group: { addresses: [], ports: [] } };
  return { kind: 'EndpointSlice', key, value } as unknown as SourceEvent;
};
const keysOf = ({ tracker }: FakePipeline) =>
  [...tracker.contents()].flatMap((events) => events.flatMap(({ key, value }) => (value === undefined ? [] : [key])));
/** IPv4 is served, and IPv6 not yet. */
function rig(clock: Clock) {
  const [v4, v6] = [new FakePipeline('IPv4'), new FakePipeline('IPv6')];
  const served = new Set<IpFamily>(['IPv4']);
  const reported: IpFamily[] = [];
  const pipelines = [v4, v6] as unknown as readonly FamilyPipeline[];
  const onServed = (family: IpFamily) => void reported.push(family);
  return { v4, v6, served, reported, controlPlane: new ControlPlane({ pipelines, served, onServed, clock }) };
}

test('a family that cannot be served is dormant until it can, and then knows all that the other one knows', async () => {
  const clock = new ManualClock();
  const { v4, v6, served, reported, controlPlane } = rig(clock);
  controlPlane.apply([slice('a')]);
  await controlPlane.activate('IPv6');
  assert.deepEqual([...served], ['IPv4'], 'not before the start');
  controlPlane.start();
  controlPlane.synced();
  controlPlane.apply([slice('b')]);
  assert.deepEqual([v4.calls, v6.calls], [['start', 'synced'], ['synced']]);
  assert.deepEqual([keysOf(v4), keysOf(v6)], [['a/a-1', 'a/b-1'], []]);
  await controlPlane.pause();
  controlPlane.resume();
  assert.deepEqual(v6.calls, ['synced'], 'a dormant one has nothing to go on with');

  const activated = controlPlane.activate('IPv6');
  controlPlane.apply([slice('c')]);
  await settle();
  clock.advance(0);
  await activated;
  controlPlane.apply([slice('d')]);
  assert.deepEqual(keysOf(v6).toSorted(), ['a/a-1', 'a/b-1', 'a/c-1', 'a/d-1']);
  assert.deepEqual([v6.calls, reported, [...served]], [['synced', 'start'], ['IPv6'], ['IPv4', 'IPv6']]);
});

test('a family does not learn of what is deleted meanwhile', async () => {
  const clock = new ManualClock();
  let ms = 0;
  // Each look at it finds the slice of time used up.
  const hasty: Clock = {
    now: () => (ms += 10),
    wallNow: () => 0,
    after: (delayMs, then) => clock.after(delayMs, then),
  };
  const { v4, v6, controlPlane } = rig(hasty);
  controlPlane.start();
  controlPlane.apply([slice('a'), slice('a', 2)]);
  const activated = controlPlane.activate('IPv6');
  controlPlane.apply([{ kind: 'EndpointSlice', key: 'a/a-2' as ServiceKey, value: undefined }]);
  while (clock.pendingTimers > 0) {
    clock.advance(0);
    await settle();
  }
  await activated;
  assert.deepEqual([keysOf(v4), keysOf(v6)], [['a/a-1'], ['a/a-1']]);
});
