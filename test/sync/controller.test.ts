import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { JUMPS, type Jump } from '../../src/capture/iptables/chains.ts';
import { parseDump } from '../../src/capture/iptables/dump.ts';
import { IptablesError, type Table } from '../../src/capture/iptables/iptables.ts';
import type { IpFamily, PortRange } from '../../src/model/address.ts';
import type { SnapshotDelta, UnservedPort } from '../../src/model/service-port.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import { nodeFacts } from '../capture/fixtures.ts';
import { FakeIptables } from '../fakes/fake-iptables.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { iptablesCapture, portBook } from '../support/capture.ts';
import { createController, serviceEvent as service } from '../support/controller.ts';
import { endpointAddress, address as ip } from '../support/model.ts';
import { microtasks } from '../support/until.ts';

function endpoints(...addresses: string[]): SourceEvent {
  const group = {
    addresses: addresses.map((text) => endpointAddress(text)),
    ports: [{ name: '', protocol: 'TCP' as const, port: 8080 }],
  };
  return { kind: 'Endpoints', key: 'shop/web', value: { key: 'shop/web', groups: [group] } };
}

/** What another program may do. */
const EMPTIED = '*nat\n:KUBE-PORTALS-CONTAINER - [0:0]\nCOMMIT\n';

interface Options {
  readonly nodeAddress?: string;
  readonly portRange?: PortRange;
  readonly onDelta?: (delta: SnapshotDelta) => void;
  readonly isListening?: () => boolean;
  /** Of iptables, from the start. */
  readonly fault?: IptablesError;
}

function harness({ nodeAddress, fault, ...options }: Options = {}) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const iptables = new FakeIptables();
  const state = { fault, looking: undefined as Promise<void> | undefined };
  const checked = <Arguments extends unknown[], Result>(call: (...args: Arguments) => Promise<Result>) => {
    return async (...args: Arguments) => {
      if (state.fault !== undefined) throw state.fault;
      return await call(...args);
    };
  };
  const ports = portBook(clock, options.portRange && { range: options.portRange });
  const capture = iptablesCapture({
    ...{ clock, log, ports, node: () => nodeFacts() },
    iptables: {
      flavour: 'nft',
      canRemove: true,
      save: checked((family: IpFamily, table: Table) => iptables.save(family, table)),
      restore: checked((family: IpFamily, text: string) => iptables.restore(family, text)),
      list: async (family, table, chain) => {
        await state.looking;
        return await iptables.list(family, table, chain);
      },
      generation: () => iptables.generation(),
    },
  });
  const { dataPlane, health, tracker, controller } = createController({ clock, log, capture, ports, ...options });
  if (nodeAddress !== undefined) tracker.setNodeAddresses([ip(nodeAddress)]);
  void controller.start();
  /** Lets everything that is due happen, without time passing unless asked. */
  const settle = async (ms = 0) => {
    for (const step of [0, ms, 0, 0]) {
      clock.advance(step);
      await microtasks(100);
    }
  };
  const ruled = async () =>
    parseDump(await iptables.save('IPv4', 'nat'))
      .get('nat')
      ?.get('KUBE-PORTALS-CONTAINER')
      ?.map((spec) => /--comment "([^"]*)"/.exec(spec)?.[1]);
  return { clock, log, tracker, dataPlane, iptables, health, state, controller, settle, ruled };
}

/** A controller that serves shop/web. */
async function serving(...events: readonly SourceEvent[]) {
  const h = harness();
  h.controller.apply([service(), ...events]);
  h.controller.synced();
  await h.settle();
  return h;
}

