import type { Address } from '../../../model/address.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { PortId } from './protocol.ts';

/*
 * What a worker says of all that it has, for another process to go on with. Descriptors are numbers of the process that
 * reads this. Deadlines are left out: they begin anew.
 */

/** One side of an established connection. */
export interface SideRecord {
  readonly fd: number;
  /** Nothing more can be read from it. */
  readonly hasEnded: boolean;
  /** The stream that leads to it has been ended. */
  readonly isShut: boolean;
  /** Bytes read from it that the other side has not taken yet: here, or inside a pipe. */
  readonly rest?: Uint8Array | undefined;
  readonly piped?: PipeRecord | undefined;
}

export interface PipeRecord {
  readonly readEnd: number;
  readonly writeEnd: number;
  /** How many bytes are inside. */
  readonly pending: number;
}

/** A connection whose endpoint has answered. */
export interface EstablishedRecord {
  readonly kind: 'established';
  readonly port: PortId;
  /** Perhaps one that is no longer in the set. */
  readonly endpoint: Endpoint;
  /** The client's and the endpoint's. */
  readonly sides: readonly [SideRecord, SideRecord];
  /** Which side broke, while the other is still to get what came before. */
  readonly broken?: 'client' | 'backend' | undefined;
}

/** A client for whom no endpoint has answered yet: dialling begins anew. */
export interface DiallingRecord {
  readonly kind: 'dialling';
  readonly port: PortId;
  readonly fd: number;
  readonly client: Address;
}

export interface FlowRecord {
  readonly kind: 'flow';
  readonly port: PortId;
  readonly fd: number;
  readonly endpoint: Endpoint;
  readonly hasReplied: boolean;
  /** What the client sends next begins another flow. */
  readonly hasRetired: boolean;
  /** The client's `struct sockaddr_in` or `sockaddr_in6`, and the control message that replies are sent with. */
  readonly name: Uint8Array;
  readonly control: Uint8Array;
}

/** `port`: which it belongs to, perhaps one that is not open any more. */
export type LiveRecord = EstablishedRecord | DiallingRecord | FlowRecord;
