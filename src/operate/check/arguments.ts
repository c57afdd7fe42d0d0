export type Output = 'text' | 'json';

export interface CheckArguments {
  readonly output: Output;
  /** Those of a run. */
  readonly flags: readonly string[];
}

const OUTPUT = /^(?:-o=?|--output=)(.*)$/s;

/** Takes out what is for the check itself: `-o json`, `--output=json`. Throws an Error whose message is for the user. */
export function splitCheckArguments(argv: readonly string[]): CheckArguments {
  const flags: string[] = [];
  let output = 'text';
  for (let at = 0; at < argv.length; at++) {
    const argument = argv[at] ?? '';
    if (argument === '-o' || argument === '--output') output = argv[++at] ?? '';
    else if (OUTPUT.test(argument)) output = OUTPUT.exec(argument)?.[1] ?? '';
    else flags.push(argument);
  }
  if (output !== 'text' && output !== 'json') {
    throw new Error(`--output ${JSON.stringify(output)}: must be one of text, json`);
  }
  return { output, flags };
}
