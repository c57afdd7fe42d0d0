import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { NodeStatus } from '../../src/kubernetes/node.ts';
import { encodeObject } from '../../src/kubernetes/objects/encode.ts';
import type { KubernetesObject } from '../../src/kubernetes/objects/kubernetes-object.ts';
import type { Address, Cidr } from '../../src/model/address.ts';
import type { EndpointAddress } from '../../src/model/endpoint.ts';
import type { PodAddresses, PodKey } from '../../src/model/pod-addresses.ts';
import type { SavedObject } from '../../src/model/saved-object.ts';
import type { Service, ServiceKey } from '../../src/model/service.ts';
import type { SourceEvent, SourceSink } from '../../src/model/source.ts';
import { bodyOf, type Head } from '../../src/state/format.ts';
import { LastState } from '../../src/state/last-state.ts';
import { StateFile } from '../../src/state/state-file.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { finished } from '../../src/util/wait.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { MemoryFiles } from '../fakes/memory-files.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address, cidr, endpointAddress, service } from '../support/model.ts';

const web = (ip: string, key: ServiceKey = 'shop/web'): KubernetesObject => ({
  kind: 'Service',
  key,
  value: service({ key, clusterIPs: [address(ip)] }),
});
const slice = (...addresses: readonly string[]): KubernetesObject => ({
  kind: 'EndpointSlice',
  key: 'shop/web-1',
  value: {
    key: 'shop/web-1',
    service: 'shop/web',
    group: {
      addresses: addresses.map((each) => endpointAddress(each)),
      ports: [{ name: '', protocol: 'TCP', port: 8080 }],
    },
  },
});
const cluster = (uid: string): KubernetesObject => ({
  kind: 'Service',
  key: 'default/kubernetes',
  value: service({ key: 'default/kubernetes', uid }),
});
const NODE: NodeStatus = {
  name: 'node-1',
  zone: 'zone-1',
  addresses: [address('192.0.2.1')],
  podCidrs: [cidr('10.244.1.0/24')],
  taints: ['a'],
  isDeleted: false,
};

interface Given {
  readonly objects?: readonly KubernetesObject[];
  readonly head?: Partial<Head>;
  readonly isAnswering?: boolean;
  /** Of this start of the machine. */
  readonly bootId?: string;
  readonly runtime?: PodAddresses;
  /** Of this machine. */
  readonly local?: readonly Address[];
}

/** A start with a file of these objects, or with none. */
async function stage({ objects, head, isAnswering = false, bootId, runtime, local = [] }: Given = {}) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const file = new StateFile({ directory: '/state', files: new MemoryFiles(), clock: systemClock });
  const write = async (saved: Iterable<SavedObject>) => {
    const of = { node: 'node-1', source: 'kubernetes', cluster: 'uid-1', bootId: 'boot-1' } as const;
    const body = await finished(systemClock, bodyOf(saved));
    await file.write({ ...of, program: '1.0.0', writtenAt: clock.wallNow() - 90_000, ...head }, body);
  };
  if (objects !== undefined) await write(objects.map((each) => ({ object: encodeObject(each) })));
  let server: SourceSink | undefined;
  let uid: string | undefined;
  const delivered: (SourceEvent | 'synced')[] = [];
  const recalled: KubernetesObject[] = [];
  let changes = 0;
  const state = new LastState({
    source: {
      start: async (sink) => {
        server = {
          apply: (events) => {
            for (const { key, value } of events) if (key === 'default/kubernetes') uid = (value as Service).uid;
            sink.apply(events);
          },
          synced: () => sink.synced(),
        };
      },
      stop: async () => {},
      status: () => ({ lastContactAt: isAnswering ? 0 : undefined }),
    },
    file,
    node: 'node-1',
    cluster: () => uid,
    waitMs: 10_000,
    maxAgeMs: 0,
    bootId: bootId ?? 'boot-1',
    localAddresses: () => local,
    runtime,
    onChange: () => {
      changes += 1;
    },
    onRecall: (those) => recalled.push(...those),
    clock,
    log,
  });
  await state.start({ apply: (events) => delivered.push(...events), synced: () => delivered.push('synced') });
  state.fallBackLater();
  const wait = async (ms: number) => {
    clock.advance(ms);
    for (let turn = 0; turn < 50; turn++) {
      await setImmediate();
      clock.advance(0);
    }
  };
  const taken = () => delivered.splice(0);
  return { state, log, wait, write, taken, recalled, server: server!, changes: () => changes };
}

