import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Environment } from '../../test/netns/harness.ts';
import { FAULTS } from './faults.ts';
import { Report } from './report.ts';
import { Stage, type StageOptions } from './stage.ts';

/*
 * The built program, for hours, while everything changes and fails. Each minute is a round: traffic, random changes of
 * all Services, and one fault or upgrade among them. Then the Services are made what they were before the first round,
 * and all comes to rest. So rounds compare: rules, chains and local ports must be what they were, and nothing may grow.
 */

const USAGE = `Usage: scripts/soak [--hours N | --minutes N] [--services N] [--seed N]

Runs the built program (four hours, 1000 Services) under changes, faults, upgrades and traffic. Prints a line each minute.
The exit code is 1 when something has grown, or was lost without a fault that explains it. Ctrl-C ends it.`;

const ROUND_MS = 60_000;
const UPGRADE_EVERY_ROUNDS = 10;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      hours: { type: 'string', default: '4' },
      minutes: { type: 'string' },
      services: { type: 'string', default: '1000' },
      seed: { type: 'string', default: String(Date.now() % 1e6) },
      help: { type: 'boolean', default: false },
    },
  });
  const rounds = Math.ceil(Number(values.minutes ?? 60 * Number(values.hours)));
  const options = { services: Number(values.services), seed: Number(values.seed) };
  if (values.help || !(rounds > 0 && options.services > 0 && options.seed >= 0)) {
    console.log(USAGE);
    return values.help ? 0 : 2;
  }
  console.log(`${rounds} minutes, ${options.services} Services, seed ${options.seed}; memory in MiB`);
  const report = new Report();
  // After Ctrl-C, too. It stands before the environment's own, which removes everything.
  process.on('exit', () => report.summarize());
  const environment = await Environment.create();
  try {
    await soak(environment, { rounds, ...options }, report);
  } catch (error) {
    report.trouble((error as Error).message);
    console.error(environment.proxy?.tail());
  } finally {
    await environment.remove();
  }
  report.summarize();
  return report.isGood ? 0 : 1;
}

async function soak(
  environment: Environment,
  { rounds, ...options }: StageOptions & { readonly rounds: number },
  report: Report,
): Promise<void> {
  const stage = await Stage.set(environment, options);
  report.begin(await stage.rest());
  // Short runs have an upgrade, too. The last third has none: what a process loses shows in one that lives long.
  const every = Math.min(UPGRADE_EVERY_ROUNDS, Math.ceil(rounds / 3));
  for (let round = 1; round <= rounds; round++) {
    const end = sleep(ROUND_MS);
    const isUpgrade = round % every === 0 && round <= (2 / 3) * rounds;
    const fault = isUpgrade ? stage.upgrade : stage.choose(FAULTS);
    const tally = await stage.perform(fault);
    await stage.restore();
    report.round({ fault, tally, rest: await stage.rest(), isUpgrade });
    await end;
  }
}

process.exitCode = await main();
