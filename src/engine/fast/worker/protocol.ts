import type { MessagePort } from 'node:worker_threads';
import type { ClientFacts } from '../../../model/client-address.ts';
import type { ConnectionEntry } from '../../../model/connection-log.ts';
import { type Backends, COUNTERS, type DataPlaneOptions, type OpenConnection } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { ServicePortName } from '../../../model/service.ts';
import type { ProxiedProtocol } from '../../../model/service-port.ts';
import type { PickerRecord } from '../../../services/picker.ts';
import type { PortEvent } from '../../core/port.ts';
import type { LiveRecord, PortId } from './records.ts';

export type { PortId } from './records.ts';

/*
 * What crosses between the main thread and a worker: the worker's setup, messages both ways, and the layout of shared
 * memory. A message is a list of commands or of reports. After a message the main thread writes to the worker's
 * eventfd.
 */

export interface WorkerSetup {
  /** Counts from 0. */
  readonly index: number;
  /** By worker; readable when there is a command, or a message of another worker. */
  readonly wakeFds: readonly number[];
  /** Of the process. */
  readonly descriptorLimit: number;
  /** By all namespaces together: see `core/shares.ts`. The last row is the main thread's. */
  readonly taken: SharedArrayBuffer;
  readonly options: DataPlaneOptions;
  readonly spread: Spread;
  /** One byte per descriptor of the process: 0, or 1 + the index of the worker that owns it. */
  readonly owners: SharedArrayBuffer;
  /** {@link STATUS_WORDS} 32-bit words per worker. */
  readonly status: SharedArrayBuffer;
}

/**
 * Which connections other workers carry (docs/adr/0027): some of those of a busy worker. The other two are for tests:
 * every other new client, and with `always` open connections, too, whenever they have an event.
 */
export type Spread = 'when-busy' | 'clients' | 'always';

/** Words of one worker's status. */
export const STATUS = {
  /** Written by the worker: turns of its loop, at least one every {@link LONGEST_TURN_MS}, wrapping around. */
  turns: 0,
  /** Written by the main thread, after a message and before the eventfd: messages sent, wrapping around. */
  commands: 1,
  /** Written by the main thread: not 0 when somebody wants entries of the connection log. */
  entriesWanted: 2,
  /** Written by the main thread: entries that it has taken, wrapping around. */
  entriesTaken: 3,
  /** Written by the worker: 1 while it waits for events. */
  isWaiting: 4,
  /** Written by the worker: connections that had events in its last window (`spreading.ts`). */
  activeConnections: 5,
  /** Written by the main thread when the worker asks: idle cores of the machine (`told-idle-cores.ts`). */
  idleCores: 6,
} as const;

/** How long a worker waits when nothing happens. */
export const LONGEST_TURN_MS = 1000;

/** A cache line, so that workers do not slow each other down. */
export const STATUS_WORDS = 16;

export const COUNTERS_BYTES = COUNTERS.length * Float64Array.BYTES_PER_ELEMENT;

/** {@link COUNTERS_BYTES} within memory that others use too. */
export interface CounterBlock {
  readonly memory: SharedArrayBuffer;
  /** In bytes. */
  readonly offset: number;
}

/** A number is never torn: both kinds of machine write 64 aligned bits at once. */
export function countersIn({ memory, offset }: CounterBlock): Float64Array {
  return new Float64Array(memory, offset, COUNTERS.length);
}

export interface CountedBackends extends Backends {
  /** Of the endpoints that are new to the Service port, in the set or draining, by name. */
  readonly counters: ReadonlyMap<string, CounterBlock>;
}

/** No Service port has this number. */
export const NO_PORT: PortId = 0;

/** Numbers a question; never used again for the same worker. */
export type QuestionId = number;

export interface Outcome {
  /** Why it failed; missing when it did not. */
  readonly err?: string;
}

/** Numbers a list of open connections; never used again for the same worker. */
export type ListId = number;

export interface ListedPage {
  readonly connections: readonly OpenConnection[];
  /** Ask again. */
  readonly hasMore: boolean;
}

export interface FrozenWorker {
  /** Of the ports that have picked for a client or had an update. */
  readonly pickers: readonly (readonly [PortId, PickerRecord])[];
  /** What is on its way between workers. The rest is asked for by `give`. */
  readonly records: readonly LiveRecord[];
}

