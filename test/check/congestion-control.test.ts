import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkCongestionControl } from '../../src/check/congestion-control.ts';
import { fakeMachine, linesOf } from './fake-machine.ts';

async function check(nodes: string, congestionControl?: string): Promise<string> {
  const machine = fakeMachine({ files: { '/proc/sys/net/ipv4/tcp_congestion_control': `${nodes}\n` } });
  const problem = async (name: string) => (name === 'vegas' ? 'this kernel has none' : undefined);
  return linesOf(await checkCongestionControl(machine, { congestionControl }, problem)).join('\n');
}

test('an operator learns what BBR costs on this node, and whose connections the flag is about', async () => {
  assert.equal(await check('cubic'), 'ok: TCP uses cubic, as the node does');
  assert.match(
    await check('bbr'),
    /^warn: TCP uses bbr, as the node does: between pods .* a third of what cubic does → give --tcp/,
  );
  assert.equal(await check('bbr', 'cubic'), "ok: the proxy's TCP connections use cubic; the node's default is bbr");
});

test('one that the kernel refuses is a failure', async () => {
  const expected = 'fail: --tcp-congestion-control vegas: this kernel has none → choose another, or remove it';
  assert.equal(await check('cubic', 'vegas'), expected);
});
