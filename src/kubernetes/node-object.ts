import { hostname } from 'node:os';
import type { Clock, Random } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { sleep } from '../util/wait.ts';
import { causeMessage } from './api-error.ts';
import { decodeNode, type NodeStatus } from './node-status.ts';
import type { Transport } from './transport.ts';

/** The Node object's name: `--hostname-override`, or the host name as the kubelet spells it (`pkg/util/node` GetHostname). */
export function nodeName(override: string | undefined): string {
  return (override || hostname()).trim().toLowerCase();
}

/** Upstream's wait (`pkg/util/node` GetNodeIP): six tries, a second after the first, then twice as long each time. */
const TRIES = 6;
const FIRST_WAIT_MS = 1_000;
const JITTER = 0.2;

/**
 * This node, as soon as its Node object has an address. A kubelet may be registering the node at this moment, so it is
 * waited for, half a minute in all. `undefined` when that was in vain; the reason is in the log.
 */
export async function awaitNode({
  name,
  api,
  clock,
  random,
  log,
  signal,
}: {
  readonly name: string;
  readonly api: Pick<Transport, 'get'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly signal: AbortSignal;
}): Promise<NodeStatus | undefined> {
  let waitMs = FIRST_WAIT_MS;
  for (let tries = 1; !signal.aborted; tries += 1) {
    let err: string;
    try {
      const node = decodeNode(await api.get(`/api/v1/nodes/${encodeURIComponent(name)}`, signal));
      if (node.status === 'ok' && node.value.addresses.length > 0) return node.value;
      err = node.status === 'invalid' ? `${node.problem.field} ${node.problem.problem}` : 'it has no address yet';
    } catch (error) {
      err = causeMessage(error);
    }
    if (signal.aborted) break;
    if (tries === TRIES) {
      log.warn('The Node object of this node gives no address', { node: name, err });
      break;
    }
    log.v(1)?.info('The Node object of this node gives no address yet', { node: name, err });
    await sleep(waitMs * (1 + JITTER * random()), clock, signal);
    waitMs *= 2;
  }
  return undefined;
}
