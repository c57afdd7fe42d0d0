import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SourceEvent } from '../../src/model/source.ts';
import { RemovalWatch } from '../../src/sync/removal-watch.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { service } from '../support/model.ts';

test('a removal of most Services at once is reported, and others are not', () => {
  const log = new RecordingLog();
  const watch = new RemovalWatch(log);
  const event = (name: string, isThere: boolean): SourceEvent => {
    return { kind: 'Service', key: `shop/${name}`, value: isThere ? service() : undefined };
  };
  const add = (...names: string[]) => watch.apply(names.map((name) => event(name, true)));
  const remove = (...names: string[]) => watch.apply(names.map((name) => event(name, false)));
  add('a', 'b', 'c', 'd', 'd');
  remove('a', 'b');
  remove('c', 'unknown');
  add('e');
  watch.apply([{ kind: 'Endpoints', key: 'shop/d', value: undefined }]);
  assert.deepEqual(log.lines, []);
  add('f');
  watch.apply([event('d', false), event('e', false), event('g', true)]);
  assert.deepEqual(log.of('warn').map(({ fields }) => fields), [{ removed: 2, left: 2 }]); // biome-ignore format: short
});
