import {
  type Backends,
  COUNTERS,
  type Counter,
  type DataPlaneOptions,
  type DialFailure,
  type OpenConnection,
} from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { ProxiedProtocol } from '../../../model/service-port.ts';
import type { PickerRecord } from '../../../services/picker.ts';
import type { LiveRecord } from './records.ts';

/*
 * All that crosses between the main thread and a worker: what a worker is started with, messages both ways, and the
 * layout of the memory that they share. A message is a list: of commands, or of reports. The main thread writes to the
 * worker's eventfd after it has sent some.
 */

export interface WorkerSetup {
  /** Counts from 0. */
  readonly index: number;
  /** The main thread's; readable when there is a command. */
  readonly wakeFd: number;
  /** Descriptors from this number on are kept for the rest of the program: logs, the API server, iptables. */
  readonly descriptorCeiling: number;
  readonly options: DataPlaneOptions;
  /** One byte per descriptor of the process: 0, or 1 + the index of the worker that owns it. */
  readonly owners: SharedArrayBuffer;
  /** {@link STATUS_WORDS} 32-bit words per worker. */
  readonly status: SharedArrayBuffer;
}

/** Words of one worker's status. */
export const STATUS = {
  /** Written by the worker: turns of its loop, at least one every {@link LONGEST_TURN_MS}, wrapping around. */
  turns: 0,
  /** Written by the worker: its UDP flows. */
  flows: 1,
  /** Written by the main thread, after a message and before the eventfd: messages sent, wrapping around. */
  commands: 2,
} as const;

/** How long a worker waits when nothing happens. */
export const LONGEST_TURN_MS = 1000;

/** A cache line, so that workers do not slow each other down. */
export const STATUS_WORDS = 16;

/** Where each counter lies among those of one Service port or endpoint, in 64-bit floats. */
export const COUNTER = Object.fromEntries(COUNTERS.map((name, index) => [name, index])) as Readonly<
  Record<Counter, number>
>;

export const COUNTERS_BYTES = COUNTERS.length * Float64Array.BYTES_PER_ELEMENT;

/** One or several blocks of {@link COUNTERS_BYTES}, one after the other, within memory that others use too. */
export interface CounterBlocks {
  readonly memory: SharedArrayBuffer;
  /** In bytes. */
  readonly offset: number;
}

/** `counters` holds those of the endpoints that are new to the Service port, in the order of `fresh`. */
export interface CountedBackends extends Backends {
  /** Indices into {@link countedEndpoints}. */
  readonly fresh: readonly number[];
  readonly counters: CounterBlocks;
}

/** Those that have counters: new connections count for the first, and the end of old ones for the draining, too. */
export function countedEndpoints({ endpoints, draining }: Backends): readonly Endpoint[] {
  return draining === undefined ? endpoints : [...endpoints, ...draining];
}

/** Numbers a question; never used again for the same worker. */
export type QuestionId = number;

/** Numbers a Service port; never used again. */
export type PortId = number;

/** None has this number. */
export const NO_PORT: PortId = 0;

export type Command =
  | {
      readonly kind: 'open';
      readonly port: PortId;
      readonly protocol: ProxiedProtocol;
      /** Bound, listening where that applies, and the main thread's: lent until `closed` answers a `close`. */
      readonly fd: number;
      readonly backends: CountedBackends;
      readonly counters: CounterBlocks;
      /** Of another process. */
      readonly picker?: PickerRecord | undefined;
    }
  /** What another process had. Only while frozen; answered by `adopted`. */
  | { readonly kind: 'adopt'; readonly question: QuestionId; readonly records: readonly LiveRecord[] }
  | { readonly kind: 'update'; readonly port: PortId; readonly backends: CountedBackends }
  | { readonly kind: 'close'; readonly port: PortId }
  /** Whom a client would get. Answered by `peeked`. */
  | { readonly kind: 'peek'; readonly question: QuestionId; readonly port: PortId; readonly client: string }
  /** A piece of the list of what is open. `from`: 0, or the `next` of the piece before. Answered by `listed`, unless frozen. */
  | { readonly kind: 'list'; readonly question: QuestionId; readonly port: PortId; readonly from: number }
  /** Answered by `turned` at the end of a whole turn that begins after it; not while frozen. */
  | { readonly kind: 'turn'; readonly question: QuestionId }
  /** From the end of the turn on no descriptor is touched, until `thaw` or `release`. Answered by `frozen`. */
  | { readonly kind: 'freeze'; readonly question: QuestionId }
  | { readonly kind: 'thaw' }
  /** Another process has all of it: the thread ends, and closes nothing. */
  | { readonly kind: 'release' }
  /** The thread resets all that it has and ends. */
  | { readonly kind: 'shutdown' };

export interface FrozenReport {
  readonly kind: 'frozen';
  readonly question: QuestionId;
  /** Of those ports that have had anybody to pick for. */
  readonly pickers: readonly (readonly [PortId, PickerRecord])[];
  readonly records: readonly LiveRecord[];
}

export interface AdoptedReport {
  readonly kind: 'adopted';
  readonly question: QuestionId;
  readonly err?: string;
}

export type Report =
  | { readonly kind: 'ready' }
  /** The worker watches the port from now on; or, with `err`, it cannot. */
  | { readonly kind: 'opened'; readonly port: PortId; readonly err?: string }
  | { readonly kind: 'closed'; readonly port: PortId }
  | Answer
  | PortEvent;

/** To a question. */
export type Answer = PeekedReport | ListedReport | TurnedReport | FrozenReport | AdoptedReport;

export interface PeekedReport {
  readonly kind: 'peeked';
  readonly question: QuestionId;
  readonly endpoint: Endpoint | undefined;
}

export interface ListedReport {
  readonly kind: 'listed';
  readonly question: QuestionId;
  readonly connections: readonly OpenConnection[];
  /** Missing at the end. */
  readonly next?: number;
}

export interface TurnedReport {
  readonly kind: 'turned';
  readonly question: QuestionId;
}

/** For the observer. Rate-limited per Service port. */
export type PortEvent =
  | {
      readonly kind: 'turnedAway';
      readonly port: PortId;
      readonly client: string;
      readonly reason: 'no-endpoints' | 'exhausted';
    }
  | {
      readonly kind: 'dialFailed';
      readonly port: PortId;
      readonly backend: string;
      readonly reason: DialFailure;
      readonly err: string;
    }
  | {
      readonly kind: 'limited';
      readonly port: PortId;
      readonly client: string;
      readonly limit: 'flows-per-service' | 'flows-total';
    }
  | { readonly kind: 'listenerFailed'; readonly port: PortId; readonly err: string };
