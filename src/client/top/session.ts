import type { Clock, Timer } from '../../contracts/clock.ts';
import { messageOf } from '../../model/message-of.ts';
import { ENDPOINT_COLUMNS, SERVICE_COLUMNS } from './columns.ts';
import type { Glyphs } from './frame.ts';
import { keysOf } from './keys.ts';
import type { EndpointRow, Look, Looker, ServiceRow } from './look.ts';
import { render, type Scene, shownOf } from './render.ts';
import { filterRows, sortRows } from './rows.ts';
import type { Screen } from './screen.ts';
import { initialState, press, type State } from './state.ts';

export interface SessionOptions {
  readonly looker: Pick<Looker, 'look' | 'open'>;
  readonly firstLook: Look;
  readonly screen: Screen;
  readonly glyphs: Glyphs;
  readonly clock: Clock;
  readonly delayMs: number;
  /** The user wants no more. */
  readonly onOver: () => void;
}

const NO_ENDPOINTS: readonly EndpointRow[] = [];

/** What the user sees and does from the beginning to the end: looks again and again, draws, and obeys keys. */
export class Session {
  readonly #options: SessionOptions;
  readonly #sortServices = lastOf(sortedServices);
  readonly #sortEndpoints = lastOf(sortRows<EndpointRow>);
  #state: State;
  #look: Look;
  #problem: string | undefined;
  #timer: Timer | undefined;
  #isLooking = false;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#look = options.firstLook;
    this.#state = initialState(options.delayMs);
  }

  start(): void {
    this.#draw();
    this.#schedule();
  }

  stop(): void {
    this.#state = { ...this.#state, isOver: true };
    this.#timer?.cancel();
  }

  type(text: string): void {
    for (const key of keysOf(text)) {
      const before = this.#state;
      if (before.isOver) return;
      const { screen, glyphs } = this.#options;
      this.#state = press(before, key, shownOf(this.#scene(), screen.size(), glyphs));
      this.#react(before);
    }
    if (!this.#state.isOver) this.#draw();
  }

  repaint(): void {
    this.#options.screen.clear();
    this.#draw();
  }

  #react(before: State): void {
    const { isOver, opened, isPaused, delayMs } = this.#state;
    if (isOver) {
      this.stop();
      this.#options.onOver();
      return;
    }
    if (opened !== before.opened) this.#look = { ...this.#look, opened: undefined };
    if (opened !== undefined && opened !== before.opened) void this.#open();
    if (isPaused !== before.isPaused || delayMs !== before.delayMs) this.#schedule();
  }

  #schedule(): void {
    this.#timer?.cancel();
    const { isOver, isPaused, delayMs } = this.#state;
    if (isOver || isPaused || this.#isLooking) return;
    this.#timer = this.#options.clock.after(delayMs, () => void this.#lookAgain());
  }

  async #lookAgain(): Promise<void> {
    const { opened } = this.#state;
    this.#isLooking = true;
    await this.#show(async () => {
      const look = await this.#options.looker.look(opened);
      // What the user has opened meanwhile comes by itself.
      return opened === this.#state.opened ? look : { ...look, opened: this.#look.opened };
    });
    this.#isLooking = false;
    this.#schedule();
  }

  /** At once, and not only at the next look. */
  async #open(): Promise<void> {
    const { opened } = this.#state;
    if (opened === undefined) return;
    await this.#show(async () => {
      const found = await this.#options.looker.open(opened);
      return opened === this.#state.opened ? { ...this.#look, opened: found } : this.#look;
    });
  }

  async #show(look: () => Promise<Look>): Promise<void> {
    try {
      this.#look = await look();
      this.#problem = undefined;
    } catch (error) {
      // The program may be about to start anew; the user decides for how long to wait.
      this.#problem = `Trying again: ${messageOf(error)}`;
    }
    if (!this.#state.isOver) this.#draw();
  }

  #draw(): void {
    const { screen, glyphs } = this.#options;
    screen.show(render(this.#scene(), screen.size(), glyphs));
  }

  #scene(): Scene {
    const { services, endpoints, filter } = this.#state;
    return {
      state: this.#state,
      look: this.#look,
      services: this.#sortServices(this.#look.services, filter, services.sortBy, services.isReversed),
      endpoints: this.#sortEndpoints(
        this.#look.opened?.endpoints ?? NO_ENDPOINTS,
        ENDPOINT_COLUMNS,
        endpoints.sortBy,
        endpoints.isReversed,
      ),
      problem: this.#problem,
    };
  }
}

function sortedServices(
  rows: readonly ServiceRow[],
  filter: string,
  sortBy: string,
  isReversed: boolean,
): readonly ServiceRow[] {
  return sortRows(filterRows(rows, filter), SERVICE_COLUMNS, sortBy, isReversed);
}

/** Does it again only when something is different: keys come faster than ten thousand rows need to be sorted. */
function lastOf<Arguments extends readonly unknown[], Result>(
  compute: (...given: Arguments) => Result,
): (...given: Arguments) => Result {
  let last: { readonly given: Arguments; readonly result: Result } | undefined;
  return (...given) => {
    if (last === undefined || given.some((each, at) => each !== last?.given[at])) {
      last = { given, result: compute(...given) };
    }
    return last.result;
  };
}