const lines = (log: RecordingLog) => log.lines.map(({ level, message, fields }) => [level, message, fields] as const);
const gone = ({ kind, key }: KubernetesObject) => ({ kind, key, value: undefined });

test('lists that come in time are all; the file is not served, and each later change is told', async () => {
  const { state, server, wait, taken, log, changes } = await stage({ objects: [web('10.96.0.9')] });
  server.apply([web('10.96.0.1'), slice('10.244.1.7')]);
  assert.equal(changes(), 0);
  server.synced();
  await wait(60_000);
  assert.deepEqual(taken(), [web('10.96.0.1'), slice('10.244.1.7'), 'synced']);
  assert.equal(changes(), 1);
  server.apply([gone(slice())]);
  assert.equal(changes(), 2);
  assert.deepEqual([...state.contents()], [{ object: encodeObject(web('10.96.0.1')) }]);
  assert.deepEqual([lines(log), state.servedOf], [[], undefined]);
});

test('without lists the state on disk is served after the wait, and one warning says why', async () => {
  const saved = [cluster('uid-1'), web('10.96.0.1'), slice('10.244.1.7')];
  const { state, wait, taken, log, changes } = await stage({ objects: saved });
  await wait(9_999);
  assert.deepEqual(taken(), []);
  await wait(1);
  assert.deepEqual(taken(), [...saved, 'synced']);
  const fields = { of: '2023-11-14T22:11:50.000Z', err: 'the API server has not answered within 10 s' };
  assert.deepEqual(lines(log), [['warn', 'The state on disk is served until the API server answers', fields]]);
  assert.equal(state.servedOf, 1_699_999_910_000);
  assert.equal(changes(), 0);
});

test('when the server answers, only what it does not have is removed, and what is the same is told as it was', async () => {
  const { state, server, wait, taken, log } = await stage({
    objects: [cluster('uid-1'), web('10.96.0.1'), web('10.96.0.2', 'shop/old'), slice('10.244.1.7')],
    isAnswering: true,
  });
  await wait(10_000);
  taken();
  server.apply([cluster('uid-1'), web('10.96.0.1')]);
  assert.ok(state.servedOf);
  server.apply([slice('10.244.1.8')]);
  assert.deepEqual(taken(), [cluster('uid-1'), web('10.96.0.1'), slice('10.244.1.8')]);
  server.synced();
  assert.deepEqual(taken(), [gone(web('10.96.0.2', 'shop/old'))]);
  assert.equal(state.servedOf, undefined);
  const objects = [web('10.96.0.1'), cluster('uid-1'), slice('10.244.1.8')].map((each) => encodeObject(each));
  const saved = [...state.contents()].map(({ object }) => object);
  assert.deepEqual(
    new Set(saved.map((each) => JSON.stringify(each))),
    new Set(objects.map((each) => JSON.stringify(each))),
  );
  assert.match(String(lines(log)[0]?.[2]['err']), /are not complete after 10 s/);
  assert.deepEqual(lines(log)[1]?.slice(0, 2), [
    'info',
    'The API server has answered; what it says replaces the state on disk',
  ]);
});

test('what the server has said before the wait is over counts more than the file', async () => {
  const { server, wait, taken } = await stage({ objects: [web('10.96.0.1'), web('10.96.0.2', 'shop/other')] });
  server.apply([web('10.96.0.7')]);
  await wait(10_000);
  assert.deepEqual(taken(), [web('10.96.0.7'), web('10.96.0.2', 'shop/other'), 'synced']);
});

