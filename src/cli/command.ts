import type { InferredOptionTypes, Options } from 'yargs';
import type { FlagTexts } from '../config/configure.ts';
import type { Control } from '../operate/control/protocol.ts';
import type { Clock } from '../util/clock.ts';
import type { Completed } from './near.ts';

/** Where a command reads and writes. Tests record it. */
export interface Terminal {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Resolves when the reader has taken all output: a pipe holds 64 KB at a time. */
  readonly flush: () => Promise<void>;
  /** stdout is a terminal. */
  readonly isTTY: boolean;
  /** Columns and rows of stdout, 80 × 24 where they are not known. */
  readonly size: () => { readonly columns: number; readonly rows: number };
}

/** What else a command works with. */
export interface Tools {
  readonly clock: Clock;
  /** To the running program with this control socket. Connects for each question. */
  readonly connect: (path: string) => Control;
  /** Handles Ctrl-C, until the returned function is called. */
  readonly onInterrupt: (handler: () => void) => () => void;
}

export type OptionTable = Readonly<Record<string, Options>>;

/** The arguments of a command. Of a repeated option, the last value. */
export type Given<O extends OptionTable> = InferredOptionTypes<O> & {
  /** The positional argument; empty when it was left out. Of two, both with a space between. */
  readonly argument: string;
  /** The flags of a run, for a command that takes them. */
  readonly flags: FlagTexts;
};

/** A subcommand: `kube-userspace-proxy NAME …`. */
export interface Command<O extends OptionTable = OptionTable> {
  readonly name: string;
  /** One line, in lower case, for `--help`. */
  readonly summary: string;
  /** The positional argument: "IP:PORT", "[NAMESPACE]" when it is optional, "IP:PORT WEIGHT" for two. Absent: none. */
  readonly argument?: string;
  /** What a shell offers for the positional argument. */
  readonly completes?: readonly Completed[];
  /** In the words of yargs. */
  readonly options: O;
  /** It takes every flag of a run, too. */
  readonly takesFlags?: true;
  /** An example and what it is for. */
  readonly examples?: readonly (readonly [command: string, what: string])[];
  /** Resolves with the exit code; rejects with a sentence for the user. */
  run(given: Given<O>, terminal: Terminal, tools: Tools): Promise<number>;
}

/** Lets the compiler derive what the options give. */
export function command<const O extends OptionTable>(description: Command<O>): Command<O> {
  return description;
}
