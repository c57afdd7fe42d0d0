import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RefusalRation } from '../../src/engine/refusal-ration.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

test('a flood at one Service port gets 100 refusals a second, one at all of them 1,000', () => {
  const clock = new ManualClock();
  const ration = new RefusalRation(clock);
  const [flooded, other] = [{}, {}];
  const takenIn = (seconds: number, ports: readonly object[]) => {
    let taken = 0;
    for (let ms = 0; ms < seconds * 1000; ms++) {
      clock.advance(1);
      for (const port of ports) for (let i = 0; i < 4; i++) if (ration.tryTake(port, clock.now())) taken++;
    }
    return taken;
  };
  const ofOne = takenIn(10, [flooded]);
  assert.ok(ofOne >= 1000 && ofOne <= 1050, `${ofOne}`);
  assert.ok(ration.tryTake(other, clock.now()), 'another Service port has its own');
  const ofAll = takenIn(
    10,
    Array.from({ length: 40 }, () => ({})),
  );
  assert.ok(ofAll >= 10_000 && ofAll <= 10_050, `${ofAll}`);
});
