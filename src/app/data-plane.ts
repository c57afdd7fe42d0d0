import type { Config } from '../config/config.ts';
import { createFastDataPlane, defaultWorkers } from '../engine/fast/create.ts';
import type { EndpointSocketOptions } from '../engine/node/endpoint-socket.ts';
import {
  createNodeDataPlane,
  loadKeeper,
  loadKernelSockets,
  type NodeDataPlaneSetup,
} from '../engine/node/node-data-plane.ts';
import { localPorts } from '../kernel/local-ports.ts';
import type { DataPlane, DataPlaneObserver } from '../model/data-plane.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';
import { congestionControlProblem } from './congestion-control.ts';

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
  const { congestionControl } = others;
  const problem = congestionControl && (await congestionControlProblem(congestionControl));
  // Who asks for it must not get another without noticing.
  if (problem !== undefined) {
    throw new Error(`--tcp-congestion-control ${congestionControl}: ${problem}; choose another, or remove it`);
  }
  const isMarking = connectionMark !== undefined && (await canMark(connectionMark, log));
  const { first, last } = localPorts().range;
  const options = {
    ...others,
    // Each has a local port: a tenant's share of more flows than there are ports would be all ports.
    udpMaxFlows: Math.min(others.udpMaxFlows, last - first + 1),
    ...(isMarking && connectionMark !== undefined && { connectionMark }),
  };
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
  const mark = isMarking ? connectionMark : undefined;
  const dataPlane = createNodeDataPlane({
    options,
    observer,
    clock,
    kernel,
    random: Math.random,
    keeper: mark === undefined ? undefined : await loadKeeper({ mark, congestionControl }),
    openSocket: (mark ?? congestionControl) ? await socketMaker({ mark, congestionControl }) : undefined,
  });
  return { engine: 'node', dataPlane, isMarking };
}

/** koffi's addon, which may not load here, is imported only where it is needed. */
async function canMark(mark: number, log: Log): Promise<boolean> {
  try {
    (await import('../engine/node/endpoint-socket.ts')).checkMarking(mark);
    return true;
  } catch (error) {
    log.warn(
      'Connections to endpoints cannot be marked, so endpoints whose packets our own rules would take are left out; ' +
        'give the proxy CAP_NET_ADMIN',
      { err: messageOf(error) },
    );
    return false;
  }
}

async function socketMaker(options: EndpointSocketOptions): Promise<NodeDataPlaneSetup['openSocket']> {
  const { openEndpointSocket } = await import('../engine/node/endpoint-socket.ts');
  return (address, protocol) => openEndpointSocket(address, protocol, options);
}
