import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FastHandOver, type HandOverHost } from '../../../src/engine/fast/hand-over.ts';
import { unpack } from '../../../src/engine/fast/parcels.ts';
import { all } from './pass-on.ts';

test('a hand-over that was given up while workers were slow freezes nobody later', async () => {
  const held = Promise.withResolvers<void>();
  const calls: string[] = [];
  const worker = {
    hold: () => held.promise,
    freeze: async () => void calls.push('freeze'),
    unfreeze: (kind: string) => void calls.push(kind),
  };
  const handOver = new FastHandOver({ workers: [worker] } as unknown as HandOverHost);
  const frozen = handOver.freeze();
  handOver.thaw();
  held.resolve();
  await assert.rejects(frozen, /given up/);
  assert.deepEqual(calls, ['thaw']);
});

test('a flow that was on its way between two workers when its port closed does not go along', async () => {
  const way = { name: new Uint8Array(), control: new Uint8Array() };
  const account = { port: 7, beganAt: 0, fd: 3 };
  const records = [
    { ...account, kind: 'flow' },
    { ...way, port: 7, kind: 'waiting', datagrams: [] },
  ];
  const sessions = [{ ...account, kind: 'dialling', fd: 4, closedPort: 'a/b' }];
  const worker = {
    hold: async () => {},
    freeze: async () => ({ pickers: [], records }),
    given: async function* () {
      yield sessions;
    },
  };
  const handOver = new FastHandOver({ workers: [worker], ports: () => [] } as unknown as HandOverHost);
  const parcels = (await all(await handOver.freeze())).map(unpack);
  const kinds = parcels.flatMap((parcel) => parcel.records.map(({ kind }) => kind));
  // A connection outlives its port.
  assert.deepEqual(kinds, ['dialling']);
});
