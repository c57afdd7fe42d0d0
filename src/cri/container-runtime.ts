import { connect } from 'node:net';
import { type Client, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { type Address, parseAddress } from '../model/address.ts';
import type { PodAddresses, PodKey } from '../model/pod-addresses.ts';
import { type PodSandbox, type PodSandboxStatusResponse, runtimeService } from './messages.ts';

/** It is on this node; one that takes longer has trouble of its own, and is asked again. */
const TIMEOUT_MS = 2_000;
/** Of one answer: far above a node full of pods. */
const MAX_BYTES = 16 * 1024 * 1024;
/** A connection that nobody needs is closed. */
const IDLE_MS = 10_000;

type Ask = (request: object) => Promise<unknown>;

/** The container runtime of this node, by the CRI (v1), which containerd and CRI-O serve at a Unix socket. */
export class ContainerRuntime implements PodAddresses {
  readonly #client: Client<ReturnType<typeof runtimeService>>;

  /** `path`: of its socket. Connects only when it is asked. */
  constructor(path: string) {
    const transport = createGrpcTransport({
      // No name is looked up: it is what the runtime sees as the authority.
      baseUrl: 'http://localhost',
      nodeOptions: { createConnection: () => connect(path) },
      idleConnectionTimeoutMs: IDLE_MS,
      defaultTimeoutMs: TIMEOUT_MS,
      readMaxBytes: MAX_BYTES,
    });
    this.#client = createClient(runtimeService(), transport);
  }

  /** Rejects when the runtime does not answer. A sandbox that ends meanwhile is left out. */
  async addressesOf(pods: ReadonlySet<PodKey>): Promise<ReadonlyMap<PodKey, readonly Address[]>> {
    // What is ready is what runs: after a boot the sandboxes of before are listed, too.
    const { items } = (await this.#ask('listPodSandbox', { filter: { state: { state: 0 } } })) as {
      readonly items: readonly PodSandbox[];
    };
    const found = new Map<PodKey, readonly Address[]>();
    await Promise.all(
      items.map(async ({ id, metadata }) => {
        const pod: PodKey = `${metadata?.namespace ?? ''}/${metadata?.name ?? ''}`;
        if (!pods.has(pod)) return;
        const addresses = await this.#addresses(id);
        if (addresses !== undefined) found.set(pod, addresses);
      }),
    );
    return found;
  }

  async #addresses(podSandboxId: string): Promise<readonly Address[] | undefined> {
    const answer = await this.#ask('podSandboxStatus', { podSandboxId }).catch(() => undefined);
    const { status } = (answer ?? {}) as PodSandboxStatusResponse;
    if (status === undefined) return undefined;
    const { ip = '', additionalIps = [] } = status.network ?? {};
    return [ip, ...additionalIps.map((each) => each.ip)].flatMap((text) => parseAddress(text) ?? []);
  }

  #ask(method: string, request: object): Promise<unknown> {
    const ask = (this.#client as unknown as Readonly<Record<string, Ask>>)[method];
    if (ask === undefined) throw new Error(`the container runtime has no ${method}`);
    return ask(request);
  }
}
