import type { Endpoint } from '../model/endpoint.ts';
import { idOf, type SourceEvent } from '../model/source.ts';
import type { Clock } from '../util/clock.ts';
import { LineSplitter } from '../util/line-splitter.ts';
import { Field } from '../util/untrusted.ts';
import { parseWatchEvent } from './answers.ts';
import type { Transport } from './api-client.ts';
import { ApiError, causeMessage } from './api-error.ts';
import { withinSilence } from './http-exchange.ts';
import { uidOf } from './objects/fields.ts';

/*
 * Each cluster has a Service that its API servers make, and make again. Its UID says which cluster it is, and its
 * endpoints are the API servers.
 */

const CLUSTER_SERVICE = 'default/kubernetes';

/** What a cluster says of itself, gathered from the changes of its objects. */
export class ClusterFacts {
  #uid: string | undefined;
  /** By kind and key: a cluster of both families has two slices. */
  readonly #servers = new Map<string, readonly Endpoint[]>();

  /** `undefined` until its Service is known. */
  get uid(): string | undefined {
    return this.#uid;
  }

  /** Where its API servers are. */
  get servers(): readonly Endpoint[] {
    return [...this.#servers.values()].flat();
  }

  /** Whether these changes say anything new. */
  apply(changes: readonly SourceEvent[]): boolean {
    let isNews = false;
    for (const change of changes) {
      if (change.kind === 'Service') {
        // One that is deleted is made again; until then, the cluster is the same.
        if (change.key !== CLUSTER_SERVICE || change.value?.uid === undefined) continue;
        isNews ||= change.value.uid !== this.#uid;
        this.#uid = change.value.uid;
        continue;
      }
      const name = idOf(change);
      const servers = serversIn(change);
      isNews ||= servers !== undefined || this.#servers.has(name);
      if (servers === undefined) this.#servers.delete(name);
      else this.#servers.set(name, servers);
    }
    return isNews;
  }
}

function serversIn(change: Exclude<SourceEvent, { kind: 'Service' }>): readonly Endpoint[] | undefined {
  if (change.value === undefined) return undefined;
  const [service, groups] =
    change.kind === 'EndpointSlice'
      ? [change.value.service, [change.value.group]]
      : [change.value.key, change.value.groups];
  if (service !== CLUSTER_SERVICE) return undefined;
  return groups.flatMap(({ addresses, ports }) =>
    ports.flatMap(({ protocol, port }) =>
      protocol === 'TCP' ? addresses.map(({ address }) => ({ address, port })) : [],
    ),
  );
}

/** A watch without a version begins with what there is now (Kubernetes' API concepts, "Get State and Start"). */
const WATCH_PATH = `/api/v1/namespaces/default/services?${new URLSearchParams({
  watch: '1',
  fieldSelector: 'metadata.name=kubernetes',
})}`;

/** As long as a probe. */
const DEADLINE_MS = 10_000;
const LINE_MAX_BYTES = 1024 * 1024;

/**
 * Asks a server which cluster it is of, by a watch, which is what it would be used for. `system:node-proxier` may not
 * get a Service, but watch it. Rejects with an {@link ApiError}.
 */
export async function askWhichCluster(
  transport: Pick<Transport, 'watch'>,
  { clock, signal: outer }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<string> {
  const late = new ApiError('unreachable', `a watch of the Service ${CLUSTER_SERVICE} gave nothing within 10 s`);
  return await withinSilence({ clock, ms: DEADLINE_MS, late, outer }, async (signal) => {
    const { body } = await transport.watch(WATCH_PATH, signal);
    try {
      return await firstUid(body);
    } catch (error) {
      throw error instanceof ApiError ? error : new ApiError('garbage', causeMessage(error));
    }
  });
}

async function firstUid(body: AsyncIterable<Uint8Array>): Promise<string> {
  const lines = new LineSplitter(LINE_MAX_BYTES);
  for await (const chunk of body) {
    for (const line of lines.push(chunk)) {
      const event = parseWatchEvent(line);
      const uid = event.type === 'changed' ? uidOf(Field.root(event.object)) : undefined;
      if (uid !== undefined) return uid;
    }
  }
  throw new ApiError('garbage', `a watch of the Service ${CLUSTER_SERVICE} ended without it`);
}
