import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AdoptedPort, HandOver, Parcel } from '../../src/contracts/hand-over.ts';
import type { Channel } from '../../src/handover/channel.ts';
import { handOver } from '../../src/handover/predecessor.ts';
import { awaitRelease, takeOver } from '../../src/handover/take-over.ts';
import { channelPair } from '../dataplane/fast/pass-on.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { settle, until } from '../support/until.ts';

const PORTS: readonly AdoptedPort[] = [
  { id: 'a/b', name: 'a/b', family: 'IPv4', protocol: 'TCP', address: '0.0.0.0', localPort: 4000 },
];
const PARCELS: readonly Parcel[] = [
  { value: { port: 1 }, fds: [], bytes: Buffer.from('one') },
  { value: { port: 2 }, fds: [], bytes: Buffer.from('two') },
];

/** Notes what it is asked for, in order, and does it at once. */
class FakeDataPlane implements HandOver {
  readonly calls: string[];
  adopted: readonly Parcel[] = [];
  /** Of `freeze`, and of `adopt`. */
  failure: Error | undefined;
  refusal: Error | undefined;

  constructor(calls: string[]) {
    this.calls = calls;
  }

  async freeze(): Promise<readonly Parcel[]> {
    this.calls.push('freeze');
    if (this.failure) throw this.failure;
    return PARCELS;
  }

  thaw(): void {
    this.calls.push('thaw');
  }

  async release(): Promise<void> {
    this.calls.push('release');
  }

  async adopt(parcels: readonly Parcel[]): Promise<readonly AdoptedPort[]> {
    if (this.refusal) throw this.refusal;
    this.adopted = parcels;
    return PORTS;
  }
}

/** A predecessor with a successor that a test plays by hand, or leaves to `takeOver`. */
function rig({ clock }: { clock?: ManualClock } = {}) {
  const calls: string[] = [];
  const [own, channel] = channelPair(clock);
  const dataPlane = new FakeDataPlane(calls);
  let isDead = false;
  const die = () => {
    if (!isDead) channel.close();
    isDead = true;
  };
  const successor = {
    channel: own,
    kill: async () => {
      calls.push('kill');
      die();
    },
  };
  const begin = () =>
    handOver(successor, {
      dataPlane,
      controlPlane: { pause: async () => void calls.push('pause'), resume: () => void calls.push('resume') },
      clock: clock ?? { now: () => performance.now(), wallNow: () => 0, after: (ms, run) => after(ms, run) },
      onRelease: async () => void calls.push('tell'),
    });
  return { calls, channel, dataPlane, die, begin };
}

function after(delayMs: number, run: () => void) {
  const timer = setTimeout(run, delayMs);
  return { cancel: () => clearTimeout(timer) };
}

async function hello(channel: Channel, versions = [1]): Promise<void> {
  await channel.send({ kind: 'hello', versions, program: '9.9' });
}

async function receiveAll(channel: Channel): Promise<void> {
  while ((await channel.receive())?.message.kind !== 'end');
}

const onAdopted = () => {};

const RETURNED = ['pause', 'freeze', 'kill', 'thaw', 'resume', 'kill'];

test('everything goes across, and the old one lets go only after the new one has it', async () => {
  const { calls, channel, begin } = rig();
  const adopter = new FakeDataPlane([]);
  const handingOver = begin();
  let ports: readonly AdoptedPort[] = [];
  await takeOver(channel, {
    dataPlane: adopter,
    program: '9.9',
    onAdopted: (adopted) => {
      ports = adopted;
    },
  });
  assert.deepEqual(ports, PORTS);
  assert.deepEqual(
    adopter.adopted.map(({ value, bytes }) => [value, Buffer.from(bytes).toString()]),
    [
      [{ port: 1 }, 'one'],
      [{ port: 2 }, 'two'],
    ],
  );
  await settle();
  assert.deepEqual(calls, ['pause', 'freeze'], 'it has not let go yet');
  await awaitRelease(channel);
  assert.equal((await handingOver).program, '9.9');
  assert.deepEqual(calls, ['pause', 'freeze', 'tell']);
  channel.close();
});

test('nothing stands still before the successor is ready', async () => {
  const { calls, channel, die, begin } = rig();
  const handingOver = begin();
  await settle();
  assert.equal(calls.length, 0);
  await hello(channel);
  await until('it to be asked', () => calls.includes('freeze'));
  die();
  await assert.rejects(handingOver, /the other process/);
});

for (const [when, play] of [
  ['after its greeting', async (channel: Channel) => hello(channel)],
  [
    'in the middle of the parcels',
    async (channel: Channel) => {
      await hello(channel);
      await channel.receive();
      await channel.receive();
    },
  ],
  [
    'when it has everything',
    async (channel: Channel) => {
      await hello(channel);
      await receiveAll(channel);
    },
  ],
] as const) {
  test(`a successor that dies ${when} changes nothing: the old one goes on, after that one's death`, async () => {
    const { calls, channel, die, begin } = rig();
    const handingOver = begin();
    await play(channel);
    die();
    await assert.rejects(handingOver, /the other process (has )?ended/);
    if (calls.length > 1) assert.deepEqual(calls, RETURNED);
    else assert.deepEqual(calls, ['kill'], 'it had not begun');
  });
}

