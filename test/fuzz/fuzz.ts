import { fork } from 'node:child_process';
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import type { Limits, News } from './session.ts';
import { TARGETS } from './target.ts';

/* `scripts/fuzz`: a process for each target, because an input may also end or hang the process that reads it. */

/** A single input takes milliseconds. */
const SILENCE_MS = 120_000;

/** As many as lead to different inputs: see `session.ts`. */
const SEEDS = 256;

const { values, positionals } = parseArgs({
  options: { seconds: { type: 'string' }, count: { type: 'string' }, seed: { type: 'string' } },
  allowPositionals: true,
});
const unknown = positionals.filter((name) => !TARGETS.some((each) => each === name));
if (unknown.length > 0) throw new Error(`there is no target ${unknown.join(', ')}; there are ${TARGETS.join(', ')}`);
const limits: Limits = {
  // JSON has no Infinity.
  seconds: Number(values.seconds ?? (values.count === undefined ? 60 : Number.MAX_SAFE_INTEGER)),
  count: Number(values.count ?? Number.MAX_SAFE_INTEGER),
  seed: Number(values.seed ?? Math.floor(Math.random() * SEEDS)),
};
const scratch = mkdtempSync(join(tmpdir(), 'fuzz-'));
const failures = await Promise.all((positionals.length > 0 ? positionals : TARGETS).map(runTarget));
rmSync(scratch, { recursive: true });
process.exitCode = failures.some((count) => count > 0) ? 1 : 0;

/** Resolves with the number of different failures, when the target has ended. */
function runTarget(name: string): Promise<number> {
  const current = join(scratch, name);
  const child = fork(join(import.meta.dirname, 'session.ts'), [name, current, JSON.stringify(limits)]);
  let failures = 0;
  let last: Extract<News, { kind: 'end' }> | undefined;
  let watch = setTimeout(giveUp, SILENCE_MS);
  function giveUp(): void {
    child.kill('SIGKILL');
  }
  const fail = (file: string, stack: string) => {
    failures++;
    console.log(`FAILED ${name}: seed ${limits.seed}, input ${file}\n${stack}\n`);
  };
  child.on('message', (news: News) => {
    clearTimeout(watch);
    watch = setTimeout(giveUp, SILENCE_MS);
    if (news.kind === 'failure') fail(news.file, news.stack);
    if (news.kind === 'end') last = news;
  });
  return new Promise((resolve) => {
    child.on('exit', (code, signal) => {
      clearTimeout(watch);
      if (code !== 0) {
        const file = join(import.meta.dirname, 'corpus', name, `found-${signal ?? code}-${limits.seed}`);
        if (existsSync(current)) copyFileSync(current, file);
        const how = signal === 'SIGKILL' ? `was silent for ${SILENCE_MS / 1_000} s` : `ended with ${signal ?? code}`;
        fail(relative(process.cwd(), file), `its process ${how}`);
      }
      const { inputs = 0, replayed = 0, seconds = 0 } = last ?? {};
      const rate = seconds === 0 ? 0 : Math.round(inputs / seconds);
      console.log(`${name}: ${replayed} known and ${inputs} new inputs, ${rate}/s, ${failures} failures`);
      resolve(failures);
    });
  });
}
