import type { MessagePort } from 'node:worker_threads';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { Candidates } from '../../../services/picker.ts';
import type { EventLoop } from './event-loop.ts';
import {
  type DialTerms,
  Errand,
  type FlowSharer,
  Link,
  type Passed,
  type PassedOn,
  type PassId,
  recordIn,
} from './link.ts';
import type { Port } from './port.ts';
import type { DiallingRecord, EstablishedRecord, FlowRecord, LiveRecord, PortId } from './records.ts';
import type { Spreading } from './spreading.ts';
import type { Target } from './target.ts';

/** What peers need of the worker. */
export interface Carrying {
  /** Dials for a client whose home is another worker. */
  carryClient(record: DiallingRecord, endpoint: Endpoint, errand: Errand, terms: DialTerms): void;
  /** Goes on with a connection or flow whose home is another worker. */
  carry(record: EstablishedRecord | FlowRecord, endpoint: Endpoint, errand: Errand): void;
  /** Goes on with a client of this home, whose first endpoint has failed. */
  takeBack(record: DiallingRecord, passed: PassedOn & { candidates: Candidates<Target> }, needsNewPort: boolean): void;
  /** `undefined` when the port is not open. */
  sharer(port: PortId): FlowSharer | undefined;
  sharers(): Iterable<FlowSharer>;
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
    for (const sharer of this.#setup.carrying.sharers()) sharer.onLinked(link);
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
    const lost = [...link.passedOn.values()];
    link.passedOn.clear();
    for (const passed of lost) {
      end(passed);
      passed.away?.onEnded();
    }
    for (const sharer of this.#setup.carrying.sharers()) sharer.onUnlinked(link);
  }

  to(worker: number): Link | undefined {
    return this.#links.get(worker);
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

  /** Whether a connection of this port may go to another worker. Asks for carriers if it has none yet. */
  canSpread(port: Port): boolean {
    if (!this.#setup.spreading.wants || !port.isHome) return false;
    if (port.carriers.length === 0) port.askForCarriers();
    return port.carriers.length > 0;
  }

  /** Who is to dial for a new client; `undefined`: this worker. */
  forClient(port: Port): Link | undefined {
    // Only the home may dial a second endpoint beside the first.
    if (port.worker.options.dialHedgeMs > 0) return undefined;
    return this.canSpread(port) ? this.#linked(this.#setup.spreading.forClient(port.carriers)) : undefined;
  }

  /** Who is to carry an open connection; `undefined`: this worker. */
  forConnection(port: Port): Link | undefined {
    return this.canSpread(port) ? this.#linked(this.#setup.spreading.forConnection(port.carriers)) : undefined;
  }

  passClient(link: Link, passed: PassedOn, record: DiallingRecord, terms: DialTerms): void {
    const id = link.pass(passed);
    link.send({ kind: 'dial', id, record, endpoint: passed.target.endpoint, terms });
  }

  passConnection(link: Link, passed: PassedOn, record: EstablishedRecord): void {
    const id = link.pass(passed);
    const { loop } = this.#setup;
    for (const { fd } of record.sides) loop.unwatch(fd);
    link.send({ kind: 'carry', id, record });
  }

  passFlow(link: Link, passed: PassedOn, record: FlowRecord): PassId {
    const id = link.pass(passed);
    this.#setup.loop.unwatch(record.fd);
    link.send({ kind: 'carry', id, record });
    return id;
  }

  returnFlow(errand: Errand, record: FlowRecord, isSilent: boolean): void {
    this.#setup.loop.unwatch(record.fd);
    errand.flowBack(record, isSilent);
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
        carrying.carryClient(message.record, message.endpoint, new Errand(link, message.id), message.terms);
        break;
      case 'carry':
        carrying.carry(message.record, message.record.endpoint, new Errand(link, message.id));
        break;
      case 'joined':
        this.#joined(link, message.id);
        break;
      case 'answered': {
        const passed = link.passedOn.get(message.id);
        passed?.port.answered(passed.target);
        break;
      }
      case 'ended':
        ended(link, message.id)?.away?.onEnded();
        break;
      case 'failed':
        this.#failed(link, message);
        break;
      case 'flow-failed':
        ended(link, message.id)?.away?.onFailed(message);
        break;
      case 'flow-back': {
        const away = ended(link, message.id)?.away;
        if (away === undefined) this.#setup.loop.close(message.record.fd);
        else away.onBack(message.record, message.isSilent);
        break;
      }
      case 'want': {
        const sharer = carrying.sharer(message.client.port);
        if (sharer === undefined) link.send({ kind: 'refused', client: message.client });
        else sharer.onWanted(link, message.client);
        break;
      }
      case 'refused':
        carrying.sharer(message.client.port)?.onRefused(message.client);
        break;
      case 'recall':
        carrying.sharer(message.client.port)?.onRecalled(link, message.id, message.client);
    }
  }

  #joined(link: Link, id: PassId): void {
    const passed = link.passedOn.get(id);
    if (passed === undefined) return;
    uncount(passed);
    const { candidates, ...rest } = passed;
    link.passedOn.set(id, { ...rest, counts: 'nowhere' });
    if (candidates !== undefined) passed.port.answered(passed.target);
  }

  #failed(link: Link, { id, record, reason, needsNewPort }: Extract<Passed, { readonly kind: 'failed' }>): void {
    const passed = link.take(id);
    const candidates = passed?.candidates;
    if (passed === undefined || candidates === undefined) {
      // Its way has been cut, and with it what was known of it.
      this.#setup.loop.reset(record.fd);
      return;
    }
    end(passed);
    passed.port.failedElsewhere(passed.target, reason);
    this.#setup.carrying.takeBack(record, { ...passed, candidates }, needsNewPort);
  }

  #linked(worker: number | undefined): Link | undefined {
    return worker === undefined ? undefined : this.#links.get(worker);
  }
}

/** What was passed on under this number has ended there. */
function ended(link: Link, id: PassId): PassedOn | undefined {
  const passed = link.take(id);
  if (passed !== undefined) end(passed);
  return passed;
}

/** The endpoint is free of a connection that was passed on. */
function end(passed: PassedOn): void {
  uncount(passed);
  passed.target.released();
}

function uncount({ port, target, counts }: PassedOn): void {
  if (counts !== 'nowhere') port.countActive(-1, counts === 'both' ? target : undefined);
}

/** A target that is dialled once. */
export function onlyOne(target: Target): Candidates<Target> {
  let isGiven = false;
  return {
    next: () => {
      if (isGiven) return undefined;
      isGiven = true;
      return target;
    },
  };
}
