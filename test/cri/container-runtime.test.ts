import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ContainerRuntime } from '../../src/cri/container-runtime.ts';
import { serveRuntime } from '../fakes/fake-container-runtime.ts';

const namespace = 'shop';

test('it says where the pods are that it is asked for; one that ends meanwhile is left out', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'cri-'));
  const path = join(folder, 'cri.sock');
  const both = { ip: '10.244.1.9', additionalIps: [{ ip: 'fd00::9' }, { ip: 'nonsense' }] };
  const server = await serveRuntime(path, [
    { id: 'a', namespace, name: 'web', network: both },
    { id: 'b', namespace, name: 'host', network: { ip: '' } },
    { id: 'c', namespace, name: 'gone' },
    { id: 'd', namespace, name: 'other', network: { ip: '10.244.1.10' } },
  ]);
  t.after(() => {
    server.close();
    rmSync(folder, { recursive: true });
  });
  const asked = new Set(['shop/web', 'shop/host', 'shop/gone', 'shop/none'] as const);
  const found = await new ContainerRuntime(path).addressesOf(asked);
  assert.deepEqual([...found].sort(), [
    ['shop/host', []],
    ['shop/web', ['10.244.1.9', 'fd00::9']],
  ]);
});

test('without a runtime at the socket it rejects, with the reason', async () => {
  await assert.rejects(new ContainerRuntime('/nowhere/cri.sock').addressesOf(new Set(['shop/web'])), /ENOENT/);
});
