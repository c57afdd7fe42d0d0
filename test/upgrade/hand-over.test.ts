import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Endpoint } from '../../src/model/endpoint.ts';
import type { AdoptedPort, HandOver, Parcel } from '../../src/model/hand-over.ts';
import type { Channel } from '../../src/upgrade/channel.ts';
import { ConnectionsLostError, handOver } from '../../src/upgrade/predecessor.ts';
import { readMessage } from '../../src/upgrade/protocol.ts';
import { awaitSupervision, takeOver } from '../../src/upgrade/take-over.ts';
import type { Clock } from '../../src/util/clock.ts';
import { channelPair } from '../engine/fast/pass-on.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { address } from '../rules/fixtures.ts';
import { settle, until } from '../support/until.ts';
import { PATIENT } from './patient-clock.ts';

const PORTS: readonly AdoptedPort[] = [
  { id: 'a/b', name: 'a/b', family: 'IPv4', protocol: 'TCP', address: '0.0.0.0', localPort: 4000 },
];
const DRAINED: readonly Endpoint[] = [
  { address: address('10.0.0.1'), port: 80 },
  { address: address('fd00::1'), port: 8080 },
];
const PARCELS: readonly Parcel[] = [
  { value: { port: 1 }, fds: [], bytes: Buffer.from('one') },
  { value: { port: 2 }, fds: [], bytes: Buffer.from('two') },
];

/** Notes what it is asked for, in order, and does it at once. */
class FakeDataPlane implements HandOver {
  readonly calls: string[];
  parcels = PARCELS;
  readonly adopted: Parcel[] = [];
  /** Of `freeze`, and of `adopt`. */
  failure: Error | undefined;
  refusal: Error | undefined;
  hangs = false;
  /** Of a part of it, once it has adopted everything. */
  lateFailure: Error | undefined;

  constructor(calls: string[]) {
    this.calls = calls;
  }

  async freeze(): Promise<readonly Parcel[]> {
    this.calls.push('freeze');
    if (this.failure) throw this.failure;
    if (this.hangs) await new Promise(() => {});
    return this.parcels;
  }

  check(): void {
    if (this.lateFailure) throw this.lateFailure;
  }

  thaw(): void {
    this.calls.push('thaw');
  }

  async atWork(): Promise<void> {}

  recover(): void {
    this.calls.push('recover');
  }

  async release(): Promise<void> {
    this.calls.push('release');
  }

  async adopt(parcels: AsyncIterable<Parcel> | Iterable<Parcel>): Promise<readonly AdoptedPort[]> {
    if (this.refusal) throw this.refusal;
    for await (const parcel of parcels) this.adopted.push(parcel);
    return PORTS;
  }
}

/** A predecessor with a successor that a test plays by hand, or leaves to `takeOver`. */
function rig({ clock = PATIENT }: { clock?: Clock } = {}) {
  const calls: string[] = [];
  const [own, channel] = channelPair(clock);
  const dataPlane = new FakeDataPlane(calls);
  let isDead = false;
  let lastWords = async () => {};
  const die = () => {
    if (!isDead) channel.close();
    isDead = true;
  };
  const successor = {
    channel: own,
    kill: async () => {
      calls.push('kill');
      if (!isDead) await lastWords();
      die();
    },
  };
  const onKill = (say: () => Promise<void>) => {
    lastWords = say;
  };
  const begin = () =>
    handOver(successor, {
      dataPlane,
      controlPlane: {
        pause: async () => void calls.push('pause'),
        resume: () => void calls.push('resume'),
        drained: () => DRAINED,
      },
      clock,
      onServing: async () => void calls.push('tell'),
    });
  return { calls, channel, dataPlane, die, onKill, begin };
}

async function hello(channel: Channel, versions = [2]): Promise<void> {
  await channel.send({ kind: 'hello', versions, program: '9.9' });
}

async function receiveAll(channel: Channel): Promise<void> {
  while ((await channel.receive())?.message.kind !== 'end');
}

/** The successor knows the Services, and has received all that the predecessor has. */
async function comeToTheEnd(channel: Channel, clock: ManualClock): Promise<void> {
  await hello(channel);
  clock.advance(2);
  const receiving = receiveAll(channel);
  await pass(clock, 10);
  await receiving;
}

const onAdopted = () => {};

const RETURNED = ['pause', 'freeze', 'kill', 'thaw', 'resume', 'kill'];
const RECOVERED = ['pause', 'freeze', 'kill', 'recover', 'resume', 'kill'];

