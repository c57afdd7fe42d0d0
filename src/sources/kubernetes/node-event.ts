import type { Clock } from '../../contracts/clock.ts';
import type { Log } from '../../contracts/log.ts';
import { causeMessage } from './api-error.ts';

/**
 * Upstream's `Starting` event on the Node: who looks at a node's events sees that its proxy was restarted, and which
 * one it is. The component is `kube-proxy`, because that is the part this program plays and what runbooks and event
 * filters look for; the message names the program.
 *
 * Core `v1`, which every server has and `system:node-proxier` may create. Resolves whatever happens: nobody waits for it.
 */
export async function reportStarting({
  node,
  program,
  api,
  clock,
  log,
  signal,
}: {
  /** The Node object's name. */
  readonly node: string;
  /** As `kube-userspace-proxy 1.2.3`. */
  readonly program: string;
  readonly api: { post(path: string, body: unknown, signal: AbortSignal): Promise<unknown> };
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}): Promise<void> {
  const now = timestamp(clock.wallNow());
  try {
    await api.post(
      // A Node has no namespace; events of one are in `default` (upstream's recorder).
      '/api/v1/namespaces/default/events',
      {
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { generateName: `${node}.`, namespace: 'default' },
        // The kubelet's convention, and upstream's: the name in the place of the uid. `kubectl describe node` looks for it.
        involvedObject: { kind: 'Node', name: node, uid: node },
        type: 'Normal',
        reason: 'Starting',
        message: `Starting ${program}.`,
        source: { component: 'kube-proxy', host: node },
        firstTimestamp: now,
        lastTimestamp: now,
        count: 1,
      },
      signal,
    );
  } catch (error) {
    log.v(1)?.info('The Starting event could not be sent', { node, err: causeMessage(error) });
  }
}

/** RFC 3339, to the second as Kubernetes keeps it. */
function timestamp(wallMs: number): string {
  // biome-ignore lint/style/noRestrictedGlobals: spells out an instant that the clock has read; asks for no time
  return new Date(wallMs).toISOString().replace(/\.\d+/, '');
}
