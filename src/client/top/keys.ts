/** What terminals send after ESC, as xterm, the Linux console, tmux and screen do. */
/** A control sequence (ECMA-48 5.4), or one letter after a shift. */
const SEQUENCES: ReadonlyMap<string, string> = new Map([
  ['[A', 'up'],
  ['OA', 'up'],
  ['[B', 'down'],
  ['OB', 'down'],
  ['[C', 'right'],
  ['OC', 'right'],
  ['[D', 'left'],
  ['OD', 'left'],
  ['[H', 'home'],
  ['OH', 'home'],
  ['[1~', 'home'],
  ['[7~', 'home'],
  ['[F', 'end'],
  ['OF', 'end'],
  ['[4~', 'end'],
  ['[8~', 'end'],
  ['[5~', 'page-up'],
  ['[6~', 'page-down'],
]);

const CONTROLS: ReadonlyMap<string, string> = new Map([
  ['\u0003', 'ctrl-c'],
  ['\u0008', 'backspace'],
  ['\u007f', 'backspace'],
  ['\r', 'enter'],
  ['\n', 'enter'],
  ['\u0006', 'page-down'],
  ['\u0002', 'page-up'],
]);

/** A control sequence (ECMA-48 5.4), or one letter after a shift. */
const SEQUENCE = /^(?:\[[0-?]*[ -/]*[@-~]|O[A-Za-z])/;

/**
 * The keys in what a terminal in raw mode has sent at once: a character stands for itself, others have names of more
 * than one letter. Sequences that are not known are none. ESC alone is a key, as terminals send a sequence in one piece.
 */
export function keysOf(input: string): string[] {
  const [plain = '', ...escaped] = input.split('\u001b');
  return [
    ...charactersOf(plain),
    ...escaped.flatMap((text) => {
      const [sequence] = SEQUENCE.exec(text) ?? [];
      if (sequence === undefined) return ['escape', ...charactersOf(text)];
      const name = SEQUENCES.get(sequence);
      return [...(name === undefined ? [] : [name]), ...charactersOf(text.slice(sequence.length))];
    }),
  ];
}

function charactersOf(text: string): string[] {
  return [...text].map((character) => CONTROLS.get(character) ?? character);
}
