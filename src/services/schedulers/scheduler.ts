import type { Tournament } from '../../util/tournament.ts';
import type { Member } from '../member.ts';

/** Whom not to choose: those that were tried already. */
export type Except = (member: Member) => boolean;

/**
 * Chooses among the members of a pool. It only reads them, and keeps no more than whose turn it is, and what it can
 * derive again. All pass `test/services/schedulers/compliance.ts`.
 */
export interface Scheduler {
  /** The set or a weight changed; `members` is another list only if it was the set. No weight is 0. */
  update(members: readonly Member[]): void;
  /** Whom this client would get now. Changes nothing that anybody could see. */
  choose(client: string, nowMs: number, except?: Except): Member | undefined;
  /** The member that was chosen last gets the client. */
  moved?(member: Member): void;
  /** The `open` of a member changed. */
  loadChanged?(member: Member): void;
  /** What another process needs to go on with the same members in the same order. */
  record?(): readonly number[];
  restore?(numbers: readonly number[]): void;
}

/** The first from `start` on, going round, that is not excluded. */
export function onward(members: readonly Member[], start: number, except?: Except): Member | undefined {
  for (let step = 0; step < members.length; step++) {
    const member = members[(start + step) % members.length] as Member;
    if (!except?.(member)) return member;
  }
  return undefined;
}

/** After this many a scheduler that draws or hashes takes the next best. */
const DRAWS = 8;

/**
 * The first draw that is not excluded. Fresh draws spread the clients of an excluded member over all others, where the
 * neighbour alone would get them.
 */
export function drawn(
  members: readonly Member[],
  draw: (attempt: number) => number,
  except?: Except,
): Member | undefined {
  if (except === undefined) return members[draw(0)];
  for (let attempt = 0; attempt < DRAWS && members.length > 0; attempt++) {
    const member = members[draw(attempt)];
    if (member !== undefined && !except(member)) return member;
  }
  return onward(members, draw(0), except);
}

/** The member whose position wins. */
export function lowest(members: readonly Member[], costs: Tournament, except?: Except): Member | undefined {
  if (except === undefined) return members[costs.winner];
  return members[costs.winnerOf((position) => !except(members[position] as Member))];
}

/** An order that is the same on every node. */
export function byName(a: Member, b: Member): number {
  return a.name < b.name ? -1 : 1;
}
