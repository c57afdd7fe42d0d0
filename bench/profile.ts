import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeExecutable } from '../scripts/build.ts';
import { OWN_PLATFORM } from '../scripts/packaging/platforms.ts';
import { runCommand } from '../test/netns/topology.ts';
import type { Candidate } from './candidates.ts';
import { type CpuProfile, selfTimes } from './cpu-profile.ts';
import { Program } from './program.ts';
import { Rig } from './rig.ts';
import { type Meter, measure, type Row } from './rows.ts';

const FUNCTIONS = 20;
const LINES = 40;
/** A thread that was less busy than this has no part in the row. */
const LEAST_BUSY_MS = 50;

/** Prints where one candidate of ours spends its time in one row: by V8, and by strace and perf where installed. */
export async function profile(
  row: Row,
  candidate: Candidate,
  meters: { readonly meter: Meter; readonly warmUp: Meter },
): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'kup-profile-'));
  try {
    await byV8(row, candidate, { ...meters, directory });
    for (const [tool, show] of [
      ['strace', withStrace],
      ['perf', withPerf],
    ] as const) {
      const { code } = await runCommand(['sh', '-c', `command -v ${tool}`]);
      if (code === 0) await show(row, candidate, { ...meters, directory });
      else console.log(`\n${tool} is not installed, so its part is missing.`);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

interface Means {
  readonly meter: Meter;
  readonly warmUp: Meter;
  readonly directory: string;
}

/** Each thread writes its profile as it ends. */
async function byV8(row: Row, candidate: Candidate, { meter, warmUp, directory }: Means): Promise<void> {
  const flags = ['--cpu-prof', `--cpu-prof-dir=${directory}`, '--cpu-prof-interval=200'];
  const rig = await Rig.create(candidate, { ...row, program: await build(directory, flags) });
  try {
    await measure(row, rig, warmUp);
    show(row, (await measure(row, rig, meter)).values);
  } finally {
    await rig.remove();
  }
  const files = readdirSync(directory).filter((name) => name.endsWith('.cpuprofile'));
  for (const file of files.sort()) {
    const { busyMs, functions } = selfTimes(JSON.parse(readFileSync(join(directory, file), 'utf8')) as CpuProfile);
    if (busyMs < LEAST_BUSY_MS) continue;
    console.log(`\nV8, thread of ${file}: busy for ${Math.round(busyMs)} ms; self time, waiting included`);
    for (const { name, ms } of functions.slice(0, FUNCTIONS)) {
      console.log(`${((ms / busyMs) * 100).toFixed(1).padStart(6)} %  ${name}`);
    }
  }
}

async function withStrace(row: Row, candidate: Candidate, { meter, warmUp, directory }: Means): Promise<void> {
  const rig = await Rig.create(candidate, row);
  try {
    await measure(row, rig, warmUp);
    const output = join(directory, 'strace');
    const tracer = new Program(rig.topology.node, ['strace', '-c', '-f', '-o', output, '-p', String(rig.pid)]);
    await tracer.until('attaches', async () => /attached/.test(tracer.said));
    const { values } = await measure(row, rig, meter);
    await tracer.stop();
    console.log('\nsystem calls (strace -c -f, which slows them down: read the counts)');
    show(row, values);
    console.log(head(readFileSync(output, 'utf8')));
  } finally {
    await rig.remove();
  }
}

async function withPerf(row: Row, candidate: Candidate, { meter, warmUp, directory }: Means): Promise<void> {
  // V8 writes its log, too, and would leave it here.
  const flags = ['--perf-basic-prof', `--logfile=${join(directory, 'v8.log')}`];
  const rig = await Rig.create(candidate, { ...row, program: await build(directory, flags) });
  const map = `/tmp/perf-${rig.pid}.map`;
  try {
    await measure(row, rig, warmUp);
    const data = join(directory, 'perf.data');
    const recorder = new Program(rig.topology.node, ['perf', 'record', '-F', '997', '-o', data, '-p', String(rig.pid)]);
    const { values } = await measure(row, rig, meter);
    await recorder.stop();
    const report = (...sort: readonly string[]) =>
      runCommand(['perf', 'report', '--stdio', '-i', data, '--sort', ...sort]);
    const threads = await report('comm,dso', '--percent-limit', '0.7');
    const { stdout, stderr } = await report('dso,symbol', '--percent-limit', '0.7');
    console.log('\nkernel and program together (perf)');
    show(row, values);
    const tables = [threads.stdout, stdout].map((text) => head(text.replace(/^(#.*)?\n|[ -]+$/gm, '')));
    console.log(tables.join('\n\n').trim() || `perf gave nothing: ${recorder.said} ${stderr.trim()}`);
  } finally {
    await rig.remove();
    rmSync(map, { force: true });
  }
}

/** The program, run by a Node with these options. */
async function build(directory: string, options: readonly string[]): Promise<string> {
  const file = join(directory, 'program');
  await writeExecutable(file, OWN_PLATFORM, options);
  return file;
}

function show({ name, metrics }: Row, values: Readonly<Record<string, number>>): void {
  const figures = metrics.flatMap(({ key, label, unit, decimals }) =>
    values[key] === undefined ? [] : [`${label} ${values[key].toFixed(decimals)} ${unit}`],
  );
  console.log(`${name}: ${figures.join(', ')}`);
}

function head(text: string): string {
  return text.split('\n').slice(0, LINES).join('\n').trimEnd();
}