describe('the controller', () => {
  test('programs nothing before everything has been listed once', async () => {
    const h = harness();
    h.controller.apply([service(), endpoints('10.0.0.1')]);
    await h.settle(60_000);
    assert.equal(h.dataPlane.listeners.size, 0);
    assert.equal(h.iptables.restored.length, 0);
    h.controller.synced();
    await h.settle();
    assert.deepEqual(await h.ruled(), ['shop/web']);
    assert.equal(h.health.pending, false);
  });

  test('removes rules of an earlier run even when there is nothing to serve', async () => {
    const h = harness();
    await h.iptables.restore(
      'IPv4',
      '*nat\n:KUBE-PORTALS-CONTAINER - [0:0]\n-A KUBE-PORTALS-CONTAINER -j RETURN\nCOMMIT\n',
    );
    h.controller.synced();
    await h.settle();
    assert.deepEqual(await h.ruled(), []);
  });

  test('applies a single change on a quiet node without time passing', async () => {
    const h = harness();
    h.controller.synced();
    await h.settle(10_000);
    h.controller.apply([service()]);
    await h.settle();
    assert.deepEqual(await h.ruled(), ['shop/web']);
  });

  test('leaves out an endpoint that is one of its own local ports, before rules are installed', async () => {
    const h = harness({ nodeAddress: '192.168.50.10', portRange: { first: 8080, last: 8080 } });
    h.controller.apply([service(), endpoints('192.168.50.10', '10.0.0.1')]);
    h.controller.synced();
    await h.settle();
    assert.equal(h.dataPlane.listeners.get('shop/web')?.port, 8080);
    assert.deepEqual(
      h.dataPlane.listeners.get('shop/web')?.backends.endpoints.map(({ address }) => address),
      ['10.0.0.1'],
    );
    assert.match(String(h.log.of('warn')[0]?.fields['reason']), /proxy's own ports/);
    assert.deepEqual(await h.ruled(), ['shop/web']);
  });

  test('tells once which Service port has no local port, with the uid of its Service', async () => {
    const unserved: UnservedPort[] = [];
    const portRange = { first: 8080, last: 8080 };
    const h = harness({ portRange, onDelta: (delta) => unserved.push(...delta.unserved) });
    h.controller.apply([service(), service({ key: 'shop/late', uid: 'u-1' })]);
    h.controller.synced();
    await h.settle();
    await h.settle(1_000);
    assert.deepEqual(
      unserved.map(({ name, uid }) => `${name} ${uid}`),
      ['shop/late u-1'],
    );
    assert.match(unserved[0]?.found ?? '', /its share of the local ports/);
  });

  test('applies endpoint changes to the data plane at once, without iptables', async () => {
    const h = await serving(endpoints('10.0.0.1'));
    const restored = h.iptables.restored.length;
    for (let i = 2; i < 100; i++) {
      h.controller.apply([endpoints(`10.0.0.${i}`)]);
      await h.settle();
      assert.equal(h.dataPlane.listeners.get('shop/web')?.backends.endpoints[0]?.address, `10.0.0.${i}`);
    }
    assert.equal(h.iptables.restored.length, restored);
    assert.equal(h.health.pending, false);
  });

  test('takes a Service whose clients wait to zero endpoints and back without iptables', async () => {
    const h = harness();
    h.controller.apply([service({ options: { waitForEndpointsMs: 30_000 } }), endpoints('10.0.0.1')]);
    h.controller.synced();
    await h.settle();
    const restored = h.iptables.restored.length;
    for (const addresses of [[], ['10.0.0.2'], [], ['10.0.0.1']]) {
      h.controller.apply([endpoints(...addresses)]);
      await h.settle(1_000);
      assert.equal(h.dataPlane.listeners.get('shop/web')?.backends.endpoints.length, addresses.length);
    }
    assert.equal(h.iptables.restored.length, restored);
    assert.equal(h.health.pending, false);
  });

  test('closes a listener only after its rules have been removed, however long that takes', async () => {
    const h = await serving();
    h.state.fault = new IptablesError('locked', 'another program holds the lock');
    h.controller.apply([{ kind: 'Service', key: 'shop/web', value: undefined }]);
    await h.settle(5_000);
    assert.ok(h.dataPlane.listeners.has('shop/web'));
    assert.equal(h.health.pending, true);
    assert.match(String(h.log.of('error')[0]?.fields['err']), /holds the lock/);
    h.state.fault = undefined;
    await h.settle(30_000);
    assert.equal(h.dataPlane.listeners.has('shop/web'), false);
    assert.deepEqual(await h.ruled(), []);
    assert.equal(h.health.pending, false);
  });

  test('tells once that rules cannot be synced, however often it retries, and when that is over', async () => {
    const h = await serving();
    const told = () =>
      h.log.lines.map(({ message }) => message).filter((message) => /the rules in the kernel/i.test(message));
    h.state.fault = new IptablesError('failed', 'the table ip nat holds a rule that iptables cannot print');
    h.controller.apply([{ kind: 'Service', key: 'shop/web', value: undefined }]);
    for (let retries = 0; retries < 5; retries++) await h.settle(30_000);
    const begun = 'Cannot sync the rules in the kernel; the installed ones stay until a retry succeeds';
    assert.deepEqual(told(), [begun]);
    h.state.fault = undefined;
    for (let syncs = 0; syncs < 2; syncs++) await h.settle(30_000);
    assert.deepEqual(told(), [begun, 'The rules in the kernel are in sync again']);
  });

  test('tells once that the rules of a previous run cannot be read, and when they can', async () => {
    const h = harness({ fault: new IptablesError('locked', 'another program holds the lock') });
    for (let retries = 0; retries < 5; retries++) await h.settle(30_000);
    h.state.fault = undefined;
    await h.settle(30_000);
    assert.deepEqual(
      h.log.lines.map(({ message }) => message),
      [
        'Cannot read the rules in the kernel; serving nothing until a retry succeeds',
        'The rules in the kernel can be read',
      ],
    );
  });

  test('keeps the rules that the others need when one Service port throws, and says so', async () => {
    const h = harness();
    h.controller.apply([service(), service({ key: 'shop/late', clusterIPs: [ip('10.96.0.2')] })]);
    h.controller.synced();
    await h.settle();
    const update = h.dataPlane.update.bind(h.dataPlane);
    h.dataPlane.update = (id, backends) => {
      if (id === 'shop/web') throw new Error('a defect');
      update(id, backends);
    };
    h.controller.apply([
      service({ clusterIPs: [ip('10.96.1.1')] }),
      service({ key: 'shop/late', clusterIPs: [ip('10.96.1.2')] }),
    ]);
    await h.settle(1_000);
    assert.match(await h.iptables.save('IPv4', 'nat'), /-d 10\.96\.1\.2\/32 /);
    assert.deepEqual(
      h.log.of('error').map(({ message, fields }) => [message, fields['svc']]),
      [['An unexpected error; please report it', 'shop/web']],
    );
  });

  test('reports a Service that cannot be derived, and that it can be again', async () => {
    let isFaulty = false;
    const h = harness({
      nodeAddress: '192.168.50.10',
      isListening: () => {
        if (isFaulty) throw new Error('a defect');
        return false;
      },
    });
    const external = () => service({ externalIPs: [ip('192.168.50.10')] });
    h.controller.apply([external()]);
    h.controller.synced();
    await h.settle();
    const before = h.log.lines.length;
    isFaulty = true;
    for (let change = 0; change < 5; change++) {
      h.controller.apply([external()]);
      await h.settle();
    }
    isFaulty = false;
    h.controller.apply([external()]);
    await h.settle();
    assert.deepEqual(
      h.log.lines.slice(before).map(({ message, fields }) => `${fields['svc']}: ${message}`),
      [
        'shop/web: A change of this Service has no effect; please report it',
        'shop/web: The changes of this Service take effect again',
      ],
    );
  });

  test('syncs later changes after an exception before a sync', async () => {
    const h = await serving();
    const { tracker } = h;
    const { listeningChanged } = tracker;
    tracker.listeningChanged = () => {
      tracker.listeningChanged = listeningChanged;
      throw new Error('a defect');
    };
    for (const [key, address] of [
      ['shop/a', '10.96.0.2'],
      ['shop/b', '10.96.0.3'],
    ] as const) {
      h.controller.apply([service({ key, clusterIPs: [ip(address)] })]);
      await h.settle(1_000);
    }
    assert.deepEqual((await h.ruled())?.toSorted(), ['shop/a', 'shop/b', 'shop/web']);
    assert.match(String(h.log.of('error')[0]?.fields['err']), /a defect/);
  });

  test('repairs rules in the very sync of a change that a look has delayed', async () => {
    const h = await serving();
    const looking = Promise.withResolvers<void>();
    h.state.looking = looking.promise;
    await h.settle(2_000);
    const [jump] = JUMPS as [Jump];
    await h.iptables.restore('IPv4', `*nat\n-D ${jump.from} ${jump.spec}\nCOMMIT\n`);
    h.controller.apply([service({ key: 'shop/late', clusterIPs: [ip('10.96.0.2')] })]);
    await h.settle();
    looking.resolve();
    await h.settle();
    assert.deepEqual((await h.ruled())?.toSorted(), ['shop/late', 'shop/web']);
    assert.ok((await h.iptables.list('IPv4', 'nat', jump.from)).includes(jump.spec));
  });

  test('tells once that rules are gone, however often it cannot repair them', async () => {
    const h = await serving();
    const told = () => h.log.of('warn').map(({ message }) => message);
    await h.iptables.restore('IPv4', EMPTIED);
    h.state.fault = new IptablesError('locked', 'another program holds the lock');
    for (let seconds = 0; seconds < 100; seconds++) await h.settle(1_000);
    const lost = 'The rules in the kernel are not as they were installed; repairing them';
    assert.deepEqual(told(), [lost]);
    h.state.fault = undefined;
    for (let seconds = 0; seconds < 40; seconds++) await h.settle(1_000);
    assert.deepEqual(await h.ruled(), ['shop/web']);
    await h.iptables.restore('IPv4', EMPTIED);
    for (let seconds = 0; seconds < 10; seconds++) await h.settle(1_000);
    assert.deepEqual(told(), [lost, lost]);
  });

  test('logs which Service ports it cannot serve', async () => {
    const h = harness();
    h.controller.apply([service({ ports: [{ name: '', protocol: 'SCTP', port: 80, nodePort: 0 }] })]);
    h.controller.synced();
    await h.settle();
    assert.deepEqual(
      h.log.of('warn').map((line) => line.fields['svc']),
      ['shop/web'],
    );
  });

  test('writes at most ten lines about a Service, however often its ports are renamed', async () => {
    const h = harness();
    h.controller.synced();
    for (let round = 0; round < 50; round++) {
      const port = (i: number) => ({ name: `r${round}-${i}`, protocol: 'SCTP', port: 1 + i, nodePort: 0 }) as const;
      h.controller.apply([service({ ports: Array.from({ length: 500 }, (_, i) => port(i)) })]);
      await h.settle();
    }
    h.controller.apply([
      service({ key: 'shop/other', ports: [{ name: '', protocol: 'SCTP', port: 80, nodePort: 0 }] }),
    ]);
    await h.settle();
    const lines = h.log.of('warn').map(({ message, fields }) => `${fields['svc']} ${fields['more']} ${message}`);
    assert.equal(lines.length, 11);
    assert.match(lines[0] ?? '', /^shop\/web:r0-0 499 This Service port is not served/);
    assert.match(lines[9] ?? '', /^shop\/web undefined More lines about this Service are not shown/);
    assert.match(lines[10] ?? '', /^shop\/other undefined This Service port is not served/);
  });

  test('changes nothing after stop, and leaves the rules', async () => {
    const h = await serving();
    await h.controller.stop();
    h.controller.apply([service({ key: 'shop/late', clusterIPs: [ip('10.96.0.2')] })]);
    await h.settle(60_000);
    assert.deepEqual(await h.ruled(), ['shop/web']);
    assert.equal(h.dataPlane.listeners.size, 1);
  });
});

describe('a controller that pauses for an upgrade', () => {
  test('waits for the current change, and then changes nothing until it resumes', async () => {
    const h = await serving(endpoints('10.0.0.1'));
    const release = h.dataPlane.hold();
    h.controller.apply([service({ key: 'shop/two', clusterIPs: [ip('10.96.0.2')] })]);
    await h.settle();
    let isPaused = false;
    const paused = h.controller.pause().then(() => {
      isPaused = true;
    });
    await h.settle();
    assert.equal(isPaused, false, 'a listener is being opened');
    release();
    await paused;
    assert.equal(h.dataPlane.listeners.size, 2);

    const restored = h.iptables.restored.length;
    h.controller.apply([service({ key: 'shop/three', clusterIPs: [ip('10.96.0.3')] }), endpoints('10.0.0.9')]);
    await h.settle(120_000);
    assert.equal(h.dataPlane.opened.length, 2);
    assert.equal(h.iptables.restored.length, restored);
    const addresses = () => h.dataPlane.listeners.get('shop/web')?.backends.endpoints.map(({ address }) => address);
    assert.deepEqual(addresses(), ['10.0.0.1']);

    h.controller.resume();
    await h.settle(1_000);
    assert.deepEqual((await h.ruled())?.toSorted(), ['shop/three', 'shop/two', 'shop/web']);
    assert.deepEqual(addresses(), ['10.0.0.9']);
  });

  test('applies changes of endpoints until a long sync is over', async () => {
    const h = await serving(endpoints('10.0.0.1'));
    const restore = h.iptables.restore.bind(h.iptables);
    let release = (): void => {};
    const held = new Promise<void>((resolve) => (release = resolve));
    h.iptables.restore = async (...args) => {
      await held;
      return restore(...args);
    };
    h.controller.apply([service({ key: 'shop/two', clusterIPs: [ip('10.96.0.2')] })]);
    await h.settle(1_000);
    const paused = h.controller.pause();
    h.controller.apply([endpoints('10.0.0.9')]);
    await h.settle();
    const addresses = () => h.dataPlane.listeners.get('shop/web')?.backends.endpoints.map(({ address }) => address);
    assert.deepEqual(addresses(), ['10.0.0.9']);
    release();
    await paused;
    h.controller.apply([endpoints('10.0.0.1')]);
    await h.settle();
    assert.deepEqual(addresses(), ['10.0.0.9']);
  });

  test('a change that comes during a sync is pending until the next one ends', async () => {
    const h = await serving();
    const restore = h.iptables.restore.bind(h.iptables);
    const held: (() => void)[] = [];
    h.iptables.restore = async (...args) => {
      await new Promise<void>((resolve) => held.push(resolve));
      return restore(...args);
    };
    h.controller.apply([service({ key: 'shop/two', clusterIPs: [ip('10.96.0.2')] })]);
    await h.settle(1_000);
    h.controller.apply([service({ key: 'shop/three', clusterIPs: [ip('10.96.0.3')] })]);
    await h.settle();
    const until = async (name: string) => {
      while (!(await h.ruled())?.includes(name)) {
        held.shift()?.();
        await h.settle(1_000);
      }
    };
    await until('shop/two');
    assert.deepEqual((await h.ruled())?.toSorted(), ['shop/two', 'shop/web']);
    assert.equal(h.health.pending, true);
    await until('shop/three');
    assert.equal(h.health.pending, false);
  });

  test('opens later what could not be opened, and repairs its rules again', async () => {
    const h = harness();
    for (let port = 40_000; port <= 50_000; port++) h.dataPlane.taken.add(`TCP:${port}`);
    h.controller.apply([service(), endpoints('10.0.0.1')]);
    h.controller.synced();
    await h.settle();
    assert.equal(h.dataPlane.listeners.size, 0);
    await h.controller.pause();
    h.dataPlane.taken.clear();
    await h.settle(120_000);
    assert.equal(h.dataPlane.listeners.size, 0);
    h.controller.resume();
    await h.settle(1_000);
    assert.deepEqual(await h.ruled(), ['shop/web']);
    await h.iptables.restore('IPv4', '*nat\n:KUBE-PORTALS-CONTAINER - [0:0]\nCOMMIT\n');
    await h.settle(31_000);
    assert.deepEqual(await h.ruled(), ['shop/web']);
  });

  test('reads the rules later if it could not read them before', async () => {
    const h = harness();
    h.state.fault = new IptablesError('failed', 'no');
    await h.controller.pause();
    h.state.fault = undefined;
    h.controller.apply([service(), endpoints('10.0.0.1')]);
    h.controller.synced();
    await h.settle(60_000);
    assert.equal(h.dataPlane.listeners.size, 0);
    h.controller.resume();
    await h.settle(1_000);
    assert.deepEqual(await h.ruled(), ['shop/web']);
  });
});