test('a state of another cluster is not served when that is known, and named when it turns out later', async () => {
  const early = await stage({ objects: [cluster('uid-1'), web('10.96.0.1')] });
  early.server.apply([cluster('uid-2')]);
  await early.wait(10_000);
  assert.deepEqual(early.taken(), [cluster('uid-2')]);
  assert.deepEqual(
    lines(early.log).map(([level, , { err }]) => [level, err]),
    [['error', 'it is of another cluster: uid-1']],
  );

  const late = await stage({ objects: [cluster('uid-1'), web('10.96.0.1')] });
  await late.wait(10_000);
  late.taken();
  late.server.apply([cluster('uid-2')]);
  late.server.synced();
  assert.deepEqual(late.taken(), [cluster('uid-2'), gone(web('10.96.0.1'))]);
  assert.match(lines(late.log).at(-1)?.[1] ?? '', /is of another cluster$/);
});

test('a server of another cluster than the file is believed, and one warning names both', async () => {
  const message = 'The API server is of another cluster than the state on disk, which it replaces';
  const fields = { was: 'uid-1', is: 'uid-2', file: '/state/last-state' };
  for (const isFileFirst of [true, false]) {
    const { log, server, wait, taken } = await stage({ objects: [cluster('uid-1'), web('10.96.0.1')] });
    if (isFileFirst) await wait(0);
    server.apply([cluster('uid-2')]);
    server.synced();
    await wait(60_000);
    assert.deepEqual(taken(), [cluster('uid-2'), 'synced']);
    assert.deepEqual(lines(log), [['warn', message, fields]]);
  }
  for (const uid of ['uid-1', undefined]) {
    const { log, server, wait } = await stage({ objects: [cluster('uid-1')] });
    if (uid !== undefined) server.apply([cluster(uid)]);
    server.synced();
    await wait(60_000);
    assert.deepEqual(lines(log), []);
  }
});

test('a file that is of no use costs a line; without one, a line says so', async () => {
  const other = await stage({ objects: [], head: { node: 'node-2' } });
  await other.wait(10_000);
  assert.deepEqual(other.taken(), []);
  assert.deepEqual(lines(other.log), [
    ['error', 'The state on disk cannot be used', { file: '/state/last-state', err: 'it is of another node: node-2' }],
  ]);
  const none = await stage();
  await none.wait(10_000);
  assert.deepEqual(none.taken(), []);
  assert.deepEqual(
    lines(none.log).map(([level, message]) => [level, message]),
    [['warn', 'There is no state on disk to serve yet']],
  );
});

test('the same objects are the same text, in whichever order they came', async () => {
  const objects = [web('10.96.0.1'), web('10.96.0.2', 'shop/api'), web('10.96.0.3', 'bank/web'), slice('10.244.1.7')];
  const texts = await Promise.all(
    [objects, objects.toReversed()].map(async (each) => {
      const { state, server } = await stage();
      for (const object of each) server.apply([object]);
      return JSON.stringify([...state.contents()]);
    }),
  );
  assert.equal(texts[0], texts[1]);
});

test('an object that cannot be read costs no other one', async () => {
  const { write, wait, taken, log } = await stage();
  await write([
    { object: { kind: 'Service', metadata: { name: '../..' } } },
    { object: encodeObject(web('10.96.0.1')) },
  ]);
  await wait(10_000);
  assert.deepEqual(taken(), [web('10.96.0.1'), 'synced']);
  assert.equal(lines(log)[0]?.[2]['leftOut'], 1);
});

test('this node is kept and told, too, and a Node of another name is not', async () => {
  const first = await stage();
  const seen: NodeStatus[] = [];
  first.state.node.follow(
    (onChange) => onChange(NODE),
    (status) => seen.push(status),
  );
  assert.deepEqual(seen, [NODE]);
  assert.equal(first.changes(), 0);
  first.server.synced();

  for (const [name, expected] of [
    ['node-1', [NODE]],
    ['node-2', []],
  ] as const) {
    const { state, write, wait } = await stage();
    const [{ object }] = [...first.state.contents()] as [{ object: { metadata: object } }];
    await write([{ object: { ...object, metadata: { ...object.metadata, name } } }]);
    const told: NodeStatus[] = [];
    state.node.follow(
      () => {},
      (status) => told.push(status),
    );
    await wait(10_000);
    assert.deepEqual(told, expected);
  }
});

