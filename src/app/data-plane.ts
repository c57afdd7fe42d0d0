import type { Config } from '../config/config.ts';
import { createFastDataPlane, defaultWorkers } from '../engine/fast/create.ts';
import {
  createNodeDataPlane,
  loadKeeper,
  loadKernelSockets,
  type NodeDataPlaneSetup,
} from '../engine/node/node-data-plane.ts';
import type { DataPlane, DataPlaneObserver } from '../model/data-plane.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';

export interface OpenedDataPlane {
  readonly engine: 'fast' | 'node';
  readonly dataPlane: DataPlane;
  /** Threads of the fast engine. */
  readonly workers?: number;
  /** Connections to endpoints carry the mark of the configuration. */
  readonly isMarking: boolean;
}

export async function openDataPlane(
  { engine, workers = defaultWorkers(), dataPlane: { connectionMark, ...others } }: Config,
  observer: DataPlaneObserver,
  log: Log,
): Promise<OpenedDataPlane> {
  const openSocket = await socketMaker(connectionMark, log);
  const isMarking = openSocket !== undefined;
  const options = { ...others, ...(isMarking && connectionMark !== undefined && { connectionMark }) };
  if (engine !== 'node') {
    try {
      const dataPlane = await createFastDataPlane({ options: { ...options, workers }, observer, clock, log });
      return { engine: 'fast', dataPlane, workers, isMarking };
    } catch (error) {
      const err = messageOf(error);
      if (engine === 'fast') throw new Error(`the fast engine cannot run here (${err}); use --dataplane node`);
      log.warn('The fast engine cannot run here; the portable one carries the traffic, more slowly', { err });
    }
  }
  const kernel = await loadKernelSockets();
  const keeper = isMarking && connectionMark !== undefined ? await loadKeeper(connectionMark) : undefined;
  const setup: NodeDataPlaneSetup = { options, observer, clock, kernel, keeper, random: Math.random };
  const dataPlane = createNodeDataPlane(isMarking ? { ...setup, openSocket } : setup);
  return { engine: 'node', dataPlane, isMarking };
}

/** How marked sockets are made; `undefined` where there can be none. */
async function socketMaker(mark: number | undefined, log: Log): Promise<NodeDataPlaneSetup['openSocket']> {
  if (mark === undefined) return undefined;
  try {
    // Loaded only here: koffi's addon may not load.
    const { checkMarking, openMarkedSocket } = await import('../sys/marked-socket.ts');
    checkMarking(mark);
    return (address, protocol) => openMarkedSocket(address, protocol, mark);
  } catch (error) {
    log.warn(
      'Connections to endpoints cannot be marked, so endpoints whose packets our own rules would take are left out; ' +
        'give the proxy CAP_NET_ADMIN',
      { err: messageOf(error) },
    );
    return undefined;
  }
}
