import type { InferredOptionTypes, Options } from 'yargs';
import type { FlagTexts } from '../../config/configure.ts';
import type { Clock } from '../../util/clock.ts';
import type { Control } from '../control/protocol.ts';

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
  /** To the running program whose control socket is here. Connects when something is asked. */
  readonly connect: (path: string) => Control;
  /** Ctrl-C no longer ends the program by itself, until the function that this returns is called. */
  readonly onInterrupt: (handler: () => void) => () => void;
}

export type OptionTable = Readonly<Record<string, Options>>;

/** What was given to a command. Of an option that was repeated, the last value. */
export type Given<O extends OptionTable> = InferredOptionTypes<O> & {
  /** The one argument that is not an option; empty when it was left out. */
  readonly argument: string;
  /** The flags of a run, for a command that takes them. */
  readonly flags: FlagTexts;
};

/** An action of the program that is not running the proxy: `kube-userspace-proxy NAME …`. */
export interface Command<O extends OptionTable = OptionTable> {
  readonly name: string;
  /** One line, in lower case, for `--help`. */
  readonly summary: string;
  /** The one argument that is not an option: "IP:PORT", or "[NAMESPACE]" when it may be left out. Absent: none. */
  readonly argument?: string;
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