test('a successor that dies before its greeting is not even frozen for', async () => {
  const { calls, die, begin } = rig();
  die();
  await assert.rejects(begin(), /ended before it said "hello"/);
  assert.deepEqual(calls, ['kill']);
});

test('a successor that cannot take over says why, and the old one goes on', async () => {
  const { calls, channel, begin } = rig();
  const adopter = new FakeDataPlane([]);
  adopter.refusal = new Error('no room');
  const handingOver = begin();
  await assert.rejects(takeOver(channel, { dataPlane: adopter, program: '9.9', onAdopted }), /no room/);
  await assert.rejects(handingOver, /^Error: no room$/);
  assert.deepEqual(calls, RETURNED);
});

test('a successor that has no use for the ports says why, and the old one goes on', async () => {
  const { calls, channel, begin } = rig();
  const handingOver = begin();
  const refuse = () => {
    throw new Error('another address');
  };
  const taking = takeOver(channel, { dataPlane: new FakeDataPlane([]), program: '9.9', onAdopted: refuse });
  await assert.rejects(taking, /another address/);
  await assert.rejects(handingOver, /another address/);
  assert.deepEqual(calls, RETURNED);
});

test('a successor whose engine cannot take over says so at once', async () => {
  const { calls, channel, begin } = rig();
  const handingOver = begin();
  await assert.rejects(
    takeOver(channel, { dataPlane: undefined, program: '9.9', onAdopted }),
    /its engine cannot take over/,
  );
  await assert.rejects(handingOver, /its engine cannot take over/);
  assert.deepEqual(calls, ['kill']);
});

test('a successor that speaks no common version is refused before anything stands still', async () => {
  const { calls, channel, begin } = rig();
  const handingOver = begin();
  await hello(channel, [7, 8]);
  await assert.rejects(handingOver, /version 9\.9 speaks 7, 8 of the hand-over, and this one 1; restart instead/);
  assert.deepEqual(calls, ['kill']);
});

test('a successor that says something else than it should changes nothing', async () => {
  const { calls, channel, begin } = rig();
  const handingOver = begin();
  await hello(channel);
  await hello(channel);
  await assert.rejects(handingOver, /said "hello" in place of "adopted"/);
  assert.deepEqual(calls, RETURNED);
});

test('a data plane that cannot be frozen goes on', async () => {
  const { calls, channel, dataPlane, begin } = rig();
  dataPlane.failure = new Error('a worker has failed');
  const handingOver = begin();
  await hello(channel);
  await assert.rejects(handingOver, /a worker has failed/);
  assert.deepEqual(calls, RETURNED);
});

test('a successor that never answers is given ten seconds, and then killed', async () => {
  const clock = new ManualClock();
  const { calls, channel, begin } = rig({ clock });
  const handingOver = begin();
  await hello(channel);
  clock.advance(2);
  await until('it to be frozen', () => calls.includes('freeze'));
  await settle();
  clock.advance(9_990);
  await settle();
  assert.deepEqual(calls, ['pause', 'freeze']);
  const rejected = assert.rejects(handingOver, /did not answer in time/);
  for (let ms = 0; ms < 20; ms += 2) {
    clock.advance(2);
    await settle();
  }
  await rejected;
  assert.deepEqual(calls, RETURNED);
});

test('a predecessor that dies once it has sent everything has let go; one that dies before has not', async () => {
  const [predecessor, channel] = channelPair();
  predecessor.close();
  await awaitRelease(channel);

  const [dying, waiting] = channelPair();
  const released = awaitRelease(waiting);
  await dying.expect('adopted');
  dying.close();
  await released;

  const [vanishing, receiving] = channelPair();
  const taking = takeOver(receiving, { dataPlane: new FakeDataPlane([]), program: '9.9', onAdopted });
  await vanishing.expect('hello');
  await vanishing.send({ kind: 'begin', version: 1 });
  vanishing.close();
  await assert.rejects(taking, /ended in the middle of the hand-over/);
  for (const each of [channel, waiting, receiving]) each.close();
});

for (const [what, messages, expected] of [
  ['a version that it does not know', [{ kind: 'begin', version: 3 }], /speaks version 3/],
  [
    'fewer parcels than there were',
    [
      { kind: 'begin', version: 1 },
      { kind: 'parcel', value: 0 },
      { kind: 'end', parcels: 2 },
    ],
    /sent 2 parcels, and 1 have arrived/,
  ],
  ['a greeting among parcels', [{ kind: 'begin', version: 1 }, { kind: 'adopted' }], /said "adopted" in the middle/],
] as const) {
  test(`a successor that is sent ${what} takes nothing over, and says why`, async () => {
    const [predecessor, channel] = channelPair();
    const taking = takeOver(channel, { dataPlane: new FakeDataPlane([]), program: '9.9', onAdopted });
    await predecessor.expect('hello');
    for (const message of messages) await predecessor.send(message);
    await assert.rejects(taking, expected);
    await assert.rejects(predecessor.expect('adopted'), expected);
    predecessor.close();
    channel.close();
  });
}
