import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { UdpFlows } from '../../src/model/conntrack.ts';
import { FlowSync } from '../../src/sync/flow-sync.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address as ip, portal } from '../rules/fixtures.ts';

const DNS = portal({ name: 'kube-system/dns', protocol: 'UDP', port: 53, clusterIPs: ['10.96.0.10'], localPort: 4000 });
const FLOWS = [{ destination: ip('10.96.0.10'), port: 53, keepLocalPort: 4000 }];

function harness() {
  const asked: (readonly UdpFlows[])[] = [];
  const told: number[] = [];
  const state = { fault: undefined as Error | undefined };
  const log = new RecordingLog();
  const flows = new FlowSync({
    family: 'IPv4',
    conntrack: {
      deleteUdp: async (some) => {
        asked.push(some);
        if (state.fault !== undefined) throw state.fault;
        return 3;
      },
      deleteUdpTo: () => assert.fail('is for cleaning up'),
    },
    clock: new ManualClock(),
    log,
    metrics: { conntrackReconciled: (_durationMs, deleted) => told.push(deleted) },
  });
  return { flows, asked, told, state, log };
}

test('what changed is cleared once, and counted', async () => {
  const { flows, asked, told } = harness();
  flows.note({ upserted: [DNS], removed: [] });
  await flows.clear();
  await flows.clear();
  assert.deepEqual(asked, [FLOWS]);
  assert.deepEqual(told, [3]);
});

test('what fails is tried again with the next sync, and told once until it succeeds', async () => {
  const { flows, asked, told, state, log } = harness();
  state.fault = new Error('give this program CAP_NET_ADMIN');
  flows.note({ upserted: [DNS], removed: [] });
  for (let i = 0; i < 3; i++) await flows.clear();
  assert.deepEqual(asked, [FLOWS, FLOWS, FLOWS]);
  assert.deepEqual(
    log.of('error').map(({ fields }) => fields['err']),
    ['give this program CAP_NET_ADMIN'],
  );
  state.fault = undefined;
  await flows.clear();
  assert.deepEqual(told, [3]);
  await flows.clear();
  assert.equal(asked.length, 4);
});
