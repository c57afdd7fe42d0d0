import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { ContainerRuntime } from '../../src/cri/container-runtime.ts';
import { runtimeService } from '../../src/cri/messages.ts';

interface Pod {
  readonly id: string;
  readonly name: string;
  readonly network?: object;
}

/** A container runtime at a socket. Another implementation than the one that is asked; the real one is in the netns tests. */
async function serve(t: TestContext, pods: readonly Pod[]) {
  const folder = mkdtempSync(join(tmpdir(), 'cri-'));
  const path = join(folder, 'cri.sock');
  const requests: unknown[] = [];
  const routes = (router: ConnectRouter) =>
    router.service(runtimeService(), {
      listPodSandbox: (request: object) => {
        requests.push(request);
        return { items: pods.map(({ id, name }) => ({ id, metadata: { name, namespace: 'shop' } })) };
      },
      podSandboxStatus: ({ podSandboxId }: { podSandboxId: string }) => {
        const pod = pods.find(({ id }) => id === podSandboxId);
        if (pod?.network === undefined) throw new ConnectError('no such sandbox', Code.NotFound);
        return { status: { network: pod.network } };
      },
    } as never);
  const server = createServer(connectNodeAdapter({ routes }));
  server.listen(path);
  await once(server, 'listening');
  t.after(() => {
    server.close();
    rmSync(folder, { recursive: true });
  });
  return { path, requests };
}

test('it says where pods are that are asked for; one that ends meanwhile is left out', async (t) => {
  const { path } = await serve(t, [
    { id: 'a', name: 'web', network: { ip: '10.244.1.9', additionalIps: [{ ip: 'fd00::9' }, { ip: 'nonsense' }] } },
    { id: 'b', name: 'host', network: { ip: '' } },
    { id: 'c', name: 'gone' },
    { id: 'd', name: 'other', network: { ip: '10.244.1.10' } },
  ]);
  const found = await new ContainerRuntime(path).addressesOf(
    new Set(['shop/web', 'shop/host', 'shop/gone', 'shop/none']),
  );
  assert.deepEqual(
    found,
    new Map([
      ['shop/web', ['10.244.1.9', 'fd00::9']],
      ['shop/host', []],
    ]),
  );
});

test('without a runtime at the socket it rejects, with the reason', async () => {
  await assert.rejects(new ContainerRuntime('/nowhere/cri.sock').addressesOf(new Set(['shop/web'])), /ENOENT/);
});
