import { once } from 'node:events';
import { createServer, type Http2Server } from 'node:http2';
import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { runtimeService } from '../../src/cri/messages.ts';

export interface FakePod {
  /** Of its sandbox. */
  readonly id: string;
  readonly namespace: string;
  readonly name: string;
  /** Missing: the sandbox is gone when it is asked for. */
  readonly network?: { readonly ip: string; readonly additionalIps?: readonly { readonly ip: string }[] };
}

/** Serves the part of the CRI that is asked, at a Unix socket. A real one: test/cluster/container-runtime.test.ts. */
export async function serveRuntime(path: string, pods: readonly FakePod[]): Promise<Http2Server> {
  const routes = (router: ConnectRouter) =>
    router.service(runtimeService(), {
      listPodSandbox: () => ({ items: pods.map(({ id, namespace, name }) => ({ id, metadata: { namespace, name } })) }),
      podSandboxStatus: ({ podSandboxId }: { readonly podSandboxId: string }) => {
        const pod = pods.find(({ id }) => id === podSandboxId);
        if (pod?.network === undefined) throw new ConnectError('no such sandbox', Code.NotFound);
        return { status: { network: pod.network } };
      },
    } as never);
  const server = createServer(connectNodeAdapter({ routes }));
  server.listen(path);
  await once(server, 'listening');
  return server;
}
