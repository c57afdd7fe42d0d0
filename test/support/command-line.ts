import { parse } from '../../src/cli/parser.ts';
import type { CommandLine } from '../../src/config/config.ts';
import { configure } from '../../src/config/configure.ts';
import { UsageError } from '../../src/config/usage-error.ts';

/** What these flags ask for, or what the program says of them on stderr. */
export function parseCommandLine(
  argv: readonly string[],
  readFile: (path: string) => string = () => '',
): CommandLine | { readonly kind: 'error'; readonly text: string } {
  try {
    return configure(parse(argv, []).flags, readFile);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return { kind: 'error', text: error.message };
  }
}
