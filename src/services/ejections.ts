import type { DialFailure } from '../model/data-plane.ts';
import type { Member } from './member.ts';

/** The longest ejection, after as many doublings as it takes. */
const MAX_EJECT_MS = 60_000;

/** A trial is decided by then: its dial has ended, or the question of a UDP client has been in vain. */
const TRIAL_MS = 3000;

/** What answers others this shortly before a dial failed is alive: the shortest time after which a dial is silent. */
const ALIVE_MS = 250;

export interface EjectionOptions {
  /** Failed dials in a row; 0: no endpoint is ever ejected. */
  readonly ejectAfter: number;
  /** The first ejection. It doubles with each further one in a row, up to a minute. */
  readonly ejectTimeMs: number;
}

interface FailedAmong {
  readonly size: number;
  readonly tookMs: number;
}

/** For a live upgrade. */
export interface EjectionRecord {
  readonly leftMs: number;
  /** How many ejections there were in a row. */
  readonly inRow: number;
}

/**
 * The members of one pool that have failed too often in a row (docs/adr/0025). They get a client when nobody else is
 * left, and one client as a trial when their time is over.
 */
export class Ejections {
  readonly #options: EjectionOptions;
  /** Most Service ports never have one. */
  #ejected: Set<Member> | undefined;
  /** No time is over before. */
  #firstOverMs = Number.POSITIVE_INFINITY;
  /** The last time that any member answered. */
  #answeredMs = Number.NEGATIVE_INFINITY;
  /** One at a time, so that at most one client waits for it. */
  #trial: { readonly member: Member; readonly endsMs: number } | undefined;

  constructor(options: EjectionOptions) {
    this.#options = options;
  }

  get count(): number {
    return this.#ejected?.size ?? 0;
  }

  has(member: Member): boolean {
    return member.ejectedUntilMs !== Number.NEGATIVE_INFINITY;
  }

  /**
   * Returns whether this failure ejects it. `size`: of the set. `tookMs`: see {@link Picker.failed}.
   *
   * A refusal comes from the endpoint's own node. Silence may be the fault of this node or of the network between, so
   * for silence at most half of the set is ejected, unless others answered in this row of failures before this dial
   * began. A dial that began earlier proves nothing: the network may have come back while it waited.
   */
  failed(member: Member, reason: DialFailure, nowMs: number, { size, tookMs }: FailedAmong): boolean {
    const isTrial = this.#trial?.member === member;
    if (isTrial) this.#trial = undefined;
    // Not the endpoint's failure.
    if (reason === 'other') return false;
    // Nor when others are answered: a NetworkPolicy that keeps one client out must not cost the others an endpoint.
    if (nowMs - member.answeredMs < ALIVE_MS) return false;
    const { lastFailure } = member;
    if (lastFailure !== undefined && this.#answeredMs >= lastFailure.atMs) {
      member.aloneSinceMs = Math.min(member.aloneSinceMs, nowMs);
    }
    member.failed(reason, nowMs);
    if (this.has(member)) {
      // Others were tried last, or begun before.
      if (isTrial) this.#eject(member, nowMs);
      return false;
    }
    const { ejectAfter } = this.#options;
    if (ejectAfter === 0 || member.failures < ejectAfter || member.position < 0) return false;
    const isOwnFault = reason === 'refused' || nowMs - tookMs >= member.aloneSinceMs;
    if (!isOwnFault && this.count + 1 > size / 2) return false;
    this.#eject(member, nowMs);
    return true;
  }

  /** Returns whether that readmits it. */
  answered(member: Member, nowMs: number): boolean {
    this.#answeredMs = nowMs;
    member.answered(nowMs);
    return this.#readmit(member);
  }

  /** Whose trial is due, if any. */
  due(nowMs: number): Member | undefined {
    if (nowMs < this.#firstOverMs || (this.#trial !== undefined && nowMs < this.#trial.endsMs)) return undefined;
    this.#firstOverMs = Number.POSITIVE_INFINITY;
    for (const member of this.#ejected ?? []) {
      this.#firstOverMs = Math.min(this.#firstOverMs, member.ejectedUntilMs);
      if (member.ejectedUntilMs <= nowMs) return member;
    }
    return undefined;
  }

  /** A client goes to a member that is {@link due}. */
  begin(member: Member, nowMs: number): void {
    this.#trial = { member, endsMs: nowMs + TRIAL_MS };
    // If nothing comes of it.
    member.ejectedUntilMs = nowMs + Math.max(TRIAL_MS, this.#ejectMs(member.ejectionsInRow - 1));
  }

  /**
   * Its doubt begins, or ends by what the source says. A doubtful one is ejected ahead of any failure: others are tried
   * first, and its first answer readmits it.
   */
  doubted(member: Member, nowMs: number): void {
    if (!member.isDoubtful) this.#readmit(member);
    else if (this.#options.ejectAfter > 0 && !this.has(member)) this.#eject(member, nowMs);
  }

  /** The set changed. */
  update(): void {
    for (const member of this.#ejected ?? []) if (member.position < 0) this.#readmit(member);
  }

  recordOf(member: Member, nowMs: number): EjectionRecord | undefined {
    if (!this.has(member)) return undefined;
    return { leftMs: Math.max(0, member.ejectedUntilMs - nowMs), inRow: member.ejectionsInRow };
  }

  restore(member: Member, { leftMs, inRow }: EjectionRecord, nowMs: number): void {
    if (this.#options.ejectAfter === 0) return;
    member.ejectionsInRow = inRow;
    this.#add(member, nowMs + leftMs);
  }

  #eject(member: Member, nowMs: number): void {
    this.#add(member, nowMs + this.#ejectMs(member.ejectionsInRow));
    member.ejectionsInRow++;
  }

  #add(member: Member, untilMs: number): void {
    member.ejectedUntilMs = untilMs;
    this.#firstOverMs = Math.min(this.#firstOverMs, untilMs);
    this.#ejected ??= new Set();
    this.#ejected.add(member);
  }

  #readmit(member: Member): boolean {
    if (this.#ejected === undefined || !this.#ejected.delete(member)) return false;
    if (this.#trial?.member === member) this.#trial = undefined;
    member.ejectedUntilMs = Number.NEGATIVE_INFINITY;
    member.ejectionsInRow = 0;
    return true;
  }

  #ejectMs(before: number): number {
    const { ejectTimeMs } = this.#options;
    return Math.min(ejectTimeMs * 2 ** before, Math.max(ejectTimeMs, MAX_EJECT_MS));
  }
}
