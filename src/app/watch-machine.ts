import { isDeepStrictEqual } from 'node:util';
import type { HealthCheckNodePorts } from '../http/health-check-node-ports.ts';
import { localAddresses, watchAddresses } from '../kernel/addresses.ts';
import type { Address, IpFamily } from '../model/address.ts';
import type { NodeFacts } from '../rules/service-rules.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import type { ControlPlane } from './control-plane.ts';
import type { Pipeline } from './pipeline.ts';
import type { Ability } from './served-families.ts';
import type { ThisNode } from './this-node.ts';

/** Of what the kernel tells nobody of: which programs listen; and of what it does tell, should that get lost. */
const INTERVAL_MS = 5_000;

export interface WatchedMachine {
  readonly node: ThisNode;
  readonly ability: Ability;
  readonly pipelines: readonly Pipeline[];
  readonly controlPlane: ControlPlane;
  readonly healthCheckNodePorts: Pick<HealthCheckNodePorts, 'listenOn'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/**
 * Tells whom it concerns, now and whenever that changes, what this node is: its addresses, which programs listen, and
 * which families it can serve. Returns what looks at once, for when something else is known to have changed.
 */
export function watchMachine(machine: WatchedMachine): () => void {
  const { node, pipelines, controlPlane, clock, log, signal } = machine;
  const facts = new Map<IpFamily, NodeFacts>();
  let served: readonly Address[] | undefined;
  let isWaking = false;

  const look = (): void => {
    controlPlane.setTopology(node.topology);
    for (const pipeline of pipelines) {
      const { family, tracker, controller } = pipeline;
      tracker.setNodeAddresses(localAddresses(family));
      controller.trackerChanged();
      const now = node.facts(pipeline);
      // Without an address, rules stay as they are: it may come back.
      const before = facts.get(family);
      if (now === undefined || isDeepStrictEqual(now, before)) continue;
      facts.set(family, now);
      if (before !== undefined) controller.nodeChanged();
    }
    const addresses = node.nodePortAddresses(pipelines.map(({ family }) => family));
    if (!isDeepStrictEqual(addresses, served)) machine.healthCheckNodePorts.listenOn(addresses);
    served = addresses;
    if (isWaking) return;
    isWaking = true;
    void wake(machine).finally(() => {
      isWaking = false;
    });
  };
  const tryToLook = (): void => {
    try {
      look();
    } catch (error) {
      log.warn('Cannot look at the addresses of this machine; trying again', { err: messageOf(error) });
    }
  };
  const lookAtAll = (): void => {
    if (signal.aborted) return;
    for (const { tracker } of pipelines) tracker.listeningChanged();
    tryToLook();
    clock.after(INTERVAL_MS, lookAtAll);
  };
  lookAtAll();
  void watchAddresses({ clock, onChange: tryToLook, signal });
  return tryToLook;
}

/** Serves the families that the node has come to be able to serve. */
async function wake({ ability, controlPlane, log }: WatchedMachine): Promise<void> {
  if (!controlPlane.isRunning || controlPlane.dormant.length === 0) return;
  try {
    for (const family of await ability.of(controlPlane.dormant)) {
      await controlPlane.activate(family);
    }
    await ability.tell(controlPlane.active.map(({ family }) => family));
  } catch (error) {
    log.error('Cannot find out which address families can be served; trying again', { err: messageOf(error) });
  }
}