/** What a worker that has a part of a Service port must know of it. */
interface PortRequest {
  readonly port: PortId;
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  /** Bound, and listening if it is TCP. The main thread lends it until `close`, or `uncarry`, is answered. */
  readonly fd: number;
  readonly backends: CountedBackends;
  readonly counters: CounterBlock;
  /** By its namespace: see `core/shares.ts`. */
  readonly taken: SharedArrayBuffer;
}

/** For the home. */
interface OpenRequest extends PortRequest {
  /** The picker's state in another process. */
  readonly picker?: PickerRecord | undefined;
}

/** For a worker that carries connections. By `fd` replies to datagrams leave. */
interface CarryRequest extends PortRequest {
  readonly home: number;
}

/** What the main thread asks a worker, and what the worker answers. */
export interface Questions {
  /** Answered when the worker watches the port. */
  open: { readonly asks: OpenRequest; readonly gets: Outcome };
  /** Answered when the worker has given the descriptor back. */
  close: { readonly asks: { readonly port: PortId }; readonly gets: Outcome };
  /** Answered when the worker can carry connections of the port. */
  carry: { readonly asks: CarryRequest; readonly gets: Outcome };
  /** The port closes. Its connections stay, its flows end. After the home has answered `close`. */
  uncarry: { readonly asks: { readonly port: PortId }; readonly gets: Outcome };
  /** Answered when the worker passes nothing on to that worker any more, whose thread has ended. */
  unlink: { readonly asks: { readonly worker: number }; readonly gets: object };
  /** Answered when the worker passes nothing on to others until `thaw`, and all that it has passed on is sent. */
  hold: { readonly asks: object; readonly gets: object };
  /** Continue what another process had. Only while frozen. */
  adopt: { readonly asks: { readonly records: readonly LiveRecord[] }; readonly gets: Outcome };
  /** Which endpoint would a client get? */
  peek: {
    readonly asks: { readonly port: PortId; readonly client: string };
    readonly gets: { readonly endpoint: Endpoint | undefined };
  };
  /** The next page of a list of the open connections, the first with a new number. Not answered while frozen. */
  list: { readonly asks: { readonly port: PortId; readonly list: ListId }; readonly gets: ListedPage };
  /** Answered at the end of a whole turn that began after it. Not answered while frozen. */
  turn: { readonly asks: object; readonly gets: object };
  /** From the end of this turn the worker touches no descriptor, until `thaw` or `release`. */
  freeze: { readonly asks: object; readonly gets: FrozenWorker };
  /** Some of the connections and flows of a frozen worker; none: that was all. Each is given once. */
  give: { readonly asks: object; readonly gets: { readonly records: readonly LiveRecord[] } };
}

export type Question<Kind extends keyof Questions = keyof Questions> = {
  readonly [Each in Kind]: { readonly kind: Each; readonly question: QuestionId } & Questions[Each]['asks'];
}[Kind];

export type Command =
  | Question
  | { readonly kind: 'update'; readonly port: PortId; readonly backends: CountedBackends }
  | { readonly kind: 'know-clients'; readonly facts: ClientFacts }
  /** The way to another worker. */
  | { readonly kind: 'link'; readonly worker: number; readonly channel: MessagePort }
  /** For the home: which workers may carry connections of the port. */
  | { readonly kind: 'carriers'; readonly port: PortId; readonly workers: readonly number[] }
  /** A list is given up before its last page. */
  | { readonly kind: 'unlist'; readonly list: ListId }
  | { readonly kind: 'thaw' }
  /** Another process has everything now: the thread ends, and closes nothing. */
  | { readonly kind: 'release' }
  /** The thread resets all its connections and ends. */
  | { readonly kind: 'shutdown' };

export type Answer = Questions[keyof Questions]['gets'];

export type Report =
  | { readonly kind: 'ready' }
  | { readonly kind: 'answer'; readonly question: QuestionId; readonly answer: Answer }
  /** `lost`: so many more have been dropped since the last one. */
  | { readonly kind: 'entries'; readonly entries: readonly ConnectionEntry[]; readonly lost: number }
  /** One connection or flow has ended by an exception, with this stack. */
  | { readonly kind: 'fault'; readonly err: string }
  /** Another worker could carry some connections of this port. */
  | { readonly kind: 'busy'; readonly port: PortId }
  /** The answer is a word of its status. */
  | { readonly kind: 'ask-idle-cores' }
  | NumberedEvent;

/** For the observer, which knows the port by its name. */
export type NumberedEvent = PortEvent & { readonly port: PortId };