test('the blocks of cluster IPs are kept and told, and what the API server says of them counts more', async () => {
  const blocks = [cidr('10.96.0.0/16'), cidr('fd00:96::/112')];
  const first = await stage();
  first.state.serviceCidrs.follow(
    (onChange) => onChange(blocks),
    () => {},
  );
  first.server.synced();
  const kept = [...first.state.contents()];
  assert.deepEqual(kept.length, 1);

  const { state, write, wait, log, changes } = await stage();
  await write(kept);
  const told: (readonly Cidr[])[] = [];
  let say: (blocks: readonly Cidr[]) => void = () => {};
  state.serviceCidrs.follow(
    (onChange) => {
      say = onChange;
    },
    (those) => told.push(those),
  );
  await wait(10_000);
  assert.deepEqual([told, lines(log)[0]?.[2]['leftOut']], [[blocks], undefined]);
  // A server that has none, or shows none.
  say([]);
  assert.deepEqual([told, [...state.contents()], changes()], [[blocks, []], [], 0]);

  const late = await stage();
  await late.write(kept);
  const latest: (readonly Cidr[])[] = [];
  late.state.serviceCidrs.follow(
    (onChange) => onChange([cidr('10.97.0.0/16')]),
    (those) => latest.push(those),
  );
  await late.wait(10_000);
  assert.deepEqual(latest, [[cidr('10.97.0.0/16')]]);
});

test('what is served of the file may name other API servers; what is not served does not', async () => {
  const early = await stage({ objects: [cluster('uid-1'), web('10.96.0.1')] });
  early.server.synced();
  await early.wait(10_000);
  assert.deepEqual(early.recalled, []);
  const late = await stage({ objects: [cluster('uid-1'), web('10.96.0.1')] });
  late.server.apply([web('10.96.0.1')]);
  await late.wait(10_000);
  assert.deepEqual(late.recalled, [cluster('uid-1')]);
});

