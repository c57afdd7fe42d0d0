import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SetWeight } from '../../src/model/endpoint.ts';
import type { AdoptedPort, HandOver, Parcel } from '../../src/model/hand-over.ts';
import type { Channel } from '../../src/upgrade/channel.ts';
import { FORMAT, FORMATS, type Message } from '../../src/upgrade/protocol.ts';
import { awaitSupervision, takeOver } from '../../src/upgrade/take-over.ts';
import { ConnectionsLostError, handOver } from '../../src/upgrade/upgrade.ts';
import type { Clock } from '../../src/util/clock.ts';
import { channelPair } from '../engine/fast/pass-on.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { address } from '../support/model.ts';
import { settle, until } from '../support/until.ts';
import { PATIENT } from './patient-clock.ts';

const PORTS: readonly AdoptedPort[] = [
  { id: 'a/b', name: 'a/b', family: 'IPv4', protocol: 'TCP', address: '0.0.0.0', localPort: 4000 },
];
const WEIGHTS: readonly SetWeight[] = [
  { address: address('10.0.0.1'), port: 80, weight: 0 },
  { address: address('fd00::1'), port: 8080, weight: 65_535 },
];
const NOTHING_UNUSABLE = Promise.resolve([]);
const PARCELS: readonly Parcel[] = ['one', 'two'].map((text) => ({ fds: [], bytes: Buffer.from(text) }));

/** Notes its calls, in order, and does everything at once. */
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

  constructor(calls: string[] = []) {
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
  const served = new Set<string>();
  const [own, channel] = channelPair(clock);
  const dataPlane = new FakeDataPlane(calls);
  let isDead = false;
  let lastWords = async () => {};
  const die = () => {
    if (!isDead) channel.close();
    isDead = true;
  };
  const successor = {
    pid: 7,
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
        weights: () => WEIGHTS,
        keptOf: (unusable) => unusable.filter(({ subject }) => served.has(subject)),
      },
      clock,
      supervisor: { successor: async (pid) => void calls.push(`supervise ${pid}`) },
    });
  return { calls, served, channel, dataPlane, die, onKill, begin };
}

/** The same with a clock that stands still, once everything is frozen. */
async function frozenRig(prepare: (dataPlane: FakeDataPlane) => void = () => {}) {
  const clock = new ManualClock();
  const it = rig({ clock });
  prepare(it.dataPlane);
  const handingOver = it.begin();
  // The test looks at it later.
  handingOver.catch(() => {});
  await hello(it.channel);
  clock.advance(2);
  await until('it to be frozen', () => it.calls.includes('freeze'));
  await settle();
  return { ...it, clock, handingOver };
}

/** The same once the successor has received everything and said so. */
async function adoptedRig() {
  const it = await frozenRig();
  const receiving = receiveAll(it.channel);
  await pass(it.clock, 10);
  await receiving;
  await it.channel.send({ kind: 'adopted' });
  await pass(it.clock, 10);
  return it;
}

async function hello(channel: Channel, versions = [FORMAT]): Promise<void> {
  await channel.send({ kind: 'hello', versions, program: '9.9' });
}

async function receiveAll(channel: Channel): Promise<void> {
  while ((await channel.receive())?.message.kind !== 'end');
}

/** Advances the clock, and lets everything happen at each look. */
async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += 2) {
    clock.advance(2);
    await settle();
  }
}

const onAdopted = () => {};

const RETURNED = ['pause', 'freeze', 'kill', 'thaw', 'resume'];
const RECOVERED = ['pause', 'freeze', 'kill', 'recover', 'resume'];

test('everything is handed over, and the predecessor lets go only when the successor has it', async () => {
  const { calls, channel, begin } = rig();
  const adopter = new FakeDataPlane();
  const handingOver = begin();
  let told: unknown;
  await takeOver(channel, {
    dataPlane: adopter,
    program: '9.9',
    known: NOTHING_UNUSABLE,
    onAdopted: (ports, weights) => {
      told = { ports, weights };
      assert.deepEqual(calls, ['pause', 'freeze'], 'it has not let go yet');
    },
  });
  assert.deepEqual(told, { ports: PORTS, weights: WEIGHTS });
  assert.deepEqual(
    adopter.adopted.map(({ bytes }) => Buffer.from(bytes).toString()),
    ['one', 'two'],
  );
  await settle();
  assert.deepEqual(calls, ['pause', 'freeze'], 'nor made it the supervised process');
  await awaitSupervision(channel);
  assert.equal((await handingOver).program, '9.9');
  assert.deepEqual(calls, ['pause', 'freeze', 'supervise 7']);
});

test('nothing stands still before the successor is ready', async () => {
  const { calls, channel, die, begin } = rig();
  const handingOver = begin();
  await settle();
  assert.equal(calls.length, 0);
  await hello(channel);
  await until('it to be frozen', () => calls.includes('freeze'));
  die();
  await assert.rejects(handingOver, /the other process/);
});

