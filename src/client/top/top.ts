import { UsageError } from '../../cli/usage-error.ts';
import { duration } from '../../cli/values.ts';
import { parseArguments, type SubcommandArguments } from '../arguments.ts';
import { controlSocketOf } from '../control-options.ts';
import type { RunSubcommand, Terminal } from '../subcommand.ts';
import { ASCII, type Glyphs, UNICODE } from './frame.ts';
import { Looker } from './look.ts';
import { AnsiScreen } from './screen.ts';
import { Session } from './session.ts';
import { TOP } from './subcommand.ts';
import { takeTerminal } from './terminal-device.ts';

const DEFAULT_DELAY_MS = 2_000;
/** So that looking does not become a load itself. */
const MIN_DELAY_MS = 500;

export const top: RunSubcommand = async (argv, terminal, { clock, connect }) => {
  const given = parseArguments(TOP, argv);
  const delayMs = delayOf(given);
  const { stdin, stdout } = process;
  if (!terminal.isTTY || !stdin.isTTY || terminal.env['TERM'] === 'dumb') {
    throw new Error('needs a terminal that it can draw on: use list, or list --rate, to print');
  }
  const looker = new Looker(connect(controlSocketOf(given)), clock);
  // Whatever is wrong here is best said on the ordinary screen.
  const firstLook = await looker.look(undefined);
  return await new Promise<number>((resolve) => {
    const end = (code: number) => {
      session.stop();
      giveBack();
      resolve(code);
    };
    const screen = new AnsiScreen({
      size: terminal.size,
      write: terminal.out,
      // https://no-color.org
      hasColours: (terminal.env['NO_COLOR'] ?? '') === '',
    });
    const onOver = () => end(0);
    const session = new Session({ looker, firstLook, screen, glyphs: glyphsOf(terminal), clock, delayMs, onOver });
    const giveBack = takeTerminal(stdin, stdout, {
      onInput: (text) => session.type(text),
      onRepaint: () => session.repaint(),
      onEnd: end,
    });
    session.start();
  });
};

function delayOf({ values }: SubcommandArguments): number {
  const text = values.get('delay');
  if (text === undefined) return DEFAULT_DELAY_MS;
  const wrong = (why: string) => new UsageError(`--delay ${JSON.stringify(text)}: ${why}`);
  try {
    const delayMs = duration(text);
    if (delayMs >= MIN_DELAY_MS) return delayMs;
  } catch (error) {
    throw error instanceof UsageError ? wrong(error.message) : error;
  }
  throw wrong('must be at least 500ms');
}

/** The rules of POSIX for the variables of the locale. */
function glyphsOf({ env }: Pick<Terminal, 'env'>): Glyphs {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || '';
  return /utf-?8/i.test(locale) ? UNICODE : ASCII;
}
