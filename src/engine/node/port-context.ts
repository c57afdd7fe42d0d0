import type { Socket } from 'node:net';
import type { Counters, DataPlaneObserver, DataPlaneOptions } from '../../model/data-plane.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { Picker } from '../../services/picker.ts';
import type { PeerState } from '../../sys/socket.ts';
import type { Clock } from '../../util/clock.ts';
import type { EndpointCounters } from './endpoint-counters.ts';
import type { TcpDrain } from './tcp-drain.ts';

/** What the kernel knows of a socket and Node does not tell. */
export interface KernelSockets {
  peerState(socket: Socket): PeerState | undefined;
  unacknowledgedBytes(socket: Socket): number;
  /** What has been received and not read; there may be some after the connection has broken, too. */
  readRest(socket: Socket): readonly Buffer[];
}

/** What everything that works for one Service port shares. */
export interface PortContext {
  readonly name: ServicePortName;
  readonly picker: Picker;
  readonly counters: Counters;
  readonly endpoints: EndpointCounters;
  readonly options: DataPlaneOptions;
  readonly observer: DataPlaneObserver;
  readonly clock: Clock;
  /** Missing where libc cannot be called. */
  readonly kernel?: KernelSockets | undefined;
  /** Where connections are ended some time after their endpoint has gone. */
  readonly drain?: TcpDrain | undefined;
  readonly openSocket?: OpenSocket | undefined;
}

/** Makes the descriptor of a socket for a connection to this address. May throw. */
export type OpenSocket = (address: string, protocol: 'TCP' | 'UDP') => number;

/** One open Service port, as the registry sees it. */
export interface PortListener {
  readonly localPort: number;
  /** The picker and `endpoints` know of others. */
  endpointsChanged(): void;
  /** Resolves when the local port is free. */
  close(): Promise<void>;
}
