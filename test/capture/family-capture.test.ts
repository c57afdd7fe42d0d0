import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { IptablesError } from '../../src/capture/iptables/iptables.ts';
import { IptablesMethod } from '../../src/capture/iptables/method.ts';
import { CaptureError } from '../../src/model/capture.ts';
import { FakeIptables } from '../fakes/fake-iptables.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { iptablesCapture, portBook } from '../support/capture.ts';
import { cidr } from '../support/model.ts';
import { nodeFacts, portal } from './fixtures.ts';

const WEB = portal({ name: 'shop/web', clusterIPs: ['10.96.0.1'], nodePort: 30_080, localPort: 40_001 });
const DNS = portal({
  name: 'kube-system/dns',
  protocol: 'UDP',
  port: 53,
  clusterIPs: ['10.96.0.10'],
  localPort: 40_002,
});
const VERIFY = { verify: true };
const CHANGED = { verify: false };

/** Two methods on one machine. For the tests, both are iptables, in a kernel for each. */
async function machine() {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const [before, now] = [new FakeIptables(), new FakeIptables()];
  const node = () => nodeFacts();
  const first = iptablesCapture({ iptables: before, clock, log, node });
  first.apply({ upserted: [WEB, DNS], removed: [] });
  await first.sync(CHANGED);
  first.apply({ upserted: [], removed: ['kube-system/dns'] });
  await first.sync(CHANGED);
  const method = new IptablesMethod({ iptables: before, isLocal: () => false, clock, log });
  const ports = portBook(clock);
  const capture = iptablesCapture({ iptables: now, clock, log, ports, node, others: [method] });
  const isLeft = async () => /KUBE-PORTALS/.test(await before.save('IPv4', 'nat'));
  return { before, now, capture, ports, log, method, isLeft };
}

test('of the blocks of cluster IPs, those with addresses of this node or of pods are left alone', async () => {
  const iptables = new FakeIptables();
  const node = () => nodeFacts({ clusterCidrs: ['10.244.0.0/16'] });
  const capture = iptablesCapture({ iptables, clock: new ManualClock(), log: new RecordingLog(), node });
  const mistakes = ['192.168.0.0/16', '10.0.0.0/8', '10.244.7.0/24', 'fd00::/8'];
  capture.dropUnassigned(['10.96.0.0/16', ...mistakes].map(cidr));
  await capture.sync(CHANGED);
  const rules = (await iptables.save('IPv4', 'nat')).match(/^-A KUBE-UNASSIGNED -d \S+ -p tcp/gm);
  assert.deepEqual(rules, ['-A KUBE-UNASSIGNED -d 10.96.0.0/16 -p tcp']);
});

describe('a change of the method that captures', () => {
  test('keeps local ports and addresses, and removes what the other has installed once all is installed', async () => {
    const { now, capture, ports, log, isLeft } = await machine();
    const found = await capture.installedPorts();
    assert.deepEqual(
      found.map(({ name, localPort, retiredForMs }) => [name, localPort, retiredForMs]),
      [
        ['shop/web', 40_001, undefined],
        ['kube-system/dns', 40_002, 0],
      ],
    );
    assert.ok(capture.holds('shop/web', { port: 30_080 }, 'TCP'));
    assert.ok(!capture.holds('kube-system/dns', { port: 30_080 }, 'TCP'));
    ports.remember(found);
    assert.equal(ports.take({ name: 'shop/web', set: 'own', protocol: 'TCP' }, new Set())?.port, 40_001);

    capture.apply({ upserted: [WEB], removed: [] });
    now.refuses = () => true;
    await assert.rejects(capture.sync(CHANGED), IptablesError);
    assert.ok(await isLeft(), 'nothing else captures yet');
    now.refuses = () => false;
    await capture.sync(CHANGED);
    assert.match(await now.save('IPv4', 'nat'), /shop\/web/);
    assert.ok(!(await isLeft()));
    const told = log.lines.filter(({ message }) => message.startsWith('Removed what another method'));
    assert.equal(told.length, 1);
    await capture.sync(VERIFY);
    assert.equal(log.lines.filter(({ message }) => message.startsWith('Removed what another')).length, 1, 'only once');
  });

  test('tries again to remove what is locked, and tells once of what cannot be removed', async () => {
    for (const [mayPass, attempts] of [
      [true, 3],
      [false, 1],
    ] as const) {
      const { capture, log, method, isLeft } = await machine();
      let tried = 0;
      method.remove = async () => {
        tried++;
        throw new CaptureError('not now', { mayPass });
      };
      for (let i = 0; i < 3; i++) await capture.sync(CHANGED);
      assert.equal(tried, attempts);
      await capture.sync(VERIFY);
      assert.equal(tried, attempts + 1, 'a sync that looks at all tries again');
      const told = log.lines.filter(({ message }) => message.startsWith('Cannot remove what another method'));
      assert.equal(told.length, mayPass ? 0 : 1);
      assert.ok(await isLeft());
    }
  });

  test('waits for tables of iptables that are locked', async () => {
    const { before, capture, log, isLeft } = await machine();
    const restore = before.restore.bind(before);
    before.restore = () => Promise.reject(new IptablesError('locked', 'another program holds the lock'));
    await capture.sync(CHANGED);
    assert.ok(await isLeft());
    before.restore = restore;
    await capture.sync(CHANGED);
    assert.ok(!(await isLeft()));
    assert.deepEqual(log.of('warn'), []);
  });

  test('does not wait for a method that does not work here, but for one that is locked', async () => {
    const { capture, method } = await machine();
    const fails = (mayPass: boolean) => async () => {
      throw new CaptureError('there are no such tables', { mayPass });
    };
    method.installed = fails(false);
    assert.deepEqual(await capture.installedPorts(), []);
    method.installed = fails(true);
    await assert.rejects(capture.installedPorts(), CaptureError);
  });
});

test('when the node has another address, all is made anew in slices, and who has an address keeps it', async () => {
  let turns = 0;
  const clock = Object.assign(new ManualClock(), {
    // Each look at the clock is a slice of its own.
    now: () => 1_000 * turns++,
    after: (_ms: number, callback: () => void) => {
      setImmediate(callback);
      return { cancel: () => {} };
    },
  });
  let address = '192.168.50.10';
  const iptables = new FakeIptables();
  const node = () => nodeFacts({ hostAddress: address as ReturnType<typeof nodeFacts>['hostAddress'] });
  const capture = iptablesCapture({ iptables, clock, log: new RecordingLog(), node });
  const late = portal({ name: 'a/late', clusterIPs: ['10.96.0.1'], localPort: 40_009 });
  capture.apply({ upserted: [WEB], removed: [] });
  await capture.sync(CHANGED);
  capture.apply({ upserted: [late], removed: [] });
  await capture.sync(CHANGED);
  address = '192.168.50.99';
  const before = turns;
  await capture.sync(CHANGED);
  assert.ok(turns - before > 4, `${turns - before} slices`);
  assert.match(await iptables.save('IPv4', 'nat'), /"shop\/web" .*--to-destination 192\.168\.50\.99:40001/);
  assert.deepEqual(capture.conflictsOf('a/late'), [{ owner: 'a/late', holder: 'shop/web', what: '10.96.0.1:80/TCP' }]);
});
