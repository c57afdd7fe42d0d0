import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HandOver } from '../../src/contracts/hand-over.ts';
import { awaitRelease, takeOver } from '../../src/handover/take-over.ts';
import { Upgrade, type UpgradeOptions } from '../../src/handover/upgrade.ts';
import { systemClock } from '../../src/host/system-clock.ts';
import { channelPair } from '../dataplane/fast/pass-on.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { settle, until } from '../support/until.ts';

const PID = 4711;

const dataPlane: HandOver = {
  freeze: async () => [],
  thaw: () => {},
  release: async () => {},
  adopt: async () => [],
};

type Means = NonNullable<UpgradeOptions['means']>;

interface Options extends Partial<UpgradeOptions & Means> {
  readonly onSuccessor?: () => Promise<void>;
}

function rig({ startSuccessor, onSuccessor = async () => {}, ...options }: Options = {}) {
  const told: string[] = [];
  const log = new RecordingLog();
  const [own, channel] = channelPair();
  let isDead = false;
  const successor = {
    pid: PID,
    channel: own,
    kill: async () => {
      told.push('kill');
      if (!isDead) channel.close();
      isDead = true;
    },
  };
  const upgrade = new Upgrade({
    clock: systemClock,
    log,
    pid: 99,
    controlPlane: { pause: async () => {}, resume: () => void told.push('resume') },
    supervisor: {
      reloading: async () => void told.push('reloading'),
      successor: (pid) => {
        told.push(`successor ${pid}`);
        return onSuccessor();
      },
      ready: async () => void told.push('ready'),
    },
    means: { dataPlane, startSuccessor: startSuccessor ?? (async () => successor) },
    onReleased: async () => void told.push('released'),
    ...options,
  });
  return { upgrade, told, log, channel };
}

test('the supervisor hears of the successor before that one is told to go on', async () => {
  const heard = Promise.withResolvers<void>();
  const { upgrade, told, log, channel } = rig({ onSuccessor: () => heard.promise });
  const running = upgrade.run();
  await takeOver(channel, { dataPlane, program: '2.0', onAdopted: () => {} });
  assert.deepEqual(told, ['reloading']);
  let isReleased = false;
  const released = awaitRelease(channel).then(() => {
    isReleased = true;
  });
  await until('the supervisor to be told', () => told.includes(`successor ${PID}`));
  await settle();
  assert.equal(isReleased, false);
  heard.resolve();
  await released;
  await running;
  assert.deepEqual(told.slice(2), ['released']);
  assert.deepEqual(log.of('error'), []);
  assert.equal(log.lines.at(-1)?.fields['version'], '2.0');
});

test('an upgrade that fails is told of, and can be tried again', async () => {
  const { upgrade, told, log } = rig({
    startSuccessor: async () => {
      throw new Error('no such program');
    },
  });
  await upgrade.run();
  await upgrade.run();
  assert.deepEqual(told, ['reloading', 'ready', 'reloading', 'ready']);
  assert.deepEqual(
    log.of('error').map(({ fields }) => fields['err']),
    ['no such program', 'no such program'],
  );
});

test('one at a time', async () => {
  const { upgrade, told, log } = rig();
  const running = upgrade.run();
  await upgrade.run();
  assert.equal(log.of('warn').length, 1);
  await upgrade.abandon();
  await running;
  assert.deepEqual(told.filter((each) => each === 'reloading').length, 1);
});

test('whoever is told to end has no successor', async () => {
  const { upgrade, told, channel } = rig();
  const running = upgrade.run();
  await until('it to be started', () => told.includes('reloading'));
  await channel.send({ kind: 'hello', versions: [1], program: '2.0' });
  await upgrade.abandon();
  await running;
  assert.ok(told.includes('kill') && !told.includes('released'), `${told}`);
  await rig().upgrade.abandon();
});

for (const [what, options, expected] of [
  ['the portable engine', { means: undefined }, /portable engine .* --dataplane fast/],
  ['process 1 of a container', { pid: 1 }, /container ends with its process 1/],
] as const) {
  test(`${what} says what it cannot do`, async () => {
    const { upgrade, told, log } = rig(options);
    await upgrade.run();
    assert.match(log.of('error')[0]?.message ?? '', expected);
    assert.deepEqual(told, []);
  });
}