for (const [when, play] of [
  ['before its hello', async () => {}],
  ['after its hello', async (channel: Channel) => hello(channel)],
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
  test(`a successor that dies ${when} changes nothing: then the predecessor goes on`, async () => {
    const { calls, channel, die, begin } = rig();
    const handingOver = begin();
    await play(channel);
    die();
    await assert.rejects(handingOver, /the other process (has )?ended/);
    if (calls.length > 1) assert.deepEqual(calls, RETURNED);
    else assert.deepEqual(calls, ['kill'], 'it had not begun');
  });
}

for (const [what, sabotage, expected] of [
  ['cannot take over', { refusal: new Error('no room') }, /^Error: no room$/],
  ['fails in part once it has everything', { lateFailure: new Error('a worker failed') }, /^Error: a worker failed$/],
  ['cannot use the ports', { refuse: 'another address' }, /^Error: another address$/],
  ['has another engine', { engine: 'node' }, /its engine cannot take over/],
] as const) {
  test(`a successor that ${what} says why, and the predecessor goes on`, async () => {
    const { calls, channel, begin } = rig();
    const adopter = Object.assign(new FakeDataPlane(), sabotage);
    const handingOver = begin();
    const dataPlane = 'engine' in sabotage ? undefined : adopter;
    const check = () => {
      if ('refuse' in sabotage) throw new Error(sabotage.refuse);
    };
    await assert.rejects(
      takeOver(channel, { dataPlane, program: '9.9', known: NOTHING_UNUSABLE, onAdopted: check }),
      expected,
    );
    await assert.rejects(handingOver, expected);
    assert.deepEqual(calls, dataPlane === undefined ? ['kill'] : RETURNED);
  });
}

test('a successor of another version of the hand-over is refused before anything stands still', async () => {
  const { calls, channel, begin } = rig();
  const handingOver = begin();
  await hello(channel, [FORMAT - 1, FORMAT + 1]);
  await assert.rejects(
    handingOver,
    new RegExp(`version 9\\.9 speaks ${FORMAT - 1}, ${FORMAT + 1} of the hand-over, and this one ${FORMAT}; restart`),
  );
  assert.deepEqual(calls, ['kill']);
});

test('a successor that cannot use what its predecessor serves is refused before anything stands still', async () => {
  const lost = (subject: string, line: number) => {
    return { subject, usable: [], place: `/m/${subject}:${line}`, err: 'it does not parse' };
  };
  // Neither process can use the last one, so both name it.
  const unusable = [lost('old.yaml', 1), lost('web.yaml', 3), lost('dns.yaml', 7), lost('web.yaml', 3)];
  for (const [served, more] of [
    [['web.yaml'], ''],
    [['web.yaml', 'dns.yaml'], ', and neither can 1 other'],
  ] as const) {
    const it = rig();
    for (const each of served) it.served.add(each);
    const handingOver = it.begin();
    await it.channel.send({ kind: 'hello', versions: [FORMAT], program: '9.9', unusable });
    await assert.rejects(handingOver, {
      message:
        `/m/web.yaml:3 cannot be used (it does not parse)${more}; this process serves what was said before; ` +
        'correct it, and reload',
    });
    assert.deepEqual(it.calls, ['kill']);
  }
});

test('what a successor cannot use does not matter when its predecessor serves nothing of it', async () => {
  const { channel, begin } = rig();
  const handingOver = begin();
  const known = Promise.resolve([{ subject: 'old.yaml', usable: [], place: 'old.yaml:1', err: 'it does not parse' }]);
  await takeOver(channel, { dataPlane: new FakeDataPlane(), program: '9.9', known, onAdopted });
  await awaitSupervision(channel);
  assert.equal((await handingOver).program, '9.9');
});

test('a source that cannot start is told to the predecessor', async () => {
  const { calls, channel, begin } = rig();
  const handingOver = begin();
  const known = Promise.reject(new Error('there is no directory "/m"'));
  const expected = { message: 'there is no directory "/m"' };
  const taken = takeOver(channel, { dataPlane: new FakeDataPlane(), program: '9.9', known, onAdopted });
  await Promise.all([assert.rejects(taken, expected), assert.rejects(handingOver, expected)]);
  assert.deepEqual(calls, ['kill']);
});

test('a successor that sends an unexpected message changes nothing', async () => {
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

test('a data plane that is not frozen within 5 s goes on', async () => {
  const { calls, clock, handingOver } = await frozenRig((dataPlane) => {
    dataPlane.hangs = true;
  });
  clock.advance(5_000);
  await assert.rejects(handingOver, /a worker of this process did not stand still within 5000 ms/);
  assert.deepEqual(calls, RETURNED);
});

test('a successor that never answers is killed after two seconds', async () => {
  const { calls, clock, handingOver } = await frozenRig();
  clock.advance(1_990);
  await settle();
  assert.deepEqual(calls, ['pause', 'freeze']);
  await pass(clock, 20);
  await assert.rejects(handingOver, /the other process stood still for 2000 ms/);
  assert.deepEqual(calls, RETURNED);
});

/** Larger together than the buffer of the socket: the next is sent while the one before is being read. */
const large = (count: number): readonly Parcel[] =>
  Array.from({ length: count }, () => ({ fds: [], bytes: Buffer.alloc(512 << 10) }));

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

test('a successor that is slow, but makes progress, may take its time', async () => {
  const { channel, clock, handingOver } = await frozenRig((dataPlane) => {
    dataPlane.parcels = large(8);
  });
  await takeSlowly(channel, clock, 1_500);
  for (const kind of ['adopted', 'owning', 'serving'] as const) {
    await channel.send({ kind });
    await pass(clock, 10);
  }
  assert.ok((await handingOver).pausedMs > 12_000);
});

test('but not more than 20 s', async () => {
  const { calls, channel, clock, handingOver } = await frozenRig((dataPlane) => {
    dataPlane.parcels = large(16);
  });
  await takeSlowly(channel, clock, 1_900);
  await assert.rejects(handingOver, /did not answer in time/);
  assert.ok(clock.now() > 20_000 && clock.now() < 24_000, `${clock.now()}`);
  assert.deepEqual(calls, RETURNED);
});

test('a successor that hangs before it goes on has touched nothing: the predecessor goes on', async () => {
  const { calls, clock, handingOver } = await adoptedRig();
  clock.advance(1_980);
  await settle();
  assert.deepEqual(calls, ['pause', 'freeze']);
  await pass(clock, 40);
  await assert.rejects(handingOver, /did not answer in time/);
  assert.deepEqual(calls, RETURNED);
});

test('a successor that has gone on may take seconds until it serves, rather than lose the connections', async () => {
  const { channel, clock, handingOver } = await adoptedRig();
  await channel.send({ kind: 'owning' });
  await pass(clock, 9_000);
  await channel.send({ kind: 'serving' });
  await pass(clock, 10);
  await handingOver;
});

for (const [what, play] of [
  ['dies', async (die: () => void) => die()],
  ['hangs', async (_: () => void, clock: ManualClock) => pass(clock, 10_010)],
] as const) {
  test(`a successor that ${what} once it has gone on: the predecessor goes on without the connections`, async () => {
    const { calls, channel, die, clock, handingOver } = await adoptedRig();
    await channel.send({ kind: 'owning' });
    await pass(clock, 20);
    assert.deepEqual(calls, ['pause', 'freeze']);
    await play(die, clock);
    await pass(clock, 10);
    await assert.rejects(handingOver, ConnectionsLostError);
    assert.deepEqual(calls, RECOVERED);
  });
}

test('an "owning" that comes a moment too late counts: the successor may have touched the connections', async () => {
  const { calls, channel, onKill, clock, handingOver } = await adoptedRig();
  onKill(() => channel.send({ kind: 'owning' }));
  await pass(clock, 2_010);
  await assert.rejects(handingOver, ConnectionsLostError);
  assert.deepEqual(calls, RECOVERED);
});

/** A successor whose predecessor the test plays. */
async function taking(dataPlane = new FakeDataPlane()) {
  const [predecessor, channel] = channelPair();
  const taken = takeOver(channel, { dataPlane, program: '9.9', known: NOTHING_UNUSABLE, onAdopted });
  taken.catch(() => {});
  await predecessor.expect('hello');
  return { predecessor, channel, taken };
}

test('a successor says that it reads the format of the version before, too', async () => {
  const [predecessor, channel] = channelPair();
  const setup = { dataPlane: new FakeDataPlane(), program: '9.9', known: NOTHING_UNUSABLE, onAdopted };
  const taken = takeOver(channel, setup);
  const { versions } = await predecessor.expect('hello');
  predecessor.close();
  await assert.rejects(taken);
  channel.close();
  assert.deepEqual([versions, FORMATS.at(-1)], [[4, 5], FORMAT]);
});

const BEGIN: Message = { kind: 'begin', weights: [] };

test('a predecessor that dies once it has sent everything has let go', async () => {
  const adopter = new FakeDataPlane();
  // Better to go on with what is left than not at all.
  adopter.lateFailure = new Error('a worker has failed');
  const { predecessor, channel, taken } = await taking(adopter);
  await predecessor.send(BEGIN);
  await predecessor.send({ kind: 'end', parcels: 0 });
  await predecessor.expect('adopted');
  predecessor.close();
  await taken;
  await awaitSupervision(channel);
});

test('a predecessor that dies before that has not', async () => {
  const { predecessor, channel, taken } = await taking();
  await predecessor.send(BEGIN);
  predecessor.close();
  await assert.rejects(taken, /ended in the middle of the hand-over/);
  channel.close();
});

for (const [what, messages, expected] of [
  [
    'fewer parcels than there were',
    [BEGIN, { kind: 'parcel' }, { kind: 'end', parcels: 2 }],
    /sent 2 parcels, and 1 have arrived/,
  ],
  ['an unexpected message among parcels', [BEGIN, { kind: 'adopted' }], /said "adopted" in the middle/],
] as const) {
  test(`a successor that receives ${what} takes nothing over, and says why`, async () => {
    const { predecessor, channel, taken } = await taking();
    for (const message of messages) await predecessor.send(message);
    await assert.rejects(taken, expected);
    await assert.rejects(predecessor.expect('adopted'), expected);
    predecessor.close();
    channel.close();
  });
}
