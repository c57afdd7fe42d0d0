import {
  type AttemptTerms,
  type Dialler as CoreDialler,
  TcpDial as CoreTcpDial,
  type TcpDialSetup,
} from '../../core/tcp-dial.ts';
import type { KeptClient } from '../../kept-dials.ts';
import type { Handler } from './event-loop.ts';
import type { SocketKind } from './parked-sockets.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';
import { TcpAttempt } from './tcp-attempt.ts';

/** `fd` is connected, watched for `SIDE_EVENTS`, and the dialler's from now on. */
export interface DialResult {
  readonly fd: number;
  /** What it has had. */
  readonly events: number;
  /** It was connected and has been reset already. No event will report that again. */
  readonly isBroken: boolean;
  /** See {@link TcpAttempt.kind}. */
  readonly kind: SocketKind | undefined;
}

/** Handles the events of the descriptors. */
export interface Dialler extends CoreDialler<Target, DialResult>, Handler {}

/** A dial of one worker. */
export class TcpDial extends CoreTcpDial<Target, DialResult, Dialler, TcpAttempt> {
  readonly port: Port;
  readonly client: KeptClient | undefined;

  /** `client`: if endpoints see its address. */
  constructor(port: Port, client: KeptClient | undefined, setup: TcpDialSetup<Target, Dialler>) {
    super(port.worker.nowMs, setup);
    this.port = port;
    this.client = client;
  }

  /** `fd`: of an attempt. */
  onEvents(events: number, fd: number): void {
    (fd === this.attempt?.fd ? this.attempt : this.hedge)?.onEvents(events);
  }

  protected newAttempt(target: Target, terms: AttemptTerms): TcpAttempt {
    return new TcpAttempt(this, target, terms);
  }
}
