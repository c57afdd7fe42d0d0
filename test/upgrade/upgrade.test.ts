import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HandOver } from '../../src/model/hand-over.ts';
import { FORMAT } from '../../src/upgrade/protocol.ts';
import { awaitSupervision, takeOver } from '../../src/upgrade/take-over.ts';
import { Upgrade, type UpgradeOptions } from '../../src/upgrade/upgrade.ts';
import { channelPair } from '../engine/fast/pass-on.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { settle, until } from '../support/until.ts';
import { PATIENT } from './patient-clock.ts';

const PID = 4711;

const NOTHING_UNUSABLE = Promise.resolve([]);

const dataPlane: HandOver = {
  freeze: async () => [],
  check: () => {},
  thaw: () => {},
  atWork: async () => {},
  recover: () => {},
  release: async () => {},
  adopt: async (parcels) => {
    for await (const _ of parcels);
    return [];
  },
};

type Means = NonNullable<UpgradeOptions['means']>;

interface Options extends Partial<UpgradeOptions & Means> {
  readonly onReloading?: () => Promise<void>;
  readonly onSuccessor?: () => Promise<void>;
}

function rig({ startSuccessor, onReloading = async () => {}, onSuccessor = async () => {}, ...options }: Options = {}) {
  const told: string[] = [];
  const log = new RecordingLog();
  const [own, channel] = channelPair(PATIENT);
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
    clock: PATIENT,
    log,
    pid: 99,
    controlPlane: {
      pause: async () => {},
      resume: () => void told.push('resume'),
      weights: () => [],
      keptOf: () => [],
    },
    supervisor: {
      reloading: () => {
        told.push('reloading');
        return onReloading();
      },
      successor: (pid) => {
        told.push(`successor ${pid}`);
        return onSuccessor();
      },
      ready: async (status) => void told.push(status === undefined ? 'ready' : `ready: ${status}`),
    },
    means: { dataPlane, startSuccessor: startSuccessor ?? (async () => successor) },
    onReleased: async () => void told.push('released'),
    ...options,
  });
  return { upgrade, told, log, channel, successor };
}

test('the supervisor is told of the successor once it serves, and before the successor knows', async () => {
  const heard = Promise.withResolvers<void>();
  const { upgrade, told, log, channel } = rig({ onSuccessor: () => heard.promise });
  const running = upgrade.run();
  await takeOver(channel, { dataPlane, program: '2.0', known: NOTHING_UNUSABLE, onAdopted: () => {} });
  await settle();
  assert.deepEqual(told, ['reloading']);
  let isSupervised = false;
  const supervised = awaitSupervision(channel).then(() => {
    isSupervised = true;
  });
  await until('the supervisor to be told', () => told.includes(`successor ${PID}`));
  await settle();
  assert.equal(isSupervised, false);
  heard.resolve();
  await supervised;
  await running;
  assert.deepEqual(told.slice(2), ['released']);
  assert.deepEqual(log.of('error'), []);
  assert.equal(log.lines.at(-1)?.fields['version'], '2.0');
});

test('an upgrade that fails is logged, and can be repeated', async () => {
  const { upgrade, told, log } = rig({
    startSuccessor: async () => {
      throw new Error('no such program');
    },
  });
  await upgrade.run();
  await upgrade.run();
  const failed = 'ready: Cannot hand over to a successor; this process serves as before: no such program';
  assert.deepEqual(told, ['reloading', failed, 'reloading', failed]);
  assert.deepEqual(
    log.of('error').map(({ fields }) => fields['err']),
    ['no such program', 'no such program'],
  );
});

test('only one upgrade is under way at a time', async () => {
  const { upgrade, told, log } = rig();
  const running = upgrade.run();
  await upgrade.run();
  assert.equal(log.of('warn').length, 1);
  await upgrade.abandon();
  await running;
  assert.deepEqual(told.filter((each) => each === 'reloading').length, 1);
});

test('the loss of connections by a successor that fails late is logged', async () => {
  const { upgrade, told, log, channel, successor } = rig();
  const running = upgrade.run();
  await takeOver(channel, { dataPlane, program: '2.0', known: NOTHING_UNUSABLE, onAdopted: () => {} });
  await successor.kill();
  await running;
  assert.match(log.of('error')[0]?.message ?? '', /so connections are lost; this process serves again/);
  assert.deepEqual(told.slice(-3, -1), ['kill', 'resume']);
  assert.match(told.at(-1) ?? '', /^ready: The successor failed once it had gone on/);
});

test('a stop kills the successor', async () => {
  const { upgrade, told, log, channel } = rig();
  const running = upgrade.run();
  await until('it to be started', () => told.includes('reloading'));
  await channel.send({ kind: 'hello', versions: [FORMAT], program: '2.0' });
  await upgrade.abandon();
  await running;
  assert.ok(told.includes('kill') && !told.includes('released'), `${told}`);
  assert.ok(!told.includes('ready'), 'nor is it ready');
  assert.deepEqual(log.of('error'), []);
  await rig().upgrade.abandon();
});

test('after a stop, no successor is started', async () => {
  const heard = Promise.withResolvers<void>();
  const { upgrade, told, log } = rig({ onReloading: () => heard.promise });
  const running = upgrade.run();
  const abandoned = upgrade.abandon();
  heard.resolve();
  await abandoned;
  await running;
  assert.deepEqual(told, ['reloading']);
  assert.deepEqual(log.of('error'), []);
});

for (const [what, options, expected] of [
  ['the portable engine', { means: undefined }, /portable engine .* --dataplane fast/],
  ['process 1 of a container', { pid: 1 }, /container ends with its process 1/],
] as const) {
  test(`${what} reports that it cannot upgrade in place`, async () => {
    const { upgrade, told, log } = rig(options);
    await upgrade.run();
    assert.match(log.of('error')[0]?.message ?? '', expected);
    assert.deepEqual(told, []);
  });
}