test('everything goes across, and the old one lets go only after the new one has it', async () => {
  const { calls, channel, begin } = rig();
  const adopter = new FakeDataPlane([]);
  const handingOver = begin();
  let told: unknown;
  await takeOver(channel, {
    dataPlane: adopter,
    program: '9.9',
    onAdopted: (ports, drained) => {
      told = { ports, drained };
      assert.deepEqual(calls, ['pause', 'freeze'], 'it has not let go yet');
    },
  });
  assert.deepEqual(told, { ports: PORTS, drained: DRAINED });
  assert.deepEqual(
    adopter.adopted.map(({ value, bytes }) => [value, Buffer.from(bytes).toString()]),
    [
      [{ port: 1 }, 'one'],
      [{ port: 2 }, 'two'],
    ],
  );
  await settle();
  assert.deepEqual(calls, ['pause', 'freeze'], 'nor made it the one that is supervised');
  await awaitSupervision(channel);
  assert.equal((await handingOver).program, '9.9');
  assert.deepEqual(calls, ['pause', 'freeze', 'tell']);
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

test('a successor of which a part fails once it has everything says so, and the old one goes on', async () => {
  const { calls, channel, begin } = rig();
  const adopter = new FakeDataPlane([]);
  adopter.lateFailure = new Error('a worker has failed');
  const handingOver = begin();
  await assert.rejects(takeOver(channel, { dataPlane: adopter, program: '9.9', onAdopted }), /a worker has failed/);
  await assert.rejects(handingOver, /^Error: a worker has failed$/);
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
  await assert.rejects(handingOver, /version 9\.9 speaks 7, 8 of the hand-over, and this one 2; restart instead/);
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

test('a data plane that does not stand still in time goes on', async () => {
  const clock = new ManualClock();
  const { calls, channel, dataPlane, begin } = rig({ clock });
  dataPlane.hangs = true;
  const handingOver = begin();
  await hello(channel);
  clock.advance(2);
  await until('it to be frozen', () => calls.includes('freeze'));
  const rejected = assert.rejects(handingOver, /a worker of this process did not stand still within 5000 ms/);
  clock.advance(5_000);
  await rejected;
  assert.deepEqual(calls, RETURNED);
});

/** Turns the clock on, and lets everything happen at each look. */
async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += 2) {
    clock.advance(2);
    await settle();
  }
}

test('a successor that never answers is given two seconds, and then killed', async () => {
  const clock = new ManualClock();
  const { calls, channel, begin } = rig({ clock });
  const handingOver = begin();
  await hello(channel);
  clock.advance(2);
  await until('it to be frozen', () => calls.includes('freeze'));
  await settle();
  clock.advance(1_990);
  await settle();
  assert.deepEqual(calls, ['pause', 'freeze']);
  const rejected = assert.rejects(handingOver, /the other process stood still for 2000 ms/);
  await pass(clock, 20);
  await rejected;
  assert.deepEqual(calls, RETURNED);
});

/** More than the socket holds of them: the next is sent when the one before is being read. */
const LARGE: readonly Parcel[] = Array.from({ length: 8 }, () => ({
  value: 0,
  fds: [],
  bytes: Buffer.alloc(512 << 10),
}));

/** The successor takes a parcel every `ms`, up to the end, or until it is killed. */
async function takeSlowly(channel: Channel, clock: ManualClock, ms: number): Promise<void> {
  for (let isOver = false; !isOver; ) {
    clock.advance(ms);
    await settle();
    const receiving = channel.receive().catch(() => undefined);
    await pass(clock, 60);
    const received = await receiving;
    isOver = received === undefined || received.message.kind === 'end';
  }
}

test('a successor that is slow, but gets on, is waited for', async () => {
  const clock = new ManualClock();
  const { calls, channel, dataPlane, begin } = rig({ clock });
  dataPlane.parcels = LARGE;
  const handingOver = begin();
  await hello(channel);
  clock.advance(2);
  await until('it to be frozen', () => calls.includes('freeze'));
  await takeSlowly(channel, clock, 1_500);
  for (const kind of ['adopted', 'owning', 'serving'] as const) {
    await channel.send({ kind });
    await pass(clock, 10);
  }
  assert.ok((await handingOver).pausedMs > 12_000);
});

test('one that gets on, but would keep everything still for too long, is not', async () => {
  const clock = new ManualClock();
  const { calls, channel, dataPlane, begin } = rig({ clock });
  dataPlane.parcels = [...LARGE, ...LARGE];
  const handingOver = begin();
  const rejected = assert.rejects(handingOver, /did not answer in time/);
  await hello(channel);
  clock.advance(2);
  await until('it to be frozen', () => calls.includes('freeze'));
  await takeSlowly(channel, clock, 1_900);
  await rejected;
  assert.ok(clock.now() > 20_000 && clock.now() < 24_000, `${clock.now()}`);
  assert.deepEqual(calls, RETURNED);
});

test('a successor that stops once it is free to go on has touched nothing: the old one goes on', async () => {
  const clock = new ManualClock();
  const { calls, channel, begin } = rig({ clock });
  const handingOver = begin();
  await comeToTheEnd(channel, clock);
  await channel.send({ kind: 'adopted' });
  await pass(clock, 10);
  const rejected = assert.rejects(handingOver, /did not answer in time/);
  clock.advance(1_980);
  await settle();
  assert.deepEqual(calls, ['pause', 'freeze']);
  await pass(clock, 40);
  await rejected;
  assert.deepEqual(calls, RETURNED);
});

for (const [what, play] of [
  ['dies', async (die: () => void) => die()],
  ['stops', async (_: () => void, clock: ManualClock) => pass(clock, 2_010)],
] as const) {
  test(`a successor that ${what} once it has gone on may have spoilt connections: the old one goes on without these`, async () => {
    const clock = new ManualClock();
    const { calls, channel, die, begin } = rig({ clock });
    const handingOver = begin();
    const rejected = assert.rejects(handingOver, ConnectionsLostError);
    await comeToTheEnd(channel, clock);
    await channel.send({ kind: 'adopted' });
    await channel.send({ kind: 'owning' });
    await pass(clock, 20);
    assert.deepEqual(calls, ['pause', 'freeze']);
    await play(die, clock);
    await pass(clock, 10);
    await rejected;
    assert.deepEqual(calls, RECOVERED);
  });
}

test('what a successor says a moment too late counts: it may have touched the connections before it was killed', async () => {
  const clock = new ManualClock();
  const { calls, channel, onKill, begin } = rig({ clock });
  const handingOver = begin();
  const rejected = assert.rejects(handingOver, ConnectionsLostError);
  await comeToTheEnd(channel, clock);
  await channel.send({ kind: 'adopted' });
  await pass(clock, 10);
  onKill(() => channel.send({ kind: 'owning' }));
  await pass(clock, 2_010);
  await rejected;
  assert.deepEqual(calls, RECOVERED);
});

test('a predecessor that dies once it has sent everything has let go; one that dies before has not', async () => {
  const adopter = new FakeDataPlane([]);
  // Better with what is left than not at all.
  adopter.lateFailure = new Error('a worker has failed');
  const [dying, waiting] = channelPair();
  const released = takeOver(waiting, { dataPlane: adopter, program: '9.9', onAdopted });
  await dying.expect('hello');
  await dying.send({ kind: 'begin', version: 2 });
  await dying.send({ kind: 'end', parcels: 0 });
  await dying.expect('adopted');
  dying.close();
  await released;
  await awaitSupervision(waiting);

  const [vanishing, receiving] = channelPair();
  const taking = takeOver(receiving, { dataPlane: new FakeDataPlane([]), program: '9.9', onAdopted });
  await vanishing.expect('hello');
  await vanishing.send({ kind: 'begin', version: 2 });
  vanishing.close();
  await assert.rejects(taking, /ended in the middle of the hand-over/);
  receiving.close();
});

test('a predecessor that knows nothing of drained endpoints says nothing of them', async () => {
  const [predecessor, channel] = channelPair();
  let drained: readonly Endpoint[] | undefined;
  const taking = takeOver(channel, {
    dataPlane: new FakeDataPlane([]),
    program: '9.9',
    onAdopted: (_, endpoints) => {
      drained = endpoints;
    },
  });
  await predecessor.expect('hello');
  await predecessor.send({ kind: 'begin', version: 2 });
  await predecessor.send({ kind: 'end', parcels: 0 });
  await predecessor.expect('adopted');
  predecessor.close();
  await taking;
  assert.deepEqual(drained, []);
  channel.close();
});

for (const [what, drained] of [
  ['no list', 'all'],
  ['no endpoints', [80]],
  ['nothing', [null]],
  ['an address that is none', [{ address: '10.0.0.1; reboot', port: 80 }]],
  ['an address that is a number', [{ address: 10, port: 80 }]],
  ['a port that is none', [{ address: '10.0.0.1', port: 65_536 }]],
  ['no port', [{ address: '10.0.0.1', port: 0 }]],
  ['half a port', [{ address: '10.0.0.1', port: 0.5 }]],
] as const) {
  test(`drained endpoints that are ${what} are refused`, () => {
    assert.throws(
      () => readMessage({ kind: 'begin', version: 2, drained }),
      /"begin" of the hand-over has no sound "drained"/,
    );
  });
}

for (const [what, messages, expected] of [
  ['a version that it does not know', [{ kind: 'begin', version: 3 }], /speaks version 3/],
  [
    'fewer parcels than there were',
    [
      { kind: 'begin', version: 2 },
      { kind: 'parcel', value: 0 },
      { kind: 'end', parcels: 2 },
    ],
    /sent 2 parcels, and 1 have arrived/,
  ],
  ['a greeting among parcels', [{ kind: 'begin', version: 2 }, { kind: 'adopted' }], /said "adopted" in the middle/],
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
