import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConnectionEntry, ConnectionLogSink } from '../../../src/model/connection-log.ts';
import { ConnectionFeed } from '../../../src/operate/connection-log/feed.ts';
import { FakeDataPlane } from '../../fakes/fake-data-plane.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { entry } from './entries.ts';

function rig() {
  const [dataPlane, clock, log] = [new FakeDataPlane(), new ManualClock(), new RecordingLog()];
  const sink = () => {
    const got: (ConnectionEntry | number)[] = [];
    return {
      got,
      ended: (all: readonly ConnectionEntry[]) => got.push(...all),
      lost: (count: number) => got.push(count),
    };
  };
  return { dataPlane, clock, log, sink, feed: new ConnectionFeed({ dataPlane, clock, log }) };
}

test('the engine makes entries only while somebody wants them', () => {
  const { dataPlane, feed, sink } = rig();
  const wanted = () => dataPlane.connectionLog as ConnectionLogSink | undefined;
  assert.equal(wanted(), undefined);
  const [one, two] = [sink(), sink()];
  const stops = [feed.subscribe(one), feed.subscribe(two)];
  wanted()?.ended([entry()]);
  stops[0]?.();
  stops[0]?.();
  wanted()?.ended([entry({ receivedBytes: 2 })]);
  stops[1]?.();
  assert.equal(wanted(), undefined);
  assert.deepEqual([one.got, two.got], [[entry()], [entry(), entry({ receivedBytes: 2 })]]);
  assert.equal(feed.counts.entries, 2);
});

test('what is dropped is counted, and told when it begins and when it is over', () => {
  const { dataPlane, clock, log, feed, sink } = rig();
  const one = sink();
  feed.subscribe(one);
  dataPlane.connectionLog?.lost(5);
  clock.advance(9_000);
  dataPlane.connectionLog?.lost(2);
  feed.dropped('file', 1, 'ENOSPC');
  clock.advance(9_999);
  assert.deepEqual(
    log.lines.map(({ level, fields }) => [level, fields]),
    [
      ['warn', { at: 'engine' }],
      ['warn', { at: 'file', err: 'ENOSPC' }],
    ],
  );
  clock.advance(1);
  assert.deepEqual(
    log.of('info').map(({ fields }) => fields),
    [
      { at: 'file', dropped: 1 },
      { at: 'engine', dropped: 7 },
    ],
  );
  assert.deepEqual([one.got, feed.counts], [[5, 2], { entries: 7, dropped: { engine: 7, file: 1, tail: 0 } }]);
  feed.dropped('engine', 1);
  assert.equal(log.of('warn').length, 3, 'a new one is told again');
});
