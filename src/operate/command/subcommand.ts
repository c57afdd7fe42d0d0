import type { Clock } from '../../util/clock.ts';
import type { Control } from '../control/protocol.ts';

/** Where a subcommand reads and writes; what a terminal is, in a test a recording. */
export interface Terminal {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Resolves when whoever reads has been given all of that: a pipe takes 64 KB at a time. */
  readonly flush: () => Promise<void>;
  /** stdout is a terminal. */
  readonly isTTY: boolean;
  /** Columns and rows of stdout, 80 × 24 where that is not known. */
  readonly size: () => { readonly columns: number; readonly rows: number };
}

/** What else a subcommand works with. */
export interface Tools {
  readonly clock: Clock;
  /** To the running program whose control socket is here. Connects when something is asked. */
  readonly connect: (path: string) => Control;
  /** Ctrl-C no longer ends the program by itself, until the function that this returns is called. */
  readonly onInterrupt: (handler: () => void) => () => void;
}

/** Resolves with the exit code; rejects with a sentence for the user. `argv` is what follows the subcommand's name. */
export type RunSubcommand = (argv: readonly string[], terminal: Terminal, tools: Tools) => Promise<number>;

/** One option of a subcommand, as its parser, the man page and the shells' completions need it. */
export interface SubcommandOption {
  readonly name: string;
  /** One letter. */
  readonly alias?: string;
  readonly describe: string;
  /** Absent: a switch. */
  readonly value?: { readonly placeholder: string; readonly choices?: readonly string[] };
}

/**
 * An action of the program that is not running the proxy: `kube-userspace-proxy NAME …`. What it is called with; the
 * code that runs it is found through its name, in src/app/subcommands.ts.
 */
export interface Subcommand {
  readonly name: string;
  /** One line, in lower case, for `--help`. */
  readonly summary: string;
  /** "IP:PORT[/udp]", or "[NAMESPACE]" for one that may be left out; absent: takes none. */
  readonly positional?: string;
  readonly options: readonly SubcommandOption[];
  /** An example with what it is for. */
  readonly examples?: readonly (readonly [command: string, what: string])[];
}
