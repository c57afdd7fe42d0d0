import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { ApiError, causeMessage } from './api-error.ts';

export interface EventEnvironment {
  /** The name of the Node object that this proxy runs on. */
  readonly node: string;
  readonly api: { post(path: string, body: unknown, signal: AbortSignal): Promise<unknown> };
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export interface ClusterEvent {
  /** The event's own name, for one that every node would write alike: the API server keeps the first. Else it makes one. */
  readonly name?: string;
  readonly type: 'Normal' | 'Warning';
  /** One word in UpperCamelCase, for machines. */
  readonly reason: string;
  readonly message: string;
  /** What it is about; `uid` is what `kubectl describe` looks for. */
  readonly about: {
    readonly kind: string;
    readonly namespace?: string;
    readonly name: string;
    readonly uid?: string | undefined;
  };
}

/**
 * Writes an event, as `kubectl get events` shows it. The component is `kube-proxy`, because that is the part this program
 * plays and what runbooks and event filters look for.
 *
 * Core `v1`, which every server has and `system:node-proxier` may create. Resolves whatever happens: nobody waits for it.
 */
export async function postEvent(
  { name, type, reason, message, about }: ClusterEvent,
  { node, api, clock, log, signal }: EventEnvironment,
): Promise<void> {
  const now = timestamp(clock.wallNow());
  // What has no namespace has its events in `default` (upstream's recorder).
  const namespace = about.namespace ?? 'default';
  try {
    await api.post(
      `/api/v1/namespaces/${namespace}/events`,
      {
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { ...(name === undefined ? { generateName: `${about.name}.` } : { name }), namespace },
        involvedObject: about,
        type,
        reason,
        message,
        source: { component: 'kube-proxy', host: node },
        firstTimestamp: now,
        lastTimestamp: now,
        count: 1,
      },
      signal,
    );
  } catch (error) {
    if (name !== undefined && error instanceof ApiError && error.status === 409) return;
    log.v(1)?.info(`The ${reason} event could not be sent`, { node, err: causeMessage(error) });
  }
}

/** RFC 3339, to the second as Kubernetes keeps it. */
function timestamp(wallMs: number): string {
  // biome-ignore lint/style/noRestrictedGlobals: spells out an instant that the clock has read; asks for no time
  return new Date(wallMs).toISOString().replace(/\.\d+/, '');
}
