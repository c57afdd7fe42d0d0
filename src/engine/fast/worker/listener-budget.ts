import type { EventLoop } from './event-loop.ts';

/** Shares each turn of the loop among the listeners that have events: it stays short, however many they are. */
export class ListenerBudget {
  readonly #loop: Pick<EventLoop, 'turns'>;
  readonly #perTurn: number;
  #turn = 0;
  #listeners = 0;
  #listenersBefore = 0;

  constructor(loop: Pick<EventLoop, 'turns'>, perTurn: number) {
    this.#loop = loop;
    this.#perTurn = perTurn;
  }

  /** How many clients or datagrams one listener may take for this event: at least one. */
  portion(): number {
    const { turns } = this.#loop;
    if (turns !== this.#turn) {
      this.#listenersBefore = turns === this.#turn + 1 ? this.#listeners : 0;
      this.#listeners = 0;
      this.#turn = turns;
    }
    this.#listeners++;
    return Math.max(1, Math.floor(this.#perTurn / Math.max(this.#listeners, this.#listenersBefore)));
  }
}
