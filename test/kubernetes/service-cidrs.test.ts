import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import { decodeServiceCidr, encodeServiceCidr, watchServiceCidrs } from '../../src/kubernetes/service-cidrs.ts';
import { FakeTransport } from '../fakes/fake-transport.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { cidr } from '../support/model.ts';
import { settle } from '../support/until.ts';
import { added, deleted, initialEventsEnd } from './objects.ts';

const block = (name: string, ...cidrs: readonly unknown[]) => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'ServiceCIDR',
  metadata: { name, resourceVersion: '7' },
  spec: { cidrs },
});

function watch(t: { after(run: () => Promise<void>): void }) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const transport = new FakeTransport(clock);
  const told: string[] = [];
  const controller = new AbortController();
  const run = watchServiceCidrs({
    ...{ transport, clock, random: () => 0, log },
    onChange: (blocks) => told.push(blocks.map(({ network, prefixLength }) => `${network}/${prefixLength}`).join()),
    signal: controller.signal,
  });
  t.after(async () => {
    controller.abort(new Error('stopped'));
    await run;
  });
  return { clock, log, transport, told };
}

test('all blocks are reported together, whenever one comes or goes', async (t) => {
  const { transport, told } = watch(t);
  const stream = (await transport.call('watch')).open();
  stream.send(added(block('kubernetes', '10.96.0.0/16', 'fd00:96::/112')), initialEventsEnd('10'));
  await settle();
  stream.send(added(block('more', '10.97.0.0/16')));
  await settle();
  stream.send(deleted(block('kubernetes')));
  await settle();
  assert.deepEqual(told, ['10.96.0.0/16,fd00:96::/112', '10.96.0.0/16,fd00:96::/112,10.97.0.0/16', '10.97.0.0/16']);
});

test('a server without them, and one that does not show them, has none, and is asked again only after minutes', async (t) => {
  for (const status of [403, 404]) {
    const { clock, log, transport, told } = watch(t);
    (await transport.call('watch')).fail(new ApiError('status', `HTTP ${status}`, { status }));
    await settle();
    clock.advance(299_000);
    await transport.assertIdle();
    clock.advance(1_000);
    await transport.call('watch');
    assert.deepEqual([told, log.of('warn'), log.of('error')], [[''], [], []]);
  }
});

test('blocks that are written again are read as the same', () => {
  const blocks = [cidr('10.96.0.0/16'), cidr('10.97.0.0/16'), cidr('fd00:96::/112')];
  const decoded = decodeServiceCidr(encodeServiceCidr(blocks));
  assert.deepEqual(decoded.status === 'ok' && decoded.value, blocks);
});

test('a block that cannot be read is refused as a whole object', () => {
  assert.equal(decodeServiceCidr(block('odd', '10.96.0.0/16', 'nonsense')).status, 'invalid');
  assert.equal(decodeServiceCidr(block('odd', 7)).status, 'invalid');
  assert.equal(decodeServiceCidr(block('all', '0.0.0.0/0')).status, 'invalid');
});
