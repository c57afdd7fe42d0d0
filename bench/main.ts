import { writeFileSync } from 'node:fs';
import { arch, cpus, release } from 'node:os';
import { CANDIDATES, type Candidate } from './candidates.ts';
import { type CongestionControl, missingCongestionControl } from './congestion-control.ts';
import { type Options, parseOptions, usage } from './options.ts';
import { profile } from './profile.ts';
import { cpuSeconds } from './program.ts';
import { type Measurement, Report } from './report.ts';
import { Rig } from './rig.ts';
import { type Meter, measure, ROWS, type Row } from './rows.ts';
import { table } from './table.ts';

const CHOICE = {
  rows: ROWS.map(({ name }) => name),
  candidates: CANDIDATES.map(({ name }) => name),
  usual: CANDIDATES.filter(({ isExtra }) => !isExtra).map(({ name }) => name),
};

process.exitCode = await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<number> {
  let options: Options | undefined;
  try {
    options = parseOptions(args, CHOICE);
  } catch (error) {
    console.error(`bench: ${(error as Error).message}`);
    return 2;
  }
  if (options === undefined) {
    console.log(usage(CHOICE));
    return 0;
  }
  const { rows, candidates } = options;
  const chosenCandidates = CANDIDATES.filter(({ name }) => candidates.includes(name));
  if (options.profile !== undefined) {
    const row = ROWS.find(({ name }) => name === options.profile)!;
    const ours = chosenCandidates.find(({ kind }) => kind === 'ours') ?? CANDIDATES[0]!;
    await profile(row, ours, { meter: meterOf(options.seconds), warmUp: meterOf(options.warmUp) });
    return 0;
  }
  return await compare(
    ROWS.filter(({ name }) => rows.includes(name)),
    chosenCandidates,
    options,
  );
}

/** Every candidate takes its turn in every round of every row. The exit code: 1 when one of ours failed to run. */
async function compare(rows: readonly Row[], candidates: readonly Candidate[], options: Options): Promise<number> {
  const notes: string[] = [];
  const present = candidates.filter((candidate) => {
    const why = candidate.missing?.();
    if (why !== undefined) notes.push(why);
    return why === undefined;
  });
  const begun = performance.now();
  const measurements: Measurement[] = [];
  for (const congestionControl of ['cubic', 'bbr'] as const) {
    const rowsWithIt = rows.filter((row) => row.congestionControl === congestionControl);
    const why = missingCongestionControl(congestionControl);
    if (rowsWithIt.length === 0) continue;
    if (why === undefined) measurements.push(...(await measureAll(rowsWithIt, present, options)));
    else notes.push(`${why}: without ${rowsWithIt.map(({ name }) => name).join(', ')}`);
  }

  const report = new Report(present, measurements);
  const seconds = Math.round((performance.now() - begun) / 1000);
  console.log(`${table(report, rows)}\n`);
  console.log(
    `Medians of ${options.rounds} × ${options.seconds} s ± half the range; ratios are medians over the rounds.`,
  );
  console.log(`${machine().cpu}, ${machine().cores} cores, Linux ${machine().kernel}; took ${seconds} s.`);
  for (const line of [...notes, ...report.troubles()]) console.log(`! ${line}`);
  if (options.json !== undefined) {
    const begunAt = new Date(Date.now() - seconds * 1000);
    const raw = { machine: machine(), options, begun: begunAt, goals: report.goals(rows), measurements };
    writeFileSync(options.json, `${JSON.stringify(raw, undefined, 2)}\n`);
  }
  const ours = new Set(present.filter(({ kind }) => kind === 'ours').map(({ name }) => name));
  return measurements.some(({ candidate, failure }) => failure !== undefined && ours.has(candidate)) ? 1 : 0;
}

/** On nodes with one congestion control: a candidate's sockets outlive a change of it. */
async function measureAll(
  rows: readonly Row[],
  candidates: readonly Candidate[],
  options: Options,
): Promise<Measurement[]> {
  const { congestionControl } = rows[0]!;
  const contenders = await Promise.all(candidates.map((candidate) => prepare(candidate, congestionControl)));
  const measurements: Measurement[] = [];
  for (const row of rows) {
    const taking = contenders.filter(({ candidate }) => candidate.carriesUdp || !row.isUdp);
    progress(`${row.name}, warming up`);
    // V8 compiles what is used often, while it runs. What fails here fails below, too, and is told there.
    for (const contender of taking) await turn(row, contender, { round: -1, meter: meterOf(options.warmUp) });
    for (let round = 0; round < options.rounds; round++) {
      progress(`${row.name}, round ${round + 1} of ${options.rounds}`);
      for (const contender of rotated(taking, round)) {
        measurements.push(await turn(row, contender, { round, meter: meterOf(options.seconds) }));
      }
    }
  }
  await Promise.all(contenders.map(({ rig }) => rig?.remove()));
  return measurements;
}

interface Contender {
  readonly candidate: Candidate;
  readonly rig?: Rig;
  /** Why there is none. */
  readonly failure?: string;
}

async function prepare(candidate: Candidate, congestionControl: CongestionControl): Promise<Contender> {
  try {
    return { candidate, rig: await Rig.create(candidate, { congestionControl }) };
  } catch (error) {
    return { candidate, failure: `did not start: ${(error as Error).message}` };
  }
}

async function turn(
  row: Row,
  { candidate, rig, failure }: Contender,
  { round, meter }: { readonly round: number; readonly meter: Meter },
): Promise<Measurement> {
  const which = { row: row.name, candidate: candidate.name, round };
  if (rig === undefined) return { ...which, failure: failure ?? 'did not start' };
  try {
    return { ...which, result: await measure(row, rig, meter) };
  } catch (error) {
    return { ...which, failure: (error as Error).message };
  }
}

function meterOf(seconds: number): Meter {
  return {
    seconds,
    cpuSeconds: async (rig) => (rig.candidate.kind === 'limit' ? 0 : await cpuSeconds(rig.topology.node)),
  };
}

/** Nobody is always first, or always after the same one. */
function rotated<T>(items: readonly T[], by: number): readonly T[] {
  const first = by % Math.max(items.length, 1);
  return [...items.slice(first), ...items.slice(0, first)];
}

function progress(line: string): void {
  process.stderr.write(process.stderr.isTTY ? `\r\x1b[K${line}` : `${line}\n`);
}

function machine() {
  return { cpu: cpus()[0]?.model ?? 'unknown CPU', cores: cpus().length, kernel: release(), arch: arch() };
}
