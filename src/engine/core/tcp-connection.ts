import type { Address } from '../../model/address.ts';
import type { Ending } from '../../model/connection-log.ts';
import type { DialFailure, OpenConnection, Refusal } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { ProxyProtocol } from '../../model/service.ts';
import type { Candidates } from '../../services/picker.ts';
import { wholeMsLeft } from '../../util/clock.ts';
import type { KeptClient } from '../kept-dials.ts';
import { proxyHeader } from '../proxy-header.ts';
import { Alarm, Deadline } from './deadlines.ts';
import type { Port } from './port.ts';
import { type Home, Session } from './session.ts';
import type { Target } from './target.ts';
import { type Dialler, type TcpAttempt, TcpDial } from './tcp-dial.ts';
import type { SideOwner, TcpSide } from './tcp-side.ts';
import { type Cause, type Guest, Waiter, type WaitRecord } from './waiting-room.ts';

/** How long bytes that were sent before a reset may take to arrive, and how often to check. */
const RESET_PATIENCE_MS = 1000;
const RESET_POLL_MS = 10;

/** Connections of one age do not all end at once: each ends up to so much earlier or later. */
const AGE_SPREAD = 0.1;

/** How a client gets its endpoint. */
export interface DialPlan<Each extends Target> {
  readonly candidates: Candidates<Each>;
  /** Endpoints that were tried before. */
  readonly tries?: number;
  /** An answer to an earlier dial may come late. */
  readonly needsNewPort?: boolean;
  /** The client was accepted just now: another thread may dial for it. */
  readonly isNew?: boolean;
}

/**
 * One client, from accept to the end of both sides: it dials ({@link TcpDial}), then a {@link TcpSide} moves the bytes
 * of each direction.
 *
 * A reset or failure of one side becomes a reset of the other, never a clean end: a peer must not take half a stream
 * for the whole. Bytes that were sent before the reset arrive first, as without a proxy. The same holds when this
 * program ends a connection, or a client gets no endpoint: a clean end would look like an empty answer.
 */
