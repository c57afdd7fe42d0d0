import type { Endpoint, NamedEndpoint } from '../../../model/endpoint.ts';
import type { ServicePortName } from '../../../model/service.ts';
import type { SessionAccount } from '../../core/session.ts';
import type { WaitRecord } from '../../core/waiting-room.ts';

/** Numbers a Service port; never used again. */
export type PortId = number;

/*
 * What a worker has open, described for another process that takes it over. Deadlines are left out: they begin anew.
 * Only the time for which a client may wait for an endpoint goes on.
 */

interface Account extends SessionAccount {
  /** Only of a Service port that is closed by now: nothing else knows it there. */
  readonly closedPort?: ServicePortName | undefined;
}

/** One side of an established connection. */
export interface SideRecord {
  readonly fd: number;
  /** Bytes that were read from it. */
  readonly total: number;
  /** Nothing more can be read from it. */
  readonly hasEnded: boolean;
  /** The stream that leads to it has been ended. */
  readonly isShut: boolean;
  /** Bytes read from it that the other side has not taken yet: in memory, or inside a pipe. */
  readonly rest?: Uint8Array | undefined;
  /** `pending`: how many bytes are inside. */
  readonly piped?: { readonly readEnd: number; readonly writeEnd: number; readonly pending: number } | undefined;
}

/** A connection whose endpoint has answered. */
export interface EstablishedRecord extends Account {
  readonly kind: 'established';
  readonly port: PortId;
  readonly client: Endpoint | undefined;
  /** Perhaps one that is no longer in the set. */
  readonly endpoint: NamedEndpoint;
  /** The client's and the endpoint's. */
  readonly sides: readonly [SideRecord, SideRecord];
  /** Which side broke, while the other still gets what came before. */
  readonly broken?: 'client' | 'backend' | undefined;
}

/** A client for which no endpoint has answered yet: it is dialled for again. */
export interface DiallingRecord extends Account {
  readonly kind: 'dialling';
  readonly port: PortId;
  readonly fd: number;
  readonly client: Endpoint;
  /** If it was in the waiting room. */
  readonly waiting?: WaitRecord;
}

export interface FlowRecord extends Account {
  readonly kind: 'flow';
  readonly port: PortId;
  readonly fd: number;
  readonly endpoint: NamedEndpoint;
  readonly hasReplied: boolean;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  /** The next datagram of the client begins another flow. */
  readonly hasRetired: boolean;
  /**
   * The endpoint sees the client's address until then, in milliseconds since 1970, if nothing moves. Missing: it does
   * not. Its entry in connection tracking does not begin anew.
   */
  readonly keptUntil?: number;
  /** What the client has sent, if no endpoint has answered and another one may be asked. Perhaps nothing yet. */
  readonly unanswered?: readonly Uint8Array[];
  /** Where its client's datagrams arrive. Missing: at the listener. */
  readonly ownFd?: number;
  /** The client's `struct sockaddr_in` or `sockaddr_in6`, and the control message that replies are sent with. */
  readonly name: Uint8Array;
  readonly control: Uint8Array;
}

/** Datagrams of a client without a flow, on their way to the home of the Service port, or in its waiting room. */
export interface WaitingRecord {
  readonly kind: 'waiting';
  readonly port: PortId;
  readonly closedPort?: ServicePortName | undefined;
  /** As of a flow. */
  readonly name: Uint8Array;
  readonly control: Uint8Array;
  readonly datagrams: readonly Uint8Array[];
  /** If they are in the waiting room, or come out of it. */
  readonly waiting?: WaitRecord;
}

export type SessionRecord = EstablishedRecord | DiallingRecord | FlowRecord;

/** `port`: the one that it belongs to, perhaps closed by now. */
export type LiveRecord = SessionRecord | WaitingRecord;
