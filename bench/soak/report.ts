import type { Fault, Losses } from './faults.ts';
import { grows } from './growth.ts';
import type { Rest } from './rest.ts';
import type { Tally } from './stage.ts';

const FIGURES = ['rss', 'helper', 'descriptors', 'chains', 'rules', 'ports', 'retired', 'conntrack'] as const;
const HEADINGS = ['minute', 'calls', 'asked', 'transfers', 'changes', 'lost', 'explained', ...FIGURES, 'fault'];

/** What may differ by chance: MiB; idle pipes and what talks to the API server. */
const SLACK = { rss: 8, helper: 8, descriptors: 64 } as const;

export interface Round {
  readonly fault: Fault;
  readonly tally: Tally;
  readonly rest: Rest;
  readonly isUpgrade: boolean;
}

/** Prints what happens, and judges it. */
export class Report {
  /** At the end of each round that each process has served; the newest process last. */
  readonly #processes: Rest[][] = [[]];
  readonly #troubles: string[] = [];
  #rounds = 0;
  #lost = 0;
  #explained = 0;
  #isOver = false;

  get isGood(): boolean {
    return this.#troubles.length === 0;
  }

  begin(rest: Rest): void {
    line(HEADINGS);
    line(['0', '', '', '', '', '', '', ...FIGURES.map((name) => rest[name]), '']);
  }

  round({ fault, tally, rest, isUpgrade }: Round): void {
    this.#rounds++;
    if (isUpgrade) this.#processes.push([]);
    this.#processes.at(-1)!.push(rest);
    let [lost, explained] = [0, 0];
    for (const [what, count] of Object.entries(tally.lost) as [keyof Losses, number][]) {
      if (count <= (fault.explains?.[what] ?? 0)) explained += count;
      else {
        lost += count;
        this.trouble(`minute ${this.#rounds}, ${fault.name}: ${count} ${what} were lost`);
      }
    }
    this.#lost += lost;
    this.#explained += explained;
    const { calls, questions, transfers, changes } = tally;
    const figures = FIGURES.map((name) => rest[name]);
    line([this.#rounds, calls, questions, transfers, changes, lost, explained, ...figures, fault.name]);
  }

  trouble(text: string): void {
    this.#troubles.push(text);
    console.log(`! ${text}`);
  }

  /** Of the process that has lived longest, and from process to process: some of it each hands on to the next. */
  #judgeGrowth(): void {
    const last = this.#processes.at(-1)!;
    const ends = this.#processes.slice(0, -1).flatMap((rests) => rests.slice(-1));
    for (const [where, rests] of [
      ['in the last process', last],
      ['from process to process', ends],
    ] as const) {
      for (const [name, slack] of Object.entries(SLACK) as [keyof typeof SLACK, number][]) {
        const figures = rests.map((rest) => rest[name]);
        if (grows(figures, slack)) this.trouble(`${name} grows ${where}: ${figures.join(' ')}`);
      }
    }
  }

  summarize(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#judgeGrowth();
    const verdict = this.isGood
      ? 'Nothing has grown or was lost without reason.'
      : `${this.#troubles.length} troubles:`;
    const upgrades = this.#processes.length - 1;
    console.log(
      `${this.#rounds} minutes, ${upgrades} upgrades, ${this.#lost} lost, ${this.#explained} explained. ${verdict}`,
    );
    for (const text of this.#troubles) console.log(`! ${text}`);
  }
}

function line(cells: readonly (string | number)[]): void {
  console.log(cells.map((cell, index) => String(cell).padStart(Math.max(4, HEADINGS[index]!.length))).join('  '));
}