export abstract class TcpConnection<Each extends Target, Place extends Port<Each>, Side extends TcpSide>
  extends Session<Place>
  implements SideOwner, Dialler<Each>, Guest
{
  target: Each | undefined;
  /** Kept, because it is forgotten when a client resets the connection. `undefined`: it had gone before. */
  protected readonly clientName: Endpoint | undefined;
  protected abstract readonly clientSide: Side;
  protected endpointSide: Side | undefined;
  /** While dialling. */
  protected dialling: TcpDial<Each> | undefined;
  /** One side has ended its direction: something must move. */
  protected isHalfOpen = false;
  /** The side that broke, while the other still gets what was sent before. */
  protected broken: Side | undefined;
  #giveUpMs = 0;
  /** Which end was passed on first, or which side broke. */
  #ending: Ending = 'client-end';
  /** Of a half-open connection, or of a broken one. */
  readonly #timer = new Deadline(this);
  /** If it has been in the waiting room, until an endpoint has answered. Its client is watched then. */
  #waiter: Waiter | undefined;
  /** Only where connections may not become older than some age. */
  #age: Alarm | undefined;

  constructor(port: Place, client: Endpoint | undefined, home?: Home) {
    super(port, home);
    this.clientName = client;
  }

  abstract newAttempt(dial: TcpDial<Each>, target: Each, timeoutMs: number, quietMs: number): TcpAttempt<Each>;
  /** The endpoint's side of an answered dial. */
  protected abstract newSide(attempt: TcpAttempt<Each>): Side;
  /** See `keptTcpClient`. */
  protected abstract keptClient(client: Endpoint): KeptClient | 'unknown' | undefined;
  /** Where the client has connected to, before NAT. */
  protected abstract askedFor(client: Endpoint): Endpoint | undefined;

  /** Its client was accepted just now. May be over before this returns. */
  begin(): void {
    const { port, clientName } = this;
    this.begun();
    if (clientName === undefined) {
      this.#end('client-reset');
      return;
    }
    const { address } = clientName;
    const cause = port.causeBehind(address);
    if (cause === undefined) this.dial({ candidates: port.picker.pick(address, port.thread.nowMs), isNew: true });
    else if (this.#await(cause)) this.#watch();
  }

  /** Finds an endpoint for its client. May be over before this returns. */
  dial({ candidates, tries = 0, needsNewPort = false, isNew = false }: DialPlan<Each>): void {
    const kept = this.keptClient(this.clientName as Endpoint);
    if (kept === 'unknown') {
      this.cut('client-reset');
      return;
    }
    if (isNew && this.isPassedOn(candidates, kept)) return;
    if (this.#waiter === undefined && !this.#watch()) return;
    if (kept !== undefined && needsNewPort) kept.needsNewPort = true;
    const dial = new TcpDial<Each>(this, candidates, kept, tries);
    this.dialling = dial;
    dial.start();
  }

  get address(): Address {
    return (this.clientName as Endpoint).address;
  }

  serve(): void {
    const { port, address } = this;
    // An answer to an earlier dial may come late.
    const needsNewPort = this.#waiter?.isTried ?? false;
    this.dial({ candidates: port.picker.pick(address, port.thread.nowMs), needsNewPort });
  }

  refuse(why: Refusal): void {
    this.port.clientRefused(this.address, why);
    this.cut(`refused-${why}`);
  }

  describe(): OpenConnection | undefined {
    const client = this.clientName;
    if (client === undefined) return undefined;
    if (this.target === undefined) {
      const endpoint = this.dialling?.endpoint;
      if (this.#waiter?.line === undefined) return { client, endpoint, state: 'dialling' };
      return {
        client,
        endpoint,
        state: 'waiting',
        expiresMs: wholeMsLeft(this.#waiter.leftMs(this.port.thread.nowMs)),
      };
    }
    const { endpoint } = this.target;
    if (this.broken === undefined && !this.isHalfOpen) return { client, endpoint, state: 'established' };
    const endMs = this.broken === undefined ? this.#timer.dueMs : this.#giveUpMs;
    return { client, endpoint, state: 'half-closed', expiresMs: wholeMsLeft(endMs - this.port.thread.nowMs) };
  }

  onConnected(attempt: TcpAttempt<Each>): void {
    this.home?.answered();
    const side = this.newSide(attempt);
    this.dialling = undefined;
    this.#leaveRoom();
    this.join(attempt.target, side);
    this.answeredBy(attempt.target);
    this.#startAge();
    if (attempt.isBroken) {
      this.breakOff(side);
      return;
    }
    const version = this.proxyProtocol;
    if (version !== undefined && !this.#introduce(version)) return;
    this.beginStreams();
    if (!this.isOver) this.onSide(side, false, false);
  }

  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void {
    this.dialling = undefined;
    this.#await(this.port.causeOf(reason));
  }

  onFailed({ name }: Target, reason: DialFailure): void {
    this.tries.fail(name, reason);
  }

  onRetry(): void {
    this.tries.retries++;
  }

  /** The side has noted what happened to it. `hasRoom`: it takes bytes again. `isBroken`: by an error. */
  onSide(side: Side, hasRoom: boolean, isBroken: boolean): void {
    if (this.endpointSide === undefined) {
      // One that has only ended its direction still wants an answer.
      if (isBroken) this.#end('client-reset');
      return;
    }
    if (this.broken !== undefined) {
      this.#settle();
      return;
    }
    if (side.isReadable) this.#pump(side);
    const { peer } = side;
    if (hasRoom && peer !== undefined && peer.pending > 0 && this.isOpen) this.#pump(peer);
    // The pump did not read the error: the stream had ended before, or waits for the other side.
    if (isBroken && this.isOpen) this.breakOff(side);
  }

  /** The side's stream may go on: it has another portion of a turn, or the peer has taken all. */
  onPortion(side: Side): void {
    if (this.isOver) return;
    if (this.broken === undefined) this.#pump(side);
    else this.#settle();
  }

  onDead(side: Side): void {
    if (this.isOpen) this.breakOff(side, 'proxy-dead');
  }

  moved(): void {
    if (this.isHalfOpen) this.#wait(this.port.thread.options.tcpHalfOpenTimeoutMs);
  }

  onDue(): void {
    if (this.broken !== undefined) this.#settle();
    else this.#endHalfOpen();
  }

  cut(ending: Ending): void {
    if (!this.#over(ending)) return;
    this.clientSide.reset();
    this.endpointSide?.reset();
  }

  protected client(): Endpoint | undefined {
    return this.clientName;
  }

  protected bytes() {
    return { receivedBytes: this.clientSide.total, sentBytes: this.endpointSide?.total ?? 0 };
  }

  protected get proxyProtocol(): ProxyProtocol | undefined {
    return this.port.proxyProtocol;
  }

  protected get isOpen(): boolean {
    return !this.isOver && this.broken === undefined;
  }

  protected override detach(): void {
    super.detach();
    this.#timer.cancel();
    this.#age?.cancel();
    this.#leaveRoom();
  }

  /** It has waited in another process. */
  protected awaitAgain(record: WaitRecord): void {
    this.#waiter = Waiter.again(this, record, this.port.thread);
    if (this.#await(this.port.causeOf('no-endpoints'))) this.#watch();
  }

  protected get waitRecord(): WaitRecord | undefined {
    return this.#waiter?.record(this.port.thread);
  }

  protected join(target: Each, side: Side): void {
    this.target = target;
    this.endpointSide = side;
    side.peer = this.clientSide;
    this.clientSide.peer = side;
  }

  /** False when the client cannot be watched. */
  protected watchClient(): boolean {
    return true;
  }

  /** Another thread dials, and goes on with it. */
  protected isPassedOn(_candidates: Candidates<Each>, _kept: KeptClient | undefined): boolean {
    return false;
  }

  /** The first bytes of the client, if it has sent some. */
  protected beginStreams(): void {
    this.#pump(this.clientSide);
  }

  /** Both sides go on where another process or thread was. */
  protected goOn(broken: Side | undefined): void {
    const [client, endpoint] = [this.clientSide, this.endpointSide as Side];
    this.#startAge();
    if (broken !== undefined) {
      this.broken = broken;
      this.#ending = this.#resetBy(broken);
      this.#giveUpMs = this.port.thread.nowMs + RESET_PATIENCE_MS;
      this.#wait(RESET_POLL_MS);
    } else if (client.isShut || endpoint.isShut) {
      this.#ending = endpoint.isShut ? 'client-end' : 'backend-end';
      this.#beginHalfOpen();
    }
  }

  protected breakOff(side: Side, ending: Ending = this.#resetBy(side)): void {
    this.#ending = ending;
    if (side === this.endpointSide && !this.#isAged) this.port.count('resets', this.target);
    this.broken = side;
    // The kernel reports the error before it gives out the last bytes.
    side.isReadable = !side.hasEnded;
    this.isHalfOpen = false;
    side.peer?.release();
    this.#giveUpMs = this.port.thread.nowMs + RESET_PATIENCE_MS;
    this.#settle();
  }

  /** False when it cannot be, and the connection is over. */
  #watch(): boolean {
    if (this.watchClient()) return true;
    this.cut('proxy-error');
    return false;
  }

  /** False when it may not wait for an endpoint, and is refused. */
  #await(cause: Cause): boolean {
    this.#waiter ??= new Waiter(this);
    const refusal = this.port.wait(this.#waiter, cause);
    if (refusal !== undefined) this.refuse(refusal);
    return refusal === undefined;
  }

  get #isAged(): boolean {
    return this.#ending === 'proxy-age';
  }

  #leaveRoom(): void {
    const waiter = this.#waiter;
    if (waiter === undefined) return;
    this.#waiter = undefined;
    if (waiter.isInside) this.waitedMs = this.port.left(waiter);
  }

  #startAge(): void {
    const { maxConnectionAgeMs, thread } = this.port;
    if (maxConnectionAgeMs === undefined) return;
    const spread = 1 + AGE_SPREAD * (2 * thread.random() - 1);
    this.#age = new Alarm(thread.loop, { onDue: () => this.#endAged() });
    // Without the time for which it has waited for its endpoint.
    this.#age.start(Math.max(0, maxConnectionAgeMs * spread - (this.ageMs - this.waitedMs)));
  }

  /**
   * Both streams end behind what has been read. Whoever sends more gets a reset, and so does whoever has not ended its
   * own stream within the time of a half-open connection.
   */
  #endAged(): void {
    if (!this.isOpen) return;
    this.#ending = 'proxy-age';
    this.#beginHalfOpen();
    this.#pump(this.clientSide);
    if (this.isOpen) this.#pump(this.endpointSide as Side);
  }

  /**
   * Puts the PROXY protocol's header before all that the endpoint gets. False when the connection is over, because the
   * client has gone. Without a header, a client could pass off its own bytes as one.
   */
  #introduce(version: ProxyProtocol): boolean {
    const client = this.clientName;
    const destination = client && this.askedFor(client);
    if (client === undefined || destination === undefined) {
      this.#end('client-reset');
      return false;
    }
    this.clientSide.beginWith(proxyHeader(version, client, destination));
    return true;
  }

  #pump(side: Side): void {
    const broken = side.pump() as Side | undefined;
    if (broken !== undefined) {
      this.breakOff(broken);
      return;
    }
    const peer = side.peer as Side;
    if (side.pending > 0 || !(side.hasEnded || this.#isAged)) {
      // Its end waits behind bytes that the peer does not take.
      if (side.endIsNear && !this.isHalfOpen) this.#beginHalfOpen();
      return;
    }
    const haveBothEnded = side.hasEnded && peer.hasEnded && peer.pending === 0;
    if (peer.isShut && !haveBothEnded) return;
    if (!side.isShut && !this.#isAged)
      this.#ending = (haveBothEnded ? peer : side) === this.clientSide ? 'client-end' : 'backend-end';
    if (haveBothEnded) {
      this.#bothEnded();
      return;
    }
    peer.end();
    peer.isShut = true;
    peer.wasSent();
    this.#beginHalfOpen();
  }

  #resetBy(side: Side): Ending {
    if (this.#isAged) return 'proxy-age';
    return side === this.clientSide ? 'client-reset' : 'backend-reset';
  }

  #beginHalfOpen(): void {
    this.isHalfOpen = true;
    this.moved();
  }

  /**
   * A side that has received the other's end is closed: the kernel then delivers the bytes that a slow reader has not
   * read yet. A side that has not is reset, so that it does not take what it has for the whole stream.
   */
  #endHalfOpen(): void {
    if (!this.#over(this.#isAged ? 'proxy-age' : 'proxy-idle')) return;
    for (const side of [this.clientSide, this.endpointSide]) {
      if (side?.isShut && !this.#isAged) side.close();
      else side?.reset();
    }
  }

  /**
   * Passes on what the broken side had sent, then the reset. It waits until the peer has acknowledged everything,
   * because a reset makes the kernel drop queued bytes.
   */
  #settle(): void {
    const side = this.broken as Side;
    const peer = side.peer as Side;
    const isPeerBroken = side.pump() === peer;
    const isRead = !side.isReadable || side.hasEnded;
    const isDelivered = isRead && side.pending === 0 && peer.unacknowledgedBytes <= 0;
    if (isPeerBroken || isDelivered || this.port.thread.nowMs >= this.#giveUpMs) this.cut(this.#ending);
    else this.#wait(RESET_POLL_MS);
  }

  #wait(ms: number): void {
    this.port.thread.loop.start(this.#timer, ms);
  }

  /** Both have ended their direction, and have been sent all. */
  #bothEnded(): void {
    if (!this.#over(this.#ending)) return;
    this.clientSide.close();
    this.endpointSide?.retire();
  }

  /** A clean end of both sides; the kernel delivers the bytes that it holds. */
  #end(ending: Ending): void {
    if (!this.#over(ending)) return;
    this.clientSide.close();
    this.endpointSide?.close();
  }

  /** False when it was over before. The sides are still to be closed. */
  #over(ending: Ending): boolean {
    if (!this.finish(ending)) return false;
    this.home?.ended();
    this.dialling?.cancel();
    this.dialling = undefined;
    this.clientSide.release();
    this.endpointSide?.release();
    return true;
  }
}
