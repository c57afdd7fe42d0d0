import { parseArgs } from 'node:util';

export interface Options {
  readonly rounds: number;
  /** Of one measurement. */
  readonly seconds: number;
  /** How long each candidate carries each row before it is measured. */
  readonly warmUp: number;
  readonly rows: readonly string[];
  readonly candidates: readonly string[];
  /** File for the raw data. */
  readonly json: string | undefined;
  /** The row to profile one candidate of ours with, in place of comparing. */
  readonly profile: string | undefined;
}

/** What can be chosen from. */
export interface Choice {
  readonly rows: readonly string[];
  readonly candidates: readonly string[];
  /** Of these, what is chosen unless told otherwise. */
  readonly usual: readonly string[];
}

export function usage({ rows, candidates, usual }: Choice): string {
  return `Usage: scripts/bench [flags]

Compares the proxy with its peers, each behind the same rules on a node of its own, taking turns.

  --rounds N           measurements of each row with each candidate (3)
  --seconds S          length of one measurement (2)
  --warm-up S          each candidate carries each row so long before it is measured (8)
  --rows A,B           of ${rows.join(', ')} (all)
  --candidates A,B     of ${candidates.join(', ')}
                       (${usual.join(',')})
  --json FILE          writes all measurements
  --profile ROW        shows where one of ours (--candidates, else fast) spends its time in that row;
                       uses strace and perf where they are installed
  --help`;
}

/** `undefined` when help is asked for. Throws an Error with a sentence for the user. */
export function parseOptions(args: readonly string[], choice: Choice): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '2' },
      'warm-up': { type: 'string', default: '8' },
      rows: { type: 'string' },
      candidates: { type: 'string' },
      json: { type: 'string' },
      profile: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  return {
    rounds: wholeNumber('--rounds', values.rounds),
    seconds: wholeNumber('--seconds', values.seconds),
    warmUp: wholeNumber('--warm-up', values['warm-up']),
    rows: values.rows === undefined ? choice.rows : chosen('--rows', values.rows, choice.rows),
    candidates:
      values.candidates === undefined ? choice.usual : chosen('--candidates', values.candidates, choice.candidates),
    json: values.json,
    profile: values.profile === undefined ? undefined : chosen('--profile', values.profile, choice.rows)[0],
  };
}

function wholeNumber(flag: string, text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new Error(`${flag} takes a whole number from 1 to 9999, not "${text}"`);
  return Number(text);
}

/** In the order of the table, whatever order they are named in. */
function chosen(flag: string, text: string, names: readonly string[]): readonly string[] {
  const wanted = text.split(',');
  const unknown = wanted.find((name) => !names.includes(name));
  if (unknown !== undefined) throw new Error(`${flag} knows no "${unknown}"; it knows ${names.join(', ')}`);
  return names.filter((name) => wanted.includes(name));
}
