import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { AdoptedPort, Parcel } from '../../src/model/hand-over.ts';
import { meetHolder, newcomerAt } from '../../src/upgrade/newcomer.ts';
import { takeOver } from '../../src/upgrade/take-over.ts';
import { systemClock as clock } from '../../src/util/system-clock.ts';

const MIB = 1 << 20;

function meetingFor(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'newcomer-'));
  t.after(() => rmSync(directory, { recursive: true }));
  return { path: join(directory, 'hand-over.sock'), guard: () => {}, isTrusted: () => true, clock };
}

/** Both sides, in one process. */
async function met(t: TestContext) {
  const meeting = meetingFor(t);
  let coming: ReturnType<typeof newcomerAt> | undefined;
  const knock = async () => {
    coming ??= newcomerAt(meeting, async () => ({ program: '9.9' }));
  };
  const holder = await meetHolder(meeting, knock);
  const newcomer = await coming;
  assert.ok(holder !== undefined && newcomer !== undefined);
  t.after(() => newcomer.channel.close());
  return { meeting, holder, newcomer };
}

test('they meet at a path that is gone afterwards', async (t) => {
  const { meeting, holder, newcomer } = await met(t);
  assert.equal(newcomer.pid, process.pid);
  assert.equal(existsSync(meeting.path), false);
  holder.channel.close();
});

test('a file at the path that is no socket stays', async (t) => {
  const meeting = meetingFor(t);
  writeFileSync(meeting.path, 'of somebody');
  await assert.rejects(
    meetHolder(meeting, async () => {}),
    /is no socket; remove it/,
  );
  assert.equal(readFileSync(meeting.path, 'utf8'), 'of somebody');
});

test('who is given up in the middle of a parcel ends, and is waited for', async (t) => {
  const { holder, newcomer } = await met(t);
  const parcel: Parcel = { fds: [], bytes: new Uint8Array(8 * MIB) };
  await newcomer.channel.send({ kind: 'begin', weights: [] });
  // It reads nothing yet.
  await assert.rejects(newcomer.channel.send({ kind: 'parcel' }, { silenceMs: 20 }, parcel), /stood still/);
  const ended = newcomer.kill('too slow');
  const dataPlane = {
    freeze: async () => [],
    // It takes whatever comes for a parcel.
    adopt: async (parcels: AsyncIterable<Parcel> | Iterable<Parcel>): Promise<readonly AdoptedPort[]> => {
      for await (const each of parcels) assert.ok(each.bytes.length > 0);
      return [];
    },
    check: () => {},
    thaw: () => {},
    atWork: async () => {},
    recover: () => {},
    release: async () => {},
  };
  const known = Promise.resolve([]);
  const taking = takeOver(holder.channel, { dataPlane, program: '9.9', known, onAdopted: () => {} });
  await assert.rejects(taking, /the predecessor ended in the middle of the hand-over/);
  holder.channel.close();
  await ended;
});
