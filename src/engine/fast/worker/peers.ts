import type { MessagePort } from 'node:worker_threads';
import type { EventLoop } from './event-loop.ts';
import { type Dial, Link, type Passed, RemoteHome, recordIn } from './link.ts';
import type { EstablishedRecord, FlowRecord, LiveRecord, WaitingRecord } from './records.ts';
import type { Spreading } from './spreading.ts';

/** What peers need of the worker. */
export interface Carrying {
  /** Dials for a client whose home is another worker. */
  carryClient(dial: Dial, home: RemoteHome): void;
  /** Goes on with a connection or flow whose home is another worker. */
  carry(record: EstablishedRecord | FlowRecord, home: RemoteHome): void;
  /** The home of some connections and flows has died. They go on. */
  stay(): void;
  /** Begins a client's next flow. */
  bring(record: WaitingRecord): void;
}

interface PeersSetup {
  readonly wakeFds: readonly number[];
  readonly loop: EventLoop;
  readonly spreading: Spreading;
  readonly carrying: Carrying;
}

/** The other workers: connections that they carry for this one, and that this one carries for them. */
export class Peers {
  readonly #setup: PeersSetup;
  readonly #links = new Map<number, Link>();
  #isHeld = false;
  /** Received, and not handled yet; in their order. */
  readonly #inbox = new Set<readonly [Link, Passed]>();

  constructor(setup: PeersSetup) {
    this.#setup = setup;
  }

  link(worker: number, channel: MessagePort): void {
    const { wakeFds, loop } = this.#setup;
    // Of a thread that has ended before.
    this.unlink(worker);
    const link = new Link({ worker, channel, loop, wakeFd: wakeFds[worker] as number });
    link.isHeld = this.#isHeld;
    this.#links.set(worker, link);
    // What was sent on it may have woken this worker before.
    this.#receive(link);
  }

  /** That worker's thread has ended, with all that it carried. */
  unlink(worker: number): void {
    const link = this.#links.get(worker);
    if (link === undefined) return;
    // It gets nothing more, whatever it has asked for.
    link.isClosed = true;
    this.#receive(link);
    this.handle();
    this.#links.delete(worker);
    link.close();
    this.#setup.carrying.stay();
  }

  to(worker: number | undefined): Link | undefined {
    return worker === undefined ? undefined : this.#links.get(worker);
  }

  /** Sends what waits. Nothing more is sent or taken before {@link resume}. */
  hold(): void {
    this.#isHeld = true;
    this.#setup.spreading.hold();
    for (const link of this.#links.values()) {
      link.run();
      link.isHeld = true;
    }
  }

  resume(): void {
    this.#isHeld = false;
    this.#setup.spreading.resume();
    for (const link of this.#links.values()) {
      link.isHeld = false;
      link.run();
    }
    this.handle();
  }

  /** Sends at once what waits for the end of the turn. */
  flush(): void {
    for (const link of this.#links.values()) link.run();
  }

  /** Takes in what other workers have sent. Next is {@link handle}. */
  receive(): void {
    for (const link of this.#links.values()) this.#receive(link);
  }

  /** Does what they ask for. A message may lead here again: what came later waits for it all the same. */
  handle(): void {
    for (const received of this.#inbox) {
      if (this.#isHeld) return;
      this.#inbox.delete(received);
      this.#take(...received);
    }
  }

  /** Connections on their way, for another process. Only while held. */
  underWay(): readonly LiveRecord[] {
    this.receive();
    const unsent = [...this.#links.values()].flatMap((link) => link.unsent);
    const received = Array.from(this.#inbox, ([, message]) => message);
    return [...received, ...unsent].flatMap((message) => recordIn(message) ?? []);
  }

  #receive(link: Link): void {
    for (const message of link.received()) this.#inbox.add([link, message]);
  }

  #take(link: Link, message: Passed): void {
    const { carrying } = this.#setup;
    switch (message.kind) {
      case 'dial':
        carrying.carryClient(message, new RemoteHome(link, message.id));
        break;
      case 'carry':
        carrying.carry(message.record, new RemoteHome(link, message.id));
        break;
      case 'answered':
        link.answered(message.id);
        break;
      case 'over':
        link.over(message);
        break;
      case 'datagrams':
        carrying.bring(message.record);
    }
  }
}
