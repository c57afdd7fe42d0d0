/*
 * Runs the tests that docs/reliability.md names, each file's in a process of its own, a few files at a time, and prints
 * how often each fault was passed.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import type { Outcome } from './reporter.ts';
import { type Fault, filesOf, type Proof, ROOT, readFaults, titlePattern } from './table.ts';

/** The tests of one file, once. */
interface Run {
  readonly file: string;
  readonly proofs: readonly Proof[];
}

/** Whether each of its runs has passed. */
type Results = Map<Proof, boolean[]>;

const USAGE = 'Usage: scripts/test-faults [--times N] [NUMBER ...]';

const { times, numbers } = readArguments();
const faults = readFaults().filter(({ number }) => numbers.length === 0 || numbers.includes(number));
const results: Results = new Map();
const waiting: Run[] = Array.from({ length: times }, () => runsOf(faults)).flat();
// Most of them wait for most of the time.
await Promise.all(Array.from({ length: availableParallelism() + 1 }, work));
process.exitCode = report(faults) ? 0 : 1;

function readArguments(): { times: number; numbers: readonly number[] } {
  const { values, positionals } = parseArgs({ options: { times: { type: 'string' } }, allowPositionals: true });
  const times = Number(values.times ?? 1);
  const numbers = positionals.map(Number);
  if (![times, ...numbers].every((value) => Number.isInteger(value) && value > 0)) {
    process.stderr.write(`${USAGE}\n`);
    process.exit(2);
  }
  return { times, numbers };
}

function runsOf(some: readonly Fault[]): Run[] {
  const each = some.flatMap(({ proofs }) => proofs).flatMap((proof) => filesOf(proof).map((file) => ({ file, proof })));
  return [...Map.groupBy(each, ({ file }) => file)].map(([file, of]) => ({
    file,
    proofs: of.map(({ proof }) => proof),
  }));
}

async function work(): Promise<void> {
  for (let run = waiting.shift(); run !== undefined; run = waiting.shift()) {
    const { file, proofs } = run;
    const outcomes = await outcomesOf(run);
    for (const proof of proofs) {
      const pattern = new RegExp(`^${titlePattern(proof, '.*')}$`);
      const own = outcomes.filter(({ title }) => pattern.test(title));
      // One that is skipped says nothing; at least one must have run.
      const isPassed = own.some(({ result }) => result === 'passed') && own.every(({ result }) => result !== 'failed');
      results.set(proof, [...(results.get(proof) ?? []), isPassed]);
      process.stdout.write(`${isPassed ? 'passed' : 'FAILED'}  ${file}: ${proof.title}\n`);
    }
    for (const { title, error } of outcomes) if (error !== undefined) process.stdout.write(`${title}: ${error}\n`);
  }
}

/** None when the file cannot even be loaded: then each of its tests has failed. */
async function outcomesOf({ file, proofs }: Run): Promise<Outcome[]> {
  const child = spawn(
    'scripts/run-tests',
    [
      '--test-reporter=./scripts/faults/reporter.ts',
      ...proofs.map((proof) => `--test-name-pattern=/${titlePattern(proof, '.*')}$/`),
      file,
    ],
    { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const text = (await child.stdout.setEncoding('utf8').toArray()).join('');
  return text
    .split('\n')
    .filter((line) => line.startsWith('{"title":'))
    .map((line) => JSON.parse(line) as Outcome);
}

/** Prints the table; gives whether all of it has passed, and nothing was missing. */
function report(some: readonly Fault[]): boolean {
  let arePassed = true;
  process.stdout.write('\n');
  for (const { number, name, proofs } of some) {
    const all = proofs.flatMap((proof) => results.get(proof) ?? []);
    const passes = all.filter(Boolean).length;
    const word = all.length === 0 ? 'MISSING' : passes === all.length ? 'passed' : 'FAILED';
    arePassed &&= word === 'passed';
    process.stdout.write(`${String(number).padStart(2)}  ${word.padEnd(7)} ${passes}/${all.length}  ${name}\n`);
  }
  return arePassed;
}