describe('after a boot', () => {
  const dns = (fields: Partial<EndpointAddress>, ip = '10.244.1.7'): KubernetesObject => ({
    kind: 'EndpointSlice',
    key: 'kube-system/dns-1',
    value: {
      key: 'kube-system/dns-1',
      service: 'kube-system/dns',
      group: {
        addresses: [
          endpointAddress(ip, { nodeName: 'node-1', isVouchedFor: true, podName: 'dns-a', ...fields }),
          endpointAddress('10.244.2.7', { nodeName: 'node-2', isVouchedFor: true, podName: 'dns-b' }),
        ],
        ports: [{ name: '', protocol: 'UDP', port: 53 }],
      },
    },
  });

  /** A container runtime that says this. */
  class FakeRuntime implements PodAddresses {
    found: ReadonlyMap<PodKey, readonly Address[]> | undefined;
    readonly asked: (readonly PodKey[])[] = [];

    async addressesOf(pods: ReadonlySet<PodKey>) {
      this.asked.push([...pods]);
      if (this.found === undefined) throw new Error('connect ENOENT');
      return this.found;
    }
  }

  test('endpoints of this node are doubtful, and no others; a restart without a boot doubts none', async () => {
    const booted = await stage({ objects: [dns({})], bootId: 'boot-2' });
    await booted.wait(10_000);
    assert.deepEqual(booted.taken(), [dns({ isDoubtful: true }), 'synced']);
    const restarted = await stage({ objects: [dns({})] });
    await restarted.wait(10_000);
    assert.deepEqual(restarted.taken(), [dns({}), 'synced']);
  });

  test('the container runtime says where they are, at the start and when one of them fails', async () => {
    const runtime = new FakeRuntime();
    const { state, server, wait, taken, log } = await stage({ objects: [dns({})], bootId: 'boot-2', runtime });
    await wait(10_000);
    assert.deepEqual(taken(), [dns({ isDoubtful: true }), 'synced']);
    assert.deepEqual(runtime.asked, [['kube-system/dns-a']]);
    assert.deepEqual(lines(log)[1]?.slice(2), [{ err: 'connect ENOENT' }]);
    // At most once a second, and not because of an endpoint elsewhere.
    state.endpointFailed(address('10.244.1.7'));
    await wait(1_000);
    state.endpointFailed(address('10.244.2.7'));
    await wait(0);
    assert.equal(runtime.asked.length, 1);
    runtime.found = new Map([['kube-system/dns-a', [address('fd00::9'), address('10.244.1.9')]]]);
    state.endpointFailed(address('10.244.1.7'));
    await wait(0);
    assert.deepEqual(taken(), [dns({}, '10.244.1.9')]);
    assert.match(lines(log)[2]?.[1] ?? '', /^The container runtime says/);
    // It is made anew once more, and then it is gone.
    await wait(1_000);
    runtime.found = new Map([['kube-system/dns-a', [address('10.244.1.11')]]]);
    state.endpointFailed(address('10.244.1.9'));
    await wait(1_000);
    runtime.found = new Map();
    state.endpointFailed(address('10.244.1.11'));
    await wait(1_000);
    assert.deepEqual(taken(), [dns({}, '10.244.1.11'), dns({ isDoubtful: true })]);
    // The server knows better.
    server.apply([dns({}, '10.244.1.20')]);
    server.synced();
    taken();
    runtime.found = new Map([['kube-system/dns-a', [address('10.244.1.11')]]]);
    state.endpointFailed(address('10.244.1.7'));
    await wait(1_000);
    assert.deepEqual([taken(), runtime.asked.length], [[], 4]);
  });

  test('lists that say what the file does know as little of the boot; a change ends the doubt, and a boot id too', async () => {
    const runtime = new FakeRuntime();
    const given = { objects: [dns({})], bootId: 'boot-2', runtime };
    const { state, server, wait, taken, changes } = await stage(given);
    await wait(0);
    server.apply([dns({})]);
    server.synced();
    await wait(0);
    assert.deepEqual(taken(), [dns({ isDoubtful: true }), 'synced']);
    assert.deepEqual([runtime.asked.length, state.bootId], [1, 'boot-1']);
    runtime.found = new Map([['kube-system/dns-a', [address('10.244.1.9')]]]);
    await wait(1_000);
    state.endpointFailed(address('10.244.1.7'));
    const before = changes();
    await wait(0);
    assert.deepEqual(taken(), [dns({}, '10.244.1.9')]);
    // A start from now on must look for it as well, so what is kept is what the server says, of the earlier boot.
    assert.equal(changes(), before + 1);
    assert.deepEqual([...state.contents()], [{ object: encodeObject(dns({})) }]);
    assert.equal(state.bootId, 'boot-1');
    server.apply([dns({}, '10.244.1.9')]);
    assert.deepEqual([taken(), state.bootId], [[dns({}, '10.244.1.9')], 'boot-2']);
    // It is an object like any other now, also when it is what it was.
    server.apply([dns({})]);
    state.endpointFailed(address('10.244.1.7'));
    await wait(0);
    assert.deepEqual([taken(), runtime.asked.length], [[dns({})], 2]);
  });

  test('lists that come before the file is read are doubted then; what they say otherwise is not', async () => {
    const early = await stage({ objects: [dns({}), web('10.96.0.1')], bootId: 'boot-2' });
    early.server.apply([dns({}), web('10.96.0.1')]);
    early.server.synced();
    await early.wait(0);
    assert.deepEqual(early.taken(), [dns({}), web('10.96.0.1'), 'synced', dns({ isDoubtful: true })]);
    // Nobody says that it is anywhere else.
    assert.equal(early.state.bootId, 'boot-2');

    const changed = await stage({ objects: [dns({})], bootId: 'boot-2' });
    await changed.wait(0);
    changed.server.apply([dns({ zone: 'a' })]);
    changed.server.synced();
    assert.deepEqual(changed.taken(), [dns({ zone: 'a' }), 'synced']);

    const restarted = await stage({ objects: [dns({})] });
    await restarted.wait(0);
    restarted.server.apply([dns({})]);
    restarted.server.synced();
    await restarted.wait(0);
    assert.deepEqual(restarted.taken(), [dns({}), 'synced']);
  });

  test('when the lists say what the served file says, its doubts and what was found stay', async () => {
    const runtime = new FakeRuntime();
    runtime.found = new Map([['kube-system/dns-a', [address('10.244.1.9')]]]);
    const { server, wait, taken } = await stage({ objects: [dns({}), slice('10.244.1.1')], bootId: 'boot-2', runtime });
    await wait(10_000);
    taken();
    server.apply([dns({})]);
    server.synced();
    assert.deepEqual(taken(), [dns({}, '10.244.1.9'), gone(slice('10.244.1.1'))]);
  });

  test('an endpoint at an address of this machine has not moved', async () => {
    const { wait, taken } = await stage({ objects: [dns({})], bootId: 'boot-2', local: [address('10.244.1.7')] });
    await wait(10_000);
    assert.deepEqual(taken(), [dns({}), 'synced']);
  });

  test('Endpoints are doubted as slices are', async () => {
    const key = 'kube-system/dns' as const;
    const endpoints = (fields: Partial<EndpointAddress>): KubernetesObject => {
      const at = { nodeName: 'node-1', isVouchedFor: true, podName: 'dns-a', ...fields } as const;
      const ports = [{ name: '', protocol: 'UDP', port: 53 }] as const;
      const elsewhere = { addresses: [endpointAddress('10.244.2.7')], ports: [{ ...ports[0], port: 54 }] };
      return {
        kind: 'Endpoints',
        key,
        value: { key, groups: [{ addresses: [endpointAddress('10.244.1.7', at)], ports }, elsewhere] },
      };
    };
    const { server, wait, taken } = await stage({ objects: [endpoints({})], bootId: 'boot-2' });
    await wait(0);
    server.apply([endpoints({})]);
    assert.deepEqual(taken(), [endpoints({ isDoubtful: true })]);
  });

  test('while a pod is not found, the runtime is asked again without a failure, less and less often', async () => {
    const runtime = new FakeRuntime();
    runtime.found = new Map();
    const { state, wait, taken } = await stage({ objects: [dns({})], bootId: 'boot-2', runtime });
    await wait(10_000);
    taken();
    for (const [index, ms] of [2_000, 4_000, 8_000, 16_000, 30_000, 30_000].entries()) {
      await wait(ms - 1);
      assert.equal(runtime.asked.length, index + 1, `before ${ms} ms have passed`);
      await wait(1);
      assert.equal(runtime.asked.length, index + 2, `after ${ms} ms`);
    }
    assert.deepEqual(taken(), []);
    runtime.found = new Map([['kube-system/dns-a', [address('10.244.1.9')]]]);
    await wait(30_000);
    assert.deepEqual(taken(), [dns({}, '10.244.1.9')]);
    await wait(3_600_000);
    assert.equal(runtime.asked.length, 8);
    // It is made anew, and not there yet when it is missed.
    runtime.found = new Map();
    state.endpointFailed(address('10.244.1.9'));
    await wait(0);
    await wait(2_000);
    assert.equal(runtime.asked.length, 10);
    await state.stop();
    await wait(3_600_000);
    assert.equal(runtime.asked.length, 10);
  });

  test('who takes over waits until its pods are found, and not for ever', async () => {
    const { promise, resolve } = Promise.withResolvers<ReadonlyMap<PodKey, readonly Address[]>>();
    const begin = async () => {
      const runtime = { addressesOf: () => promise };
      const { state, server, wait, taken } = await stage({ objects: [dns({})], bootId: 'boot-2', runtime });
      server.apply([dns({})]);
      server.synced();
      let isSettled = false;
      void state.settled().then(() => {
        isSettled = true;
      });
      await wait(0);
      taken();
      return { wait, taken, isSettled: () => isSettled };
    };
    const hung = await begin();
    await hung.wait(4_999);
    assert.equal(hung.isSettled(), false);
    await hung.wait(1);
    assert.equal(hung.isSettled(), true);
    const found = await begin();
    resolve(new Map([['kube-system/dns-a', [address('10.244.1.9')]]]));
    await found.wait(0);
    assert.deepEqual([found.isSettled(), found.taken()], [true, [dns({}, '10.244.1.9')]]);
  });

  test('a pod without an address of its own is at the address of the node', async () => {
    const runtime = new FakeRuntime();
    runtime.found = new Map([['kube-system/dns-a', []]]);
    const { wait, taken } = await stage({ objects: [dns({})], bootId: 'boot-2', runtime });
    await wait(10_000);
    assert.deepEqual(taken(), [dns({ isDoubtful: true }), 'synced', dns({})]);
  });
});
