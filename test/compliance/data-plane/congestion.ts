import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaultCongestionControl } from '../../../src/sys/congestion-control.ts';
import { congestionControlsAt, otherCongestionControl } from '../../support/congestion.ts';
import { connectTcp, TcpBackend } from '../../support/tcp.ts';
import type { RigFactory } from './harness.ts';

export function congestionTests(makeRig: RigFactory): void {
  for (const asked of [otherCongestionControl(), undefined]) {
    test(`${asked ?? "the node's"} is used towards clients and endpoints`, async (t) => {
      const rig = await makeRig(t, { congestionControl: asked });
      const backend = await TcpBackend.echo(t);
      const { port } = await rig.open('TCP', [backend.endpoint]);
      const client = await connectTcp(port);
      client.send('hello');
      await client.hasReceived(5);
      const expected = [asked ?? defaultCongestionControl()];
      assert.deepEqual(congestionControlsAt('local', port), expected);
      assert.deepEqual(congestionControlsAt('peer', backend.endpoint.port), expected);
      client.end();
      assert.equal(await client.finished(), 'end');
    });
  }
}
