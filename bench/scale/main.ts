import { writeFileSync } from 'node:fs';
import { cpus, release } from 'node:os';
import { seededRandom } from '../../test/support/seeded-random.ts';
import { Churn } from './churn.ts';
import { measure, type ScaleResult } from './measure.ts';
import { parseOptions, type ScaleOptions, USAGE } from './options.ts';
import { costPlot, scaleTable } from './report.ts';
import { ScaleNode } from './scale-node.ts';
import { createApiStore, createManifestStore } from './service-store.ts';

process.exitCode = await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<number> {
  let options: ScaleOptions | undefined;
  try {
    options = parseOptions(args);
  } catch (error) {
    console.error(`bench: ${(error as Error).message}`);
    return 2;
  }
  if (options === undefined) {
    console.log(USAGE);
    return 0;
  }
  return await run(options);
}

/** The exit code: 1 when something was not served as it was written. Times are only printed. */
async function run(options: ScaleOptions): Promise<number> {
  const results: ScaleResult[] = [];
  const troubles: string[] = [];
  const attempt = async <T>(what: string, work: () => Promise<T>): Promise<T | undefined> => {
    progress(what);
    try {
      return await work();
    } catch (error) {
      troubles.push(`${what}: ${(error as Error).message}`);
      return undefined;
    }
  };

  const node = await ScaleNode.create();
  try {
    const { topology, agent } = node;
    const store =
      options.source === 'api' ? await createApiStore(topology, agent) : createManifestStore(topology, options.files);
    const churn = new Churn(store, seededRandom(1));
    for (const count of options.services) {
      progress(`writing ${count} Services`);
      for (const means of options.captures) {
        await churn.fill(count);
        const subject = { node, store, churn, means, services: count };
        const result = await attempt(`${count} Services, ${means}`, () => measure(subject, options));
        if (result !== undefined) results.push(result);
      }
    }
  } finally {
    await node.remove();
  }
  print(options, { results, troubles });
  return troubles.length === 0 ? 0 : 1;
}

function print(options: ScaleOptions, { results, troubles }: { results: ScaleResult[]; troubles: string[] }): void {
  const machine = { cpu: cpus()[0]?.model ?? 'unknown CPU', cores: cpus().length, kernel: release() };
  if (results.length > 0) console.log(`${scaleTable(results)}\n\n${costPlot(results)}\n`);
  const source = options.files === undefined ? options.source : `${options.files} files`;
  console.log(`Services from ${source}; ${machine.cpu}, ${machine.cores} cores, Linux ${machine.kernel}.`);
  for (const line of troubles) console.log(`! ${line}`);
  if (options.json !== undefined) {
    writeFileSync(options.json, `${JSON.stringify({ machine, options, results, troubles }, undefined, 2)}\n`);
  }
}

function progress(line: string): void {
  process.stderr.write(process.stderr.isTTY ? `\r\x1b[K${line}` : `${line}\n`);
}
